"""Memory that a step takes of a sample on one rank, and of its parts on two and four.

    scripts/uv run python scripts/bench/divided_memory.py [--rows 768] [--ways 1 2 4] [--json]

Of each rank, what the first step adds to its largest resident memory, MiB; the largest of all
ranks. "ratio" is the memory of the most ways over that of one.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import frame


def main() -> int:
    options = parse()
    numbers: dict[int, dict[str, float]] = {}
    for ways in options.ways:
        numbers[ways] = run(options.rows, ways)
    table = frame.table("ways", "activations, MiB", "step, MiB", "of one")
    one_mib = numbers[1]["step_mib"]
    for ways, row in numbers.items():
        step_mib = row["step_mib"]
        table.add_row(
            str(ways), f"{row['kept_mib']:.0f}", f"{step_mib:.0f}", f"{step_mib / one_mib:.2f}"
        )
    frame.show(table)
    most_mib = numbers[max(options.ways)]["step_mib"]
    frame.finish(options, {"found": numbers, "ratio": most_mib / one_mib})
    return 0


def parse() -> argparse.Namespace:
    parser = frame.parser(__doc__)
    parser.add_argument("--rows", type=int, default=768, help="of the sample, a multiple of 16")
    parser.add_argument(
        "--ways", type=int, nargs="+", default=[1, 2, 4], help="1 among them, and more"
    )
    return parser.parse_args()


def run(rows: int, ways: int) -> dict[str, float]:
    """Returns the largest numbers of all ranks."""
    words = [sys.executable, frame.WORKERS / "divided_memory_rank.py", ways, rows]
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
    ranks = []
    for text in ended.stdout.splitlines():
        if '{"step_mib"' in text:
            ranks.append(json.loads(text[text.index("{") :]))
    if ended.returncode or len(ranks) < ways:
        raise SystemExit(ended.stdout + ended.stderr)
    largest = {}
    for key in ranks[0]:
        largest[key] = max(frame.column(ranks, key))
    return largest


if __name__ == "__main__":
    raise SystemExit(main())
