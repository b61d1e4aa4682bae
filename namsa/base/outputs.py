"""Checks of the places that a command writes to, before its work."""

import os
from collections.abc import Iterable
from pathlib import Path

from namsa.base.errors import InputError
from namsa.base.text import shorten

# bytes; with what marks an unfinished file it fits the 255 of file systems
LONGEST_OUTPUT_NAME = 200


def check_outputs(
    folder: Path, names: Iterable[str], inputs: Iterable[Path], option: str = "--out"
) -> None:
    """Refuses a folder whose files of these names would replace an input; arguments as
    `check_output`.

    Raises:
        InputError: If it does, if `folder` is a file, or if a folder has one of the names.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{option} {shorten(str(folder), 300)} is a file: name a folder")
    inputs = list(inputs)
    for name in names:
        option_of_name = f"{option} {shorten(str(folder), 300)}:"
        check_output(folder / name, inputs, option_of_name, makes_folders=True)


def check_output(
    path: Path, inputs: Iterable[Path] = (), option: str = "--out", *, makes_folders: bool = False
) -> None:
    """Refuses a place to write to before the work, if no file can be written there or if it would
    replace an input.

    Args:
        inputs: What is read, in other places than `path`, also by another name of the same file.
        option: What named the file, for the message.
        makes_folders: Whether folders that are missing will be made.

    Raises:
        InputError: If `path` is no file's name, is a folder, is one of the inputs, or is in a
            folder that is missing or cannot be written to.
    """
    shown = f"{option} {shorten(str(path), 300)}"
    if path.name in ("", "..") or len(os.fsencode(path.name)) > LONGEST_OUTPUT_NAME:
        raise InputError(
            f"{shown} does not end in a file's name of 1 to {LONGEST_OUTPUT_NAME} bytes"
        )
    if os.path.isdir(path):
        raise InputError(f"{shown} is a folder: name a file")
    for other in inputs:
        if os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other):
            raise InputError(
                f"{shown} would replace {shorten(str(other), 300)}, which is read: choose another "
                "name"
            )
    _check_writable(path.absolute().parent, shown, makes_folders)


def _check_writable(folder: Path, shown: str, makes_folders: bool) -> None:
    """Raises InputError if no file can be written to a folder."""
    if not makes_folders and not os.path.lexists(folder):
        raise InputError(
            f"{shown}: there is no folder {shorten(str(folder), 300)}: make it, or name another one"
        )
    there = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):
        raise InputError(
            f"{shown}: {shorten(str(there), 300)} is no folder that can be written to: name "
            "another one"
        )
