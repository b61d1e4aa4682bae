"""Commands that are stopped at any of their file events lose nothing, and end well when they are
run again.

EVERY_EVENT=1 stops at each, with every signal; otherwise it is at some, with two.

An event is the opening of a file for writing, or a change of a folder: what Python's audit hooks
report. A command runs in a child of this process, which sends itself the signal just before its
event.
"""

import contextlib
import hashlib
import importlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import fake_samples
import numpy as np
import pytest
import yaml

from namsa.base.folders import SWITCH
from namsa.cli.commands import examples
from namsa.cli.parser import main
from namsa.config.simulation import load_config
from namsa.crystals.select import select_materials

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
SIGNALS = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT")


@dataclass(frozen=True)
class Command:
    """A command line whose files are looked at.

    Attributes:
        words: The command's words.
        prepare: Makes the inputs, and outputs of an earlier run, in a folder.
        main: Runs words and returns the exit code.
        outputs: Names, within the folder, of what it writes; whole, or as before, at any instant.
            Of a folder, each file.
    """

    words: tuple[str, ...]
    prepare: Callable[[Path], None]
    main: Callable[[list[str]], int]
    outputs: tuple[str, ...]


def run(
    command: Command, folder: Path, stop_at: int | None = None, name: str = "SIGKILL"
) -> tuple[int, int]:
    """Runs a command in a folder until an event.

    Returns:
        The exit code, negative for a signal, and the number of events up to the end.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _be_child(command, folder, stop_at, signal.Signals[name], writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        events = len(pipe.read())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), events


def _be_child(
    command: Command, folder: Path, stop_at: int | None, signal_number: int, writer: int
) -> None:
    code = 99
    with contextlib.suppress(BaseException):
        os.chdir(folder)
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        for name in SIGNALS[1:]:
            signal.signal(
                signal.Signals[name],
                signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL,
            )
        count = 0

        def hook(event: str, arguments: tuple) -> None:
            nonlocal count
            opens = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
            if arguments and isinstance(arguments[0], str | bytes):
                place = os.fsdecode(arguments[0])
            else:
                place = ""
            elsewhere = os.path.isabs(place) and not place.startswith(os.fspath(folder))
            if (opens or event in CHANGES) and not elsewhere:
                count += 1
                os.write(writer, b".")
                if count == stop_at:
                    os.kill(os.getpid(), signal_number)

        sys.addaudithook(hook)
        code = command.main(list(command.words))
    os._exit(code)


def contents(folder: Path) -> dict[str, bytes]:
    """Returns all files of a folder, by their paths within it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def faults(command: Command, name: str, events: Callable[[int], Iterator[int]]) -> Iterator[str]:
    """Yields what is wrong after a stop.

    Args:
        command: The command.
        name: The signal.
        events: Returns the events to stop at, from 1 to their number.
    """
    with tempfile.TemporaryDirectory() as base:
        start = Path(base, "start")
        undisturbed = Path(base, "whole")
        start.mkdir()
        command.prepare(start)
        shutil.copytree(start, undisturbed)
        code, count = run(command, undisturbed)
        if code:
            yield f"{command.words}: exit code {code} without a stop"
            return
        before = contents(start)
        after = contents(undisturbed)
        inputs = {}
        for path, data in before.items():
            if not _is_output(path, command):
                inputs[path] = data
        for event in events(count):
            place = Path(base, "stopped")
            shutil.copytree(start, place)
            code, _ = run(command, place, event, name)
            if not code:  # threads make other numbers of events
                shutil.rmtree(place)
                continue
            described = f"{' '.join(command.words)}, {name} at event {event} of {count}"
            left = contents(place)
            yield from _faults(described, inputs, before, after, left, command)
            code, _ = run(command, place)
            again = contents(place)
            if code:
                yield f"{described}: the same command then ends with {code}"
            elif lost := [
                path for path in after if _is_output(path, command) and path not in again
            ]:
                yield f"{described}: the same command then lacks {lost}"
            shutil.rmtree(place)


def _is_output(path: str, command: Command) -> bool:
    return any(path == output or path.startswith(f"{output}/") for output in command.outputs)


