"""Frame of all benchmarks: arguments, the line of JSON, the line of the machine, tables, and
programs that take turns.

It imports Rich where it prints a table: the machines of `scripts/gpu` need not have it.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from rich.table import Table

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parents[1]
WORKERS = BENCH / "workers"
WIDTH = 148  # of a table that no terminal limits, characters


def parser(documentation: str | None) -> argparse.ArgumentParser:
    """Returns the parser of a benchmark: its documentation as the help, and `--json`."""
    arguments = argparse.ArgumentParser(
        description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument(
        "--json", action="store_true", help="print one JSON object as the last line"
    )
    return arguments


def add_overrides(arguments: argparse.ArgumentParser) -> None:
    """Adds `--set KEY=VALUE`, whose values are `overrides`."""
    arguments.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE"
    )


def finish(options: argparse.Namespace, result: Mapping[str, object]) -> None:
    """Prints the machine and, with `--json`, the result as the last line.

    Args:
        options: Arguments of `parser`.
        result: JSON types; its key "ratio" is the figure of merit.
    """
    print(machine())
    if options.json:
        print(json.dumps({**result, "machine": machine()}))


def machine() -> str:
    """Returns the line of the machine: processor, cores, load, Python and version of namsa."""
    from namsa.base.version import __version__

    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    return (
        f"machine: {processor()}, {cores} cores, load {load:.1f}; Python "
        f"{platform.python_version()}, namsa {__version__}"
    )


def processor() -> str:
    """Returns the model of the processor, as Linux names it."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


# ---- Values of rows, and tables


def column(rows: Iterable[Mapping[str, object]], key: str) -> list[Any]:
    """Returns the value at `key` of each row."""
    return [row[key] for row in rows]


def median_ratio(rows: Iterable[Mapping[str, float]], key: str, reference: str) -> float:
    """Returns the median over rows of the value at `key` over that at `reference`."""
    return statistics.median(row[key] / row[reference] for row in rows)


def json_lines(text: str) -> list[Any]:
    """Returns the JSON value on each line of a text."""
    return [json.loads(line) for line in text.splitlines()]


def table(*columns: str, title: str | None = None) -> "Table":
    """Returns an empty table without lines."""
    from rich.table import Table

    return Table(*columns, title=title, title_justify="left", box=None)


def show(*tables: "Table") -> None:
    """Prints tables, an empty line after each but the last."""
    from rich.console import Console

    console = Console(width=WIDTH, markup=False)
    for index, rows in enumerate(tables):
        if index:
            console.print()
        console.print(rows)


def override_words(changes: Iterable[str]) -> list[str]:
    """Returns the words of a command that make changes: `--set` before each."""
    words = []
    for change in changes:
        words += ["--set", change]
    return words


# ---- Time


def seconds_of(work: Callable[[], object]) -> float:
    """Returns the time that work takes on the clock."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def ended(process: "subprocess.Popen[Any]", seconds: float, patience: float = 0.0) -> int:
    """Waits for a process, and ends it after some time.

    Args:
        process: What is waited for.
        seconds: The most that it may take.
        patience: What it may take more, once it is interrupted as by Ctrl-C, s. Without it is
            killed at once.

    Returns:
        Its exit code.
    """
    signals = [signal.SIGINT, signal.SIGKILL] if patience else [signal.SIGKILL]
    for number in signals:
        try:
            return process.wait(max(1.0, seconds))
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            seconds = patience
    return process.wait()


# ---- Programs that take turns


def under_jax(**changes: str) -> dict[str, str]:
    """Returns the environment of a process that uses JAX and the packages of this tree."""
    path = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
    return os.environ | {"KERAS_BACKEND": "jax", "PYTHONPATH": path} | changes


def isolated(packages: Sequence[str]) -> list[str]:
    """Returns the command of a Python with `packages` alone, in an environment that uv creates."""
    uv = str(BENCH.parent / "uv")
    command = [uv, "run", "--no-project", "--isolated", "--python", "3.11"]
    for package in packages:
        command += ["--with", package]
    return [*command, "python"]


def environment(packages: Sequence[str], module: str) -> list[str]:
    """Returns `isolated(packages)` once `module` can be imported there; ends this program with one
    line if not.
    """
    command = isolated(packages)
    tried = subprocess.run(
        [*command, "-c", f"import {module}"], stderr=subprocess.PIPE, text=True, check=False
    )
    if tried.returncode:
        end_without(packages[0], tried.stderr, f"{module} cannot be imported")
    return command


def end_without(package: str, output: str, reason: str) -> NoReturn:
    """Ends this program with one line: the environment of `package` cannot be made.

    Args:
        output: What the program has printed that makes it; its last line says why.
        reason: Why, if there is no output.
    """
    for line in output.splitlines():
        if line.strip() and not line.strip().startswith("hint:"):
            reason = line.strip()
    print(
        f"this bench needs {package} and was not run: its environment cannot be made: {reason}",
        file=sys.stderr,
    )
    raise SystemExit(2)


def start(command: Sequence[object]) -> "subprocess.Popen[str]":
    """Starts a program for `ask`; the threads of its libraries are its own matter."""
    environment = dict(os.environ)
    environment.pop("VIRTUAL_ENV", None)
    environment |= {"MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def ask(process: "subprocess.Popen[str]", request: Mapping[str, object]) -> dict[str, Any]:
    """Returns the answer of a program to a JSON object on a line; ends this one if it has ended."""
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise SystemExit(f"{process.args!r} ended: {process.wait()}")
    return dict(json.loads(answer))
