"""One rank of `staging.py`: copies the dataset to the folder of its simulated node and records the bytes that it reads.

workers/staging_rank.py staged|naive SOURCE TARGET RANKS_PER_NODE OUT
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path

from train.ranks import reduction
from train.staging.stage import stage


def main() -> None:
    how, source, target, per_node, out = sys.argv[1], *map(Path, sys.argv[2:4]), int(sys.argv[4]), Path(sys.argv[5])
    reduction.start()
    node, local = divmod(reduction.rank(), per_node)
    os.environ["HOROVOD_HOSTNAME"] = f"node{node}"  # by which `reduction.nodes` tells nodes apart
    folder = target / f"node{node}"
    with reduction.together():
        folder.mkdir(parents=True, exist_ok=True)
    start, before = time.perf_counter(), bytes_read()
    if how == "staged":
        found = stage(source, folder, reduction)["ranks"][reduction.rank()]
    else:
        found = {}
        with reduction.together():
            copy_all(source, folder, local, per_node)
    found |= {"from_files": bytes_read() - before, "seconds": time.perf_counter() - start}
    with reduction.together():
        (out / f"{reduction.rank()}.json").write_text(json.dumps(found))
    reduction.stop()


def copy_all(source: Path, folder: Path, local: int, per_node: int) -> None:
    """The naive way: every node copies the dataset from the shared file system, a rank one file after the other."""
    for path in sorted(source.iterdir())[local::per_node]:
        with path.open("rb") as file, (folder / path.name).open("wb") as copy:
            shutil.copyfileobj(file, copy, 2**22)
            copy.flush()
            os.fsync(copy.fileno())


def bytes_read() -> int:
    """The kernel's count of all that this process has read from files; sockets, read by recv, are not in it."""
    return int(Path("/proc/self/io").read_text().split()[1])


if __name__ == "__main__":
    main()
