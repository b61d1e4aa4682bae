"""Attacks the public commands with hostile input and counts how they end.

    scripts/uv run python tests/fuzz/run.py [--kinds crystals yaml] [--cases 1000] [--seed 0]
    [--workers 8] [--keep DIR]

A case is determined by its kind, the seed and its number: `--first N --cases 1` makes it again, and
`--keep` keeps its files. A long run is `--cases 100000 --workers CORES`. Exit code 1 if any command
ended badly.
"""

import argparse
import gc
import importlib
import json
import multiprocessing
import operator
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TypedDict

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import configuration_cases
import dataset_cases
import file_cases
import harness
import hdf5_readers
import measured_cases
import shortcuts
from argument_cases import Arguments, Paths
from values import Command

# What each program imports, its main function's module first: a case is forked from a process that
# has imported them.
PROGRAMS = {
    "namsa": (
        "namsa.cli.parser",
        "namsa.cli.commands.dataset",
        "namsa.cli.commands.integrity",
        "namsa.cli.commands.simulate",
        "namsa.cli.commands.view",
        "matplotlib.backends.backend_agg",  # a library's own late import
    ),
    "fcdensenet": ("fcdensenet.__main__",),
    "train": (
        "train.__main__",
        "train.commands.models",
        "train.tasks.density.scan.application",
        "train.reports.report",
        "train.reports.runs",
        "train.scaling.report",
        "matplotlib.backends.backend_agg",
        "rich._emoji_codes",
    ),
    "repaired": ("dataset_cases", "namsa.cli.commands.integrity"),
}
CHUNK = 25  # cases that run one after another in one process
PATIENCE = 6.0  # wall time of a case that is judged alone, on a machine that may be busy
# Of the cases' folders; None is the system's own.
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None


class Fault(TypedDict):
    """A command that ended badly."""

    kind: str
    case: int
    command: list[str]
    fault: str


class Chunk(TypedDict):
    """Outcome of consecutive cases of a kind."""

    seconds: float
    faults: list[Fault]


@dataclass(frozen=True)
class Kind:
    """A kind of input.

    Attributes:
        name: Its name on the command line.
        case: Writes the files of one case into a folder and returns the program and its arguments.
        programs: The programs that it may return.
        seconds: Wall time that a case may take.
    """

    name: str
    case: Callable[[random.Random, Path], Command]
    programs: tuple[str, ...] = ("namsa",)
    seconds: float = 10.0


def kinds(folder: Path) -> Iterator[Kind]:
    """Returns all kinds; `folder` holds what they share."""
    datasets = dataset_cases.Datasets(folder)
    arguments = Arguments(folder)
    yield Kind("configuration", configuration_cases.configuration, ("namsa", "fcdensenet"))
    yield Kind("extreme", configuration_cases.extreme, ("namsa", "fcdensenet"))
    yield Kind("hdf5-bytes", measured_cases.hdf5_bytes, ("namsa", "train"))
    yield Kind("hdf5-structure", measured_cases.hdf5_structure, ("namsa", "train"))
    yield Kind("measured", measured_cases.measured)
    yield Kind("side-files", datasets.side_files)
    yield Kind("records", datasets.records)
    yield Kind("repaired", datasets.repaired, ("repaired",))
    yield Kind("arguments", arguments.case, ("train",))
    yield Kind("yaml", configuration_cases.yaml_text, ("namsa", "fcdensenet"))
    yield Kind("overrides", configuration_cases.overrides)
    yield Kind("crystals", file_cases.crystal)
    yield Kind("positions", file_cases.positions)
    yield Kind("runs", file_cases.Runs(folder).case, ("train",))
    yield Kind("paths", Paths(folder).case, ("namsa", "fcdensenet", "train"))


@cache
def main_function(program: str) -> Callable[[list[str]], int]:
    """Returns a program's main function. Imports it when the first case needs it: TensorFlow takes
    seconds.
    """
    modules = [importlib.import_module(name) for name in PROGRAMS[program]]
    gc.collect()
    gc.freeze()  # collections would copy the pages that forked processes share
    main: Callable[[list[str]], int] = modules[0].main  # type: ignore[attr-defined]
    return main


def warm_up(folder: Path) -> None:
    """Runs valid commands once, so that forked processes find what these import and what
    `shortcuts` keeps.
    """
    with (
        harness.restored(),
        open(os.devnull, "w") as null,
        redirect_stdout(null),
        redirect_stderr(null),
    ):
        for command in configuration_cases.valid(folder):
            call(command)


def call(command: tuple[str, list[str]]) -> int:
    """Runs a program with its arguments; returns the exit code."""
    program, words = command
    return main_function(program)(words)