def _faults(
    described: str,
    inputs: Mapping[str, bytes],
    before: Mapping[str, bytes],
    after: Mapping[str, bytes],
    left: Mapping[str, bytes],
    command: Command,
) -> Iterator[str]:
    for path, data in inputs.items():
        if left.get(path) != data:
            yield f"{described}: the input {path} is changed or gone"
    for path, data in left.items():
        hidden = any(name_part.startswith(".") for name_part in Path(path).parts) or path.endswith(
            ".unfinished"
        )
        if hidden or path in inputs:
            continue
        if not _is_output(path, command):
            yield f"{described}: {path} is left"
        elif data != before.get(path) and len(data) < 0.9 * len(after.get(path, b"")):
            yield f"{described}: {path} is half a file, {len(data)} of {len(after[path])} bytes"
    for path in before:
        # in a switch of several files the new one waits, complete, for the next command
        waiting = str(Path(path).parent / SWITCH / Path(path).name)
        if _is_output(path, command) and path not in left and waiting not in left:
            yield f"{described}: the earlier {path} is gone"


BEAM = [
    "--energy-ev",
    "200e3",
    "--semiangle-mrad",
    "4",
    "--pixel-mrad",
    "1.5",
    "--scan-step-angstrom",
    "0.5",
]
SIMULATION = {
    "materials": {"builtin": ["Al-225-cF4"]},
    "simulation": {"grid_shape": [32, 32], "slice_thickness_angstrom": 2.0},
    "detector": {"shape": [8, 8]},
    "scan": {"shape": [3, 4]},
    "specimen": {"thickness_angstrom": [4], "lateral_angstrom": [5, 5]},
}
EXAMPLE = examples.Example("scan.bin", 9, hashlib.sha256(bytes(9)).hexdigest(), *("",) * 4)
EXPORTS = {
    "ptyrad": ("patterns.h5", "first.h5", "ptyrad.yaml"),
    "phaser": ("patterns.h5", "first.h5", "phaser.yaml"),
    "py4dstem": ("patterns.h5", "parameters.json", "reconstruct.py"),  # and quantem
    "zspy": ("scan.zspy",),
}


def write_scan(folder: Path, seed: int = 0) -> None:
    np.save(
        folder / "scan.npy",
        np.random.default_rng(seed).poisson(9.0, (3, 4, 8, 8)).astype(np.uint16),
    )


def export(program: str) -> Command:
    out = "scan.zspy" if program == "zspy" else "."
    words = ("export", "scan.npy", "--to", program, "--out", out, *BEAM)
    words += () if program == "zspy" else ("--defocus-angstrom", "80")

    def prepare(folder: Path) -> None:
        write_scan(folder)
        if program != "zspy":  # beside those of an earlier scan
            write_scan(folder, seed=1)
            assert not main(
                ["export", str(folder / "scan.npy"), *words[2:5], str(folder), *words[6:]]
            )
            write_scan(folder)

    return Command(words, prepare, main, EXPORTS[program])


def write_config(folder: Path) -> None:
    (folder / "c.yaml").write_text(yaml.safe_dump(SIMULATION))
    load_config(folder / "c.yaml")  # what is imported here need not be in each child
    importlib.import_module("namsa.cli.commands.simulate")
    select_materials(load_config(folder / "c.yaml").materials)


def write_dataset(folder: Path) -> None:
    fake_samples.produce(folder / "data", settings=fake_samples.config(**SIMULATION))


def write_example(folder: Path) -> None:
    (folder / "source").mkdir()
    (folder / "source" / EXAMPLE.name).write_bytes(bytes(EXAMPLE.bytes))


def main_with_example(words: list[str]) -> int:
    examples.EXAMPLES = (EXAMPLE,)  # of the child
    return main(words)


COMMANDS = {
    **{program: export(program) for program in EXPORTS},
    "simulate": Command(
        ("simulate", "c.yaml", "--out", "cell.h5"), write_config, main, ("cell.h5", "cell.png")
    ),
    "export": Command(("export", "data", "--out", "data.h5"), write_dataset, main, ("data.h5",)),
    "show": Command(("show", "data", "--out", "page.html"), write_dataset, main, ("page.html",)),
    "init": Command(("init", "new"), lambda folder: None, main, ("new",)),
    "examples": Command(
        ("examples", "fetch", "scan.bin", "--from", "source"),
        write_example,
        main_with_example,
        ("scan.bin",),
    ),
}


SLOW = ("simulate", "show", "zspy")  # import Matplotlib or Zarr in each child


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in COMMANDS]
)
def test_a_stop_at_some_events_loses_nothing(name):
    rng = np.random.default_rng(len(name))
    every = "EVERY_EVENT" in os.environ

    def chosen(count: int) -> list[int]:
        return sorted(
            int(event)
            for event in rng.choice(count, count if every else min(3, count), replace=False) + 1
        )

    for signal_name in SIGNALS if every else SIGNALS[:2]:
        assert not list(faults(COMMANDS[name], signal_name, chosen))
