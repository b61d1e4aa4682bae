"""Bytes read from the shared file system when a dataset is staged to every node, against plain copies.

    scripts/uv run python scripts/bench/staging.py [--ranks 4] [--ranks-per-node 1] [--mib 256] [--json]

With plain copies ("naive"), every node copies the dataset. Both are run by ranks of Horovod on this machine, with a
folder for each simulated node, and the results are compared byte for byte with the source. The kernel counts the bytes
of each process (/proc/self/io, rchar, which does not include sockets). "ratio" is the bytes of plain copies divided by
those of staging. Seconds are shown for completeness: here, the shared file system is the page cache, and there is no
network.

Then one process reads the same files from the disk, with an empty page cache, with one thread and with eight. Numbers
are medians of `--repeats`, interleaved. /proc/self/io (read_bytes) tells how much came from the device. If that is not
all of it, the bytes were cached elsewhere, and the times are meaningless.
"""

import argparse
import filecmp
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from train.staging.copies import FileState
from train.staging.pieces import Piece, read_piece

HERE = Path(__file__).resolve().parent
SHARDS = 8
THREADS = (1, 8)
PIECE_MIB = 32


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        source = Path(name) / "shared"
        make(source, options.mib)
        found = {how: run(how, source, Path(name), options) for how in ("staged", "naive")}
        cold = cold_reads(source, options.repeats)
    total = {how: sum(row["from_files"] for row in rows) for how, rows in found.items()}
    ratio = total["naive"] / total["staged"]

    table = Table("", *(f"rank {rank}" for rank in range(options.ranks)), "all", "s", box=None)
    for how, rows in found.items():
        mib = [f"{row['from_files'] / 2**20:.1f}" for row in rows]
        table.add_row(f"{how}, MiB read", *mib, f"{total[how] / 2**20:.1f}", f"{max(r['seconds'] for r in rows):.2f}")
    for threads, row in cold.items():
        where = f"cold, {threads} thread{'s' * (threads > 1)}: {row['from_device']:.0%} from the device"
        table.add_row(where, *[""] * options.ranks, f"{row['mib_per_s']:.0f} MiB/s", f"{row['seconds']:.3f}")
    Console(width=150).print(table)
    nodes = -(-options.ranks // options.ranks_per_node)
    speedup = cold[THREADS[1]]["mib_per_s"] / cold[THREADS[0]]["mib_per_s"]
    print(f"{nodes} nodes: {ratio:.3f} times fewer bytes read; eight threads: {speedup:.2f} times one, cold")
    if options.json:
        print(json.dumps({"ratio": ratio, "nodes": nodes, "bytes": total, "ranks": found, "cold": cold}))
    return 0


def make(source: Path, mib: int) -> None:
    source.mkdir()
    rng = np.random.default_rng(0)
    (source / "manifest.jsonl").write_bytes(rng.bytes(10_000))
    for shard in range(SHARDS):
        with (source / f"shard-{shard:05d}.lmdb").open("wb") as file:
            for _ in range(mib // SHARDS):
                file.write(rng.bytes(2**20))


def run(how: str, source: Path, folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """What each rank counted; the folders of all nodes are compared with the source, and removed."""
    target, out = folder / how, folder / f"{how}-out"
    out.mkdir()
    launcher = [str(Path(sys.executable).parent / "horovodrun"), "-np", str(options.ranks), "--gloo"]
    worker = [
        sys.executable,
        str(HERE / "workers" / "staging_rank.py"),
        how,
        source,
        target,
        str(options.ranks_per_node),
        out,
    ]
    environment = os.environ | {"PYTHONPATH": str(HERE.parents[1]), "TF_CPP_MIN_LOG_LEVEL": "3"}
    subprocess.run([*launcher, *map(str, worker)], check=True, stdout=sys.stderr, env=environment)
    names = [path.name for path in source.iterdir()]
    for node in target.iterdir():
        _, different, absent = filecmp.cmpfiles(source, node, names, shallow=False)
        if different or absent:
            raise SystemExit(f"{how}: {node.name} lacks {absent} and differs in {different}")
        for path in node.iterdir():
            path.unlink()
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(options.ranks)]


def cold_reads(source: Path, repeats: int) -> dict[int, dict[str, float]]:
    files = [FileState.of(path) for path in sorted(source.glob("shard-*"))]
    size = sum(file.size for file in files)
    seconds: dict[int, list[float]] = {threads: [] for threads in THREADS}
    from_device: dict[int, list[float]] = {threads: [] for threads in THREADS}
    for _ in range(repeats):
        for threads in THREADS:
            for file in files:
                forget(source / file.name)
            before, start = device_bytes(), time.perf_counter()
            with ThreadPoolExecutor(threads) as pool:
                for index, file in enumerate(files):
                    for begin in range(0, file.size, PIECE_MIB * 2**20):
                        piece = Piece(index, begin, min(PIECE_MIB * 2**20, file.size - begin), 0, 0, (0,))
                        read_piece(source / file.name, file, piece, pool, threads)
            seconds[threads].append(time.perf_counter() - start)
            from_device[threads].append((device_bytes() - before) / size)
    return {
        threads: {
            "seconds": statistics.median(seconds[threads]),
            "mib_per_s": size / 2**20 / statistics.median(seconds[threads]),
            "from_device": statistics.median(from_device[threads]),
        }
        for threads in THREADS
    }


def forget(path: Path) -> None:
    """Empties the page cache of a file, whose bytes must be on the disk for it."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def device_bytes() -> int:
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["read_bytes"])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--ranks-per-node", type=int, default=1)
    parser.add_argument("--mib", type=int, default=256, help="size of the dataset")
    parser.add_argument("--repeats", type=int, default=5, help="of reading from the disk")
    parser.add_argument("--folder", type=Path, help="where source and nodes lie; default: the temporary folder")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
