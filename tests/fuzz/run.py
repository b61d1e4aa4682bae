"""Attacks the public commands with hostile input and counts how they end.

    scripts/uv run python tests/fuzz/run.py [--kinds cif override] [--cases 1000] [--seed 0] [--keep DIR] [--json]

A case is determined by its kind, the seed and its number: `--first N --cases 1` makes it again, and `--keep` keeps its
files. Exit code 1 if any command ended badly.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import harness
import kinds


def attack(kind: kinds.Kind, numbers: range, seed: int, folder: Path, programs: dict, keep: Path | None) -> list[dict]:
    """Runs the cases of one kind; returns a row per bad end."""
    faults = []
    for number in numbers:
        case = folder / f"{kind.name}-{number}"
        case.mkdir(parents=True)
        program, words = kind.case(random.Random(f"{kind.name}/{seed}/{number}"), case)
        before = set(folder.parent.iterdir())
        outcome = harness.run(lambda p=program, w=words: programs[p](w), case, kind.seconds)
        fault = harness.fault(outcome, kind.seconds)
        if set(folder.parent.iterdir()) != before:
            fault = f"writes outside of its folder: {set(folder.parent.iterdir()) - before}"
        if fault:
            faults.append({"kind": kind.name, "case": number, "command": [program, *words], "fault": fault})
            if keep:
                shutil.copytree(case, keep / case.name, symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(case, ignore_errors=True)
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", metavar="KIND")
    parser.add_argument("--cases", type=int, default=100, help="of each kind")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for the files of the cases that end badly")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    faults, total, started = [], 0, time.monotonic()
    programs = kinds.commands()
    with tempfile.TemporaryDirectory() as shared:
        cases = Path(shared) / "a" / "cases"
        for kind in kinds.kinds(Path(shared)):
            if options.kinds and kind.name not in options.kinds:
                continue
            numbers = range(options.first, options.first + options.cases)
            found = attack(kind, numbers, options.seed, cases, programs, options.keep)
            faults, total = faults + found, total + len(numbers)
            print(f"{kind.name}: {len(numbers)} cases, {len(found)} end badly", file=sys.stderr, flush=True)
    for row in faults:
        print(f"{row['kind']} {row['case']}: {row['fault']}")
    for text, count in Counter(row["fault"][:70] for row in faults).most_common(20):
        print(f"{count:6d} {text}")
    if options.json:
        print(json.dumps({"ratio": 1 - len(faults) / total, "cases": total, "seconds": time.monotonic() - started}))
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
