"""Outputs of several files: a folder is as before or as it shall be, whenever the writing ends.

A new folder is written under a hidden name and renamed. The files of a folder that has others, too,
are switched together in three steps, of which a crash may end each:

1. They are written to `.new.HEX` in the folder. Until they are complete, the folder is as before.
2. `.new.HEX` becomes `.switch`. From here on the folder is as it shall be: what is left of the
   switch is done by the next command that calls `finish_switch` or `open_folder`.
3. The key file, which makes the others usable, is removed; the others take their places; the new
   key file takes its own. In between there is none, so that no program takes files of two outputs.
"""

import json
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from filecmp import cmp
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.base.errors import InputError
from namsa.base.files import make_folder, sync_folder, system_errors
from namsa.base.interrupts import uninterrupted
from namsa.base.json_files import parse_typed
from namsa.base.leftovers import hidden_name, remove_leftovers
from namsa.base.locks import exclusive

HIDDEN = ".new."  # how the names of folders begin that `open_folder` makes
SWITCH = ".switch"  # the folder of files that are complete, and not all in their places
PLAN = ".plan.json"  # in SWITCH
LOCK = ".switch.lock"
_REMOVE = f"remove {SWITCH}, and run the command again"
REMEDY = "wait until it ends, or name another folder"


def _check_plain(name: str) -> str:
    """Returns a name without a folder. Raises ValueError if it has one."""
    if name in ("", ".", "..") or Path(name).name != name:
        raise ValueError("a file's name has no folder")
    return name


_FileName = Annotated[str, AfterValidator(_check_plain)]


class _Plan(TypedDict):
    """The contents of PLAN."""

    key_file: _FileName | None
    remove: list[_FileName]


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yields a hidden folder of a new name beside `path`, which becomes `path` when the `with`
    block has ended.

    If another process has made `path` meanwhile, and with the same contents, that one stays.

    Raises:
        InputError: If there is something at `path` other than an empty folder, or another process
            writes it.
        WorkError: If the folder cannot be written.
    """
    _check_absent(path)
    temporary = hidden_name(path)
    make_folder(path.parent)
    lock = path.with_name(f".{path.name}.lock")
    try:
        with exclusive(lock, path, REMEDY), system_errors(f"cannot write {path}"):
            _check_absent(path)  # another process may have made it while this one waited
            remove_leftovers(path)
            temporary.mkdir()
            yield temporary
            _take_place(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@uninterrupted
def _take_place(temporary: Path, path: Path) -> None:
    """Gives a folder its name."""
    with suppress(FileNotFoundError, OSError):
        path.rmdir()
    try:
        temporary.rename(path)
    except OSError:
        if not _same_contents(temporary, path):
            _check_absent(path)
            raise
    sync_folder(path.parent)


def _check_absent(path: Path) -> None:
    """Raises InputError if there is anything at a path but an empty folder."""
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_dir() or any(path.iterdir()):
        raise InputError(f"{path} is there already: remove it, or name another with --out")


def _same_contents(one: Path, other: Path) -> bool:
    """Returns whether two folders have the same files with the same contents."""
    names = _files(one)
    if not other.is_dir() or names != _files(other):
        return False
    return all(cmp(one / name, other / name, shallow=False) for name in names)


def _files(folder: Path) -> list[Path]:
    """Returns the files in a folder and its folders, by their paths from there."""
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


@contextmanager
def open_folder(
    path: Path, *, key_file: str | None = None, obsolete: Collection[str] = ()
) -> Iterator[Path]:
    """Yields a hidden folder within `path`, whose files take their places in `path` together when
    the `with` block has ended.

    Args:
        path: The folder; created if it is missing. Files of other names stay.
        key_file: The file without which no program uses the others. It is removed first and
            written last.
        obsolete: Names of files that belong to an earlier output. They are removed unless they are
            written again.

    Raises:
        InputError: If another process writes to the folder.
        WorkError: If a file cannot be written.
    """
    make_folder(path)
    temporary = hidden_name(path / HIDDEN[1:-1])
    try:
        with exclusive(path / LOCK, path, REMEDY), system_errors(f"cannot write to {path}"):
            _finish(path)
            remove_leftovers(path / HIDDEN[1:-1])
            temporary.mkdir()
            yield temporary
            _sync_files(temporary)
            _switch(temporary, path, key_file, obsolete)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def finish_switch(path: Path) -> None:
    """Completes a switch of files in a folder that a crash has ended. Whoever reads files that
    `open_folder` has written calls it before.

    Raises:
        InputError: If another process switches them for longer than a lock is waited for.
        WorkError: If the folder cannot be written.
    """
    if os.path.lexists(path / SWITCH):
        with exclusive(path / LOCK, path, REMEDY), system_errors(f"cannot write to {path}"):
            _finish(path)


def _sync_files(folder: Path) -> None:
    """Flushes the files in a folder and its folders to the disk."""
    for name in _files(folder):
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())


@uninterrupted
def _switch(temporary: Path, path: Path, key_file: str | None, obsolete: Collection[str]) -> None:
    """Switches the files of a folder to those in another, which are complete."""
    new = {entry.name for entry in temporary.iterdir()}
    plan = {"key_file": key_file, "remove": sorted(set(obsolete) - new)}
    with (temporary / PLAN).open("x", encoding="utf-8") as file:
        json.dump(plan, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path / SWITCH)
    sync_folder(path)
    _finish(path)


def _finish(path: Path) -> None:
    """Brings the files of a switch to their places; the caller holds the lock."""
    switch = path / SWITCH
    if not os.path.lexists(switch):
        return
    if switch.is_symlink():
        raise InputError(f"{switch} is a link, which is not followed: remove it")
    if not os.path.lexists(switch / PLAN):  # it is removed last, but for the folder
        shutil.rmtree(switch)
        return
    plan = parse_typed(
        _Plan, (switch / PLAN).read_text(encoding="utf-8"), str(switch / PLAN), _REMOVE
    )
    key_file = plan["key_file"]
    if key_file is not None and os.path.lexists(switch / key_file):
        (path / key_file).unlink(missing_ok=True)
        sync_folder(path)
    for name in plan["remove"]:
        (path / name).unlink(missing_ok=True)
    for file in sorted(switch.iterdir()):
        if file.name not in (PLAN, key_file):
            file.replace(path / file.name)
    sync_folder(path)
    if key_file is not None and os.path.lexists(switch / key_file):
        (switch / key_file).replace(path / key_file)
        sync_folder(path)
    shutil.rmtree(switch)
