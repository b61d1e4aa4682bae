"""What may have been meant by the name of a file that is missing."""

import difflib
import itertools
import os
from pathlib import Path

from namsa.base.errors import InputError
from namsa.base.text import shorten

_MOST_FILES = 1000  # of a folder that are compared


def no_file(path: Path) -> InputError:
    """Returns the error for a file that is missing, which names the one that was probably meant."""
    return InputError(f"there is no file {shorten(str(path), 300)}{likely_file(path)}")


def likely_file(path: Path) -> str:
    """Returns which file was probably meant by one that is missing, as a question behind a message.

    That is a file of the same name in a folder of the current folder, or else one of a similar name
    and the same ending beside it; empty if there is neither.
    """
    for folder in _entries(Path()):
        file = folder / path.name
        if folder.is_dir() and os.path.isfile(file):
            return f"; did you mean {file}? Names of files begin in the current folder"
    names = []
    for file in _entries(path.parent):
        if file.suffix.lower() == path.suffix.lower() and not file.is_dir():
            names.append(file.name)
    alike = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean {path.parent / alike[0]}?" if alike else ""


def _entries(folder: Path) -> list[Path]:
    """Returns what a folder has, in the order of the names, but for what is hidden; nothing if it
    cannot be listed.
    """
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in itertools.islice(entries, _MOST_FILES))
    except (OSError, ValueError):  # a name with a null byte is none
        return []
    return [folder / name for name in names if not name.startswith(".")]