def attack(kind: Kind, seed: int, keep: Path | None, numbers: range) -> Chunk:
    """Runs cases of one kind, one after another in one process; a case that ends badly is judged
    alone.
    """
    started = time.monotonic()
    faults = []
    for program in kind.programs:
        main_function(program)
    with harness.Runner(call) as runner:
        for case_number in numbers:
            if attack_once(kind, seed, case_number, runner):
                with harness.Runner(call) as alone:
                    if fault := attack_once(kind, seed, case_number, alone, keep, PATIENCE):
                        faults.append(fault)
    return {"seconds": time.monotonic() - started, "faults": faults}


def attack_once(
    kind: Kind,
    seed: int,
    case_number: int,
    runner: harness.Runner,
    keep: Path | None = None,
    patience: float = 1.0,
) -> Fault | None:
    """Runs one case in a temporary folder."""
    with tempfile.TemporaryDirectory(dir=MEMORY, ignore_cleanup_errors=True) as temporary:
        outside = Path(temporary)
        name = f"{kind.name}-{case_number}"
        folder = outside / "cases" / name
        folder.mkdir(parents=True)
        program, words = kind.case(random.Random(f"{kind.name}/{seed}/{case_number}"), folder)
        outcome = runner.run((program, words), folder, kind.seconds, patience)
        fault = harness.fault(outcome, kind.seconds)
        if [path.name for path in (*outside.iterdir(), *folder.parent.iterdir())] != [
            "cases",
            name,
        ]:
            fault = (
                f"writes outside of its folder: {[*outside.iterdir(), *folder.parent.iterdir()]}"
            )
        if not fault and (halves := [path for path in folder.rglob(".*") if path.name != ".lock"]):
            fault = f"leaves {halves[0].relative_to(folder)}"
        if fault and keep:
            keep.mkdir(parents=True, exist_ok=True)
            subprocess.run(
                ["cp", "-aT", folder, keep / name], check=False
            )  # knows pipes and sparse files
    if fault:
        return {
            "kind": kind.name,
            "case": case_number,
            "command": [program, *words],
            "fault": fault,
        }
    return None


def main() -> int:
    """Runs the cases and prints the bad ends; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", nargs="+", metavar="KIND", help="default: all")
    parser.add_argument("--cases", type=int, default=100, help="of each kind")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--workers", type=int, default=1, help="processes that run cases at the same time"
    )
    parser.add_argument(
        "--keep", type=Path, help="a folder for the files of the cases that end badly"
    )
    parser.add_argument(
        "--json", action="store_true", help="print a summary as one JSON object at the end"
    )
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=MEMORY) as shared, hdf5_readers.forked_readers():
        folder = Path(shared)
        chosen = []
        for kind in kinds(folder):
            if not options.kinds or kind.name in options.kinds:
                chosen.append(kind)
        if missing := set(options.kinds or ()) - {kind.name for kind in chosen}:
            parser.error(f"there is no kind {', '.join(sorted(missing))}")
        shortcuts.install(dataset_cases.undamaged(folder))
        if options.cases > CHUNK:
            warm_up(folder)
        last = options.first + options.cases
        numbers = [range(at, min(at + CHUNK, last)) for at in range(options.first, last, CHUNK)]
        tasks = []
        for kind in chosen:
            for case_numbers in numbers:
                tasks.append(partial(attack, kind, options.seed, options.keep, case_numbers))
        faults = []
        with closing(run_tasks(tasks, options.workers)) as results:
            for kind in chosen:
                chunks = [next(results) for _ in numbers]
                faults_of_kind = []
                for chunk in chunks:
                    faults_of_kind.extend(chunk["faults"])
                text = (
                    f"{options.cases} cases in {sum(chunk['seconds'] for chunk in chunks):.1f} s, "
                    f"{len(faults_of_kind)} end badly"
                )
                print(f"{kind.name}: {text}", file=sys.stderr, flush=True)
                faults += faults_of_kind
    for fault in faults:
        print(f"{fault['kind']} {fault['case']}: {fault['fault']}")
    for text, count in Counter(fault["fault"][:70] for fault in faults).most_common(20):
        print(f"{count:6d} {text}")
    if options.json:
        total = options.cases * len(chosen)
        print(
            json.dumps(
                {
                    "ratio": 1 - len(faults) / total,
                    "cases": total,
                    "seconds": time.monotonic() - started,
                }
            )
        )
    return 1 if faults else 0


def run_tasks(tasks: Sequence[Callable[[], Chunk]], workers: int) -> Generator[Chunk, None, None]:
    """Yields the results of tasks in their order, done by forked workers if there are several."""
    if workers == 1:
        yield from map(operator.call, tasks)
        return
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        yield from pool.imap(operator.call, tasks)


if __name__ == "__main__":
    raise SystemExit(main())
