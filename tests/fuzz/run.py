"""Attacks the public commands with hostile input and counts how they end.

    scripts/uv run python tests/fuzz/run.py [--kinds cif override] [--cases 1000] [--seed 0] [--workers 8] [--keep DIR]

A case is determined by its kind, the seed and its number: `--first N --cases 1` makes it again, and `--keep` keeps its
files. A long run is `--cases 100000 --workers CORES`. Exit code 1 if any command ended badly.
"""

import argparse
import gc
import importlib
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TypedDict

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import harness
import kinds

from namsa.crystals import builtin
from namsa.dataset import rates

# What each program imports, its main function's module first: a case is forked from a process that has imported them.
PROGRAMS = {
    "namsa": (
        "namsa.cli.parser",
        "namsa.cli.commands.dataset",
        "namsa.cli.commands.integrity",
        "namsa.cli.commands.simulate",
        "namsa.cli.commands.view",
    ),
    "fcdensenet": ("fcdensenet.__main__",),
    "train": ("train.__main__", "train.reconstruction.reconstruct"),
    "repaired": ("repaired", "namsa.cli.commands.integrity"),
}
CHUNK = 25  # cases that a worker takes at a time


class Fault(TypedDict):
    """A command that ended badly."""

    kind: str
    case: int
    command: list[str]
    fault: str


@cache
def main_function(program: str) -> Callable[[list[str]], int]:
    """Returns a program's main function. Imports it when the first case needs it: TensorFlow takes seconds."""
    modules = [importlib.import_module(name) for name in PROGRAMS[program]]
    gc.collect()
    gc.freeze()  # collections would copy the pages that forked processes share
    main: Callable[[list[str]], int] = modules[0].main  # type: ignore[attr-defined]
    return main


def shorten_valid_cases() -> None:
    """Makes commands with valid input faster: crystals are read once, and rates are measured by one repetition."""
    prototypes = list(builtin._aflow_prototypes())
    builtin._aflow_prototypes = lambda: iter(prototypes)

    def seconds(work: Callable[[], object]) -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    rates._mean_seconds = seconds


def attack(kind: kinds.Kind, seed: int, keep: Path | None, numbers: range) -> list[Fault]:
    """Runs cases of one kind in a temporary folder; returns those that end badly."""
    faults: list[Fault] = []
    with tempfile.TemporaryDirectory() as temporary:
        outside = Path(temporary)
        for number in numbers:
            case = outside / "cases" / f"{kind.name}-{number}"
            case.mkdir(parents=True)
            program, words = kind.case(random.Random(f"{kind.name}/{seed}/{number}"), case)
            main = main_function(program)
            outcome = harness.run(lambda main=main, words=words: main(words), case, kind.seconds)
            fault = harness.fault(outcome, kind.seconds)
            if [path.name for path in outside.iterdir()] != ["cases"] or len(list(case.parent.iterdir())) != 1:
                fault = f"writes outside of its folder: {[*outside.iterdir(), *case.parent.iterdir()]}"
            if fault:
                faults.append({"kind": kind.name, "case": number, "command": [program, *words], "fault": fault})
                if keep:
                    shutil.copytree(case, keep / case.name, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(case, ignore_errors=True)
    return faults


def main() -> int:
    """Runs the cases and prints the bad ends; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", metavar="KIND", help="default: all")
    parser.add_argument("--cases", type=int, default=100, help="of each kind")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="processes that run cases at the same time")
    parser.add_argument("--keep", type=Path, help="a folder for the files of the cases that end badly")
    parser.add_argument("--json", action="store_true", help="print a summary as one JSON object at the end")
    options = parser.parse_args()
    faults: list[Fault] = []
    total, started = 0, time.monotonic()
    shorten_valid_cases()
    with tempfile.TemporaryDirectory() as shared:
        chosen = [kind for kind in kinds.kinds(Path(shared)) if not options.kinds or kind.name in options.kinds]
        if missing := set(options.kinds or ()) - {kind.name for kind in chosen}:
            parser.error(f"there is no kind {', '.join(sorted(missing))}")
        for kind in chosen:
            last, began = options.first + options.cases, time.monotonic()
            chunks = [range(at, min(at + CHUNK, last)) for at in range(options.first, last, CHUNK)]
            work = partial(attack, kind, options.seed, options.keep)
            ended_badly = [fault for row in run_chunks(work, chunks, options.workers) for fault in row]
            faults, total = faults + ended_badly, total + options.cases
            text = f"{options.cases} cases in {time.monotonic() - began:.1f} s, {len(ended_badly)} end badly"
            print(f"{kind.name}: {text}", file=sys.stderr, flush=True)
    for fault in faults:
        print(f"{fault['kind']} {fault['case']}: {fault['fault']}")
    for text, count in Counter(fault["fault"][:70] for fault in faults).most_common(20):
        print(f"{count:6d} {text}")
    if options.json:
        print(json.dumps({"ratio": 1 - len(faults) / total, "cases": total, "seconds": time.monotonic() - started}))
    return 1 if faults else 0


_work: Callable[[range], list[Fault]]  # of the forked workers, since closures cannot be sent to them


def run_chunks(work: Callable[[range], list[Fault]], chunks: list[range], workers: int) -> list[list[Fault]]:
    """Calls `work` on every chunk, in forked workers if there are several."""
    global _work  # noqa: PLW0603
    _work = work
    if workers == 1:
        return [work(chunk) for chunk in chunks]
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        return pool.map(_run_chunk, chunks, chunksize=1)


def _run_chunk(chunk: range) -> list[Fault]:
    return _work(chunk)


if __name__ == "__main__":
    raise SystemExit(main())
