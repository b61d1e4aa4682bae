"""One command for many scans: each to a file of its own in a folder, a table at the end.

A scan that fails does not stop the others. `scans.json` in the folder says of each scan what its
result was made of: the contents of its files, the options and the version, and for a network its
weights. A scan whose result is there and was made of the same is skipped by the next run.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from namsa.base.errors import InputError
from namsa.base.files import make_folder, write_text_atomic
from namsa.base.identity import digest_of, digest_of_file
from namsa.base.json_files import read_json
from namsa.base.locks import exclusive
from namsa.base.text import plural, printable, shorten
from namsa.base.version import __version__
from namsa.cli.command_line import fault_line
from namsa.cli.commands.output import print_json, print_line, print_table

RECORD = "scans.json"
FORMAT = "namsa scans 1"
SIDECARS = (".hdr", ".xml", ".emi")  # of the same name, which readers take beside a scan
# `made_of` has the networks
NOT_SETTINGS = ("data", "out", "run", "json", "checkpoint", "estimator")
FAILED = 1  # exit code where some scans failed
MOST_NAMED = 3  # scans in one line


@dataclass(frozen=True)
class ScanState:
    """The outcome of one scan.

    Attributes:
        scan: Name of its file.
        state: "done", "skipped" or "failed".
        seconds: Time that it took.
        result: Name of the result, or why there is none.
        made_of: Digest of all that the result follows from.
        contents: Digest of the result.
    """

    scan: str
    state: str
    seconds: float
    result: str
    made_of: str
    contents: str


def is_for_many(paths: Sequence[Path], out: Path | None) -> bool:
    """Returns whether `--out` is a folder for the results of scans: for more than one scan, and for
    a folder that has such results already.
    """
    return len(paths) > 1 or (out is not None and (out / RECORD).is_file())


def treat_scans(
    options: argparse.Namespace,
    paths: Sequence[Path],
    suffix: str,
    work: Callable[[argparse.Namespace], object],
    made_of: Mapping[str, object],
) -> int:
    """Does the work for each scan that has no result yet; returns the exit code.

    Args:
        options: The command's options; `out` is the folder.
        suffix: That of the results, empty for folders.
        work: Takes the options of one scan, with its `data` and `out`, and writes the result.
        made_of: What results follow from beside the data and the options, in JSON types.

    Raises:
        InputError: If two scans have one name, the folder cannot be written, or another process
            writes to it.
    """
    folder = options.out
    if folder is None:
        raise InputError(
            f"{len(paths)} scans are given: name a folder for their results with --out"
        )
    if os.path.lexists(folder) and not folder.is_dir():
        raise InputError(f"--out {folder} is a file, and {len(paths)} scans take a folder")
    outputs = _outputs(paths, folder, suffix)
    make_folder(folder)
    remedy = "wait for it, or name another folder"
    with exclusive(folder / f".{RECORD}.lock", folder, remedy):
        known = _read_record(folder / RECORD)
        settings = digest_of({"settings": _settings(options), "version": __version__, **made_of})
        states: list[ScanState] = []
        for index, (data, out) in enumerate(zip(paths, outputs, strict=True), start=1):
            print_line(f"[{index}/{len(paths)}] {data}")
            state = _treated(options, data, out, settings, known.get(out.name), work)
            states.append(state)
            if state.state != "failed":
                known[out.name] = {"made_of": state.made_of, "contents": state.contents}
                _write_record(folder / RECORD, known)
    _print(states, bool(getattr(options, "json", False)))
    failed = [state.scan for state in states if state.state == "failed"]
    return FAILED if failed else 0


def _treated(
    options: argparse.Namespace,
    data: Path,
    out: Path,
    settings: str,
    known: Mapping[str, object] | None,
    work: Callable[[argparse.Namespace], object],
) -> ScanState:
    """Does the work for one scan, unless its result is there."""
    start = time.monotonic()
    made_of = ""
    try:
        if os.path.realpath(out) == os.path.realpath(data):
            raise InputError(f"{out} is the scan itself: name another folder with --out")
        made_of = digest_of({"settings": settings, "data": _contents(files_of(data, out.parent))})
        if known is not None and known.get("made_of") == made_of and os.path.lexists(out):
            contents = _contents([out])
            if contents == known.get("contents"):
                return ScanState(data.name, "skipped", 0.0, out.name, made_of, contents)
        work(argparse.Namespace(**vars(options) | {"data": data, "out": out}))
        seconds = round(time.monotonic() - start, 1)
        return ScanState(data.name, "done", seconds, out.name, made_of, _contents([out]))
    except BaseException as error:
        line = fault_line(error)
        if line is None:  # an interrupt, or the program's end
            raise
        print_line(line, sys.stderr)
        seconds = round(time.monotonic() - start, 1)
        return ScanState(data.name, "failed", seconds, line.removeprefix("error: "), made_of, "")


def files_of(data: Path, results: Path) -> list[Path]:
    """Returns the files that a scan is read from, in the order of their names.

    Args:
        results: The folder of the results, whose record is none of them.
    """
    if not os.path.lexists(data) and any(mark in data.name for mark in "*?["):
        return _regular(data.parent.glob(data.name))
    if data.is_dir():
        return _regular(data.rglob("*"))
    base = data.stem.removesuffix("_movie").removesuffix("_master")
    beside = [data.with_suffix(suffix) for suffix in SIDECARS]
    beside += [path.with_suffix(path.suffix.upper()) for path in beside]
    beside.append(data.with_name(f"{base}_info.txt"))
    if data.stem.endswith("_master"):
        beside += data.parent.glob(f"{base}_data_*")
    return [data, *_regular({*beside} - {data})]


def _regular(paths: Iterable[Path]) -> list[Path]:
    """Returns the paths that are files, in the order of their names."""
    return sorted(path for path in paths if path.is_file())


def _contents(paths: Sequence[Path]) -> str:
    """Returns the digest of files and of the files in folders."""
    digests = []
    for path in paths:
        files = [path]
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file())
        digests += [digest_of_file(file) for file in files]
    return digest_of(digests)


def _settings(options: argparse.Namespace) -> dict[str, object]:
    """Returns the options that change a result; files stand by their contents."""
    settings: dict[str, object] = {}
    for name, value in vars(options).items():
        if name in NOT_SETTINGS or callable(value):
            continue
        if isinstance(value, Path):
            settings[name] = _contents([value]) if value.exists() else str(value)
        else:
            settings[name] = value if isinstance(value, int | float | str) else repr(value)
    return settings


def _outputs(paths: Sequence[Path], folder: Path, suffix: str) -> list[Path]:
    """Returns the result of each scan; no two are the same."""
    scans: dict[str, Path] = {}
    for path in paths:
        name = f"{path.resolve().name if path.is_dir() else path.stem}{suffix}"
        if not name.removesuffix(suffix) or name == RECORD:
            raise InputError(f"{path} has no name that its result can have: rename it")
        if name in scans:
            raise InputError(
                f"{scans[name]} and {path} would both be written to {folder / name}: give them in "
                "two runs with two folders"
            )
        scans[name] = path
    return [folder / name for name in scans]


def _read_record(path: Path) -> dict[str, dict[str, object]]:
    """Returns what results were made of, by their names; nothing for a record that is not whole,
    whose scans are done again.
    """
    if not path.is_file():
        return {}
    try:
        values = read_json(path)
    except InputError:
        return {}
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        return {}
    scans = values.get("scans")
    if not isinstance(scans, dict):
        return {}
    return {name: value for name, value in scans.items() if isinstance(value, dict)}


def _write_record(path: Path, known: Mapping[str, Mapping[str, object]]) -> None:
    write_text_atomic(path, json.dumps({"format": FORMAT, "scans": known}, indent=1) + "\n")


def _print(states: Sequence[ScanState], as_json: bool) -> None:
    """Prints the table of all scans, and what was skipped and failed."""
    if as_json:
        print_json([asdict(state) for state in states])
        return
    rows = []
    skipped = []
    failed = 0
    for state in states:
        result = printable(shorten(state.result, 300))
        rows.append((printable(state.scan), state.state, f"{state.seconds:g} s", result))
        if state.state == "skipped":
            skipped.append(state.scan)
        failed += state.state == "failed"
    print_table(rows, ("scan", "state", "time", "result"))
    if skipped:
        more = ", ..." if len(skipped) > MOST_NAMED else ""
        print_line(
            f"{plural(len(skipped), 'scan')} skipped, whose results were made of the same data and "
            f"options: {', '.join(skipped[:MOST_NAMED])}{more}; remove a result to make it again"
        )
    if failed:
        print_line(f"{plural(failed, 'scan')} failed; the same command does them again")
