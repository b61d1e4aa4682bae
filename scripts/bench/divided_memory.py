"""Memory that a step takes of a sample on one rank, and of its parts on two and four.

    scripts/uv run python scripts/bench/divided_memory.py [--rows 768] [--ways 1 2 4] [--volumes]
    [--limit] [--json]

Of each rank, what the first step adds to its largest resident memory, MiB; the largest of all
ranks. With --limit, one rank and four ranks then train in control groups of Linux, as root. Each
has the mean of what both have taken: one rank must fail, and four must not. "ratio" is the memory
of the most ways over that of one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import frame


def main() -> int:
    options = parse()
    kind = "cosmoflow" if options.volumes else "fcdensenet"
    numbers: dict[int, dict[str, float]] = {}
    for ways in options.ways:
        measured = run(kind, options.rows, ways)
        assert measured is not None  # only with a limit a rank may fail
        numbers[ways] = measured
    table = frame.table("ways", "activations, MiB", "step, MiB", "of one")
    one_mib = numbers[1]["step_mib"]
    for ways, row in numbers.items():
        step_mib = row["step_mib"]
        table.add_row(
            str(ways), f"{row['kept_mib']:.0f}", f"{step_mib:.0f}", f"{step_mib / one_mib:.2f}"
        )
    frame.show(table)
    most = max(options.ways)
    most_mib = numbers[most]["step_mib"]
    result: dict[str, Any] = {"found": numbers, "ratio": most_mib / one_mib}
    if options.limit:
        limit = round((one_mib + most_mib) / 2)
        trained = {ways: run(kind, options.rows, ways, limit) is not None for ways in (1, most)}
        for ways, well in trained.items():
            print(f"{ways} ranks with {limit} MiB: {'trained' if well else 'failed'}")
        result |= {"limit_mib": limit, "trained": trained}
    frame.finish(options, result)
    return 0


def parse() -> argparse.Namespace:
    parser = frame.parser(__doc__)
    parser.add_argument("--rows", type=int, default=768, help="of the sample, a multiple of 16")
    parser.add_argument(
        "--ways", type=int, nargs="+", default=[1, 2, 4], help="1 among them, and more"
    )
    parser.add_argument(
        "--volumes", action="store_true", help="of CosmoFlow, with as many rows along each axis"
    )
    parser.add_argument("--limit", action="store_true", help="train with limited memory, too")
    return parser.parse_args()


@contextmanager
def limited(mib: int) -> Iterator[Path]:
    """A control group whose processes get `mib` MiB."""
    parent = Path("/sys/fs/cgroup/memory")
    name = "memory.limit_in_bytes"
    if not parent.exists():
        parent = Path("/sys/fs/cgroup")
        name = "memory.max"
    try:
        folder = Path(tempfile.mkdtemp(prefix="divided_", dir=parent))
        (folder / name).write_text(str(mib * 2**20))
    except OSError as error:
        raise SystemExit(
            f"cannot limit the memory of processes ({error}): run as root, or without --limit"
        ) from None
    try:
        yield folder
    finally:
        folder.rmdir()


def run(kind: str, rows: int, ways: int, limit: int = 0) -> dict[str, float] | None:
    """The largest numbers of all ranks; `None` if a rank with a limit has failed."""
    with ExitStack() as stack:
        groups = [stack.enter_context(limited(limit)) for _ in range(ways)] if limit else []
        words = [
            sys.executable,
            frame.WORKERS / "divided_memory_rank.py",
            kind,
            ways,
            rows,
            *groups,
        ]
        if ways > 1:
            words = [Path(sys.executable).with_name("horovodrun"), "-np", ways, "--gloo", *words]
        settings = os.environ | {"PYTHONPATH": str(frame.ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
        ended = subprocess.run(
            list(map(str, words)),
            env=settings,
            capture_output=True,
            text=True,
            timeout=3600,
            check=False,
        )
    if ended.returncode and not limit:
        raise SystemExit(ended.stdout + ended.stderr)
    ranks = []
    for text in ended.stdout.splitlines():
        if '{"step_mib"' in text:
            ranks.append(json.loads(text[text.index("{") :]))
    if ended.returncode or len(ranks) < ways:
        return None
    largest = {}
    for key in ranks[0]:
        largest[key] = max(frame.column(ranks, key))
    return largest


if __name__ == "__main__":
    raise SystemExit(main())
