"""The text of a configuration, or what may have been meant by a file that is missing."""

import difflib
from pathlib import Path

from namsa.base.errors import InputError
from namsa.base.files import read_text

_MOST_FILES = 8  # of a folder that a message names


def configuration_text(path: Path, largest_bytes: int) -> str:
    """Returns the text of a configuration. The error of one that is missing names files like it.

    Raises:
        InputError: If it cannot be read or is too large.
    """
    try:
        return read_text(path, largest_bytes=largest_bytes, kind="the configuration")
    except InputError as error:
        if path.exists():
            raise
        there = sorted(file.name for file in path.parent.glob("*.y*ml"))
        folder = "this folder" if path.parent == Path() else str(path.parent)
        alike = difflib.get_close_matches(path.name, there, n=1)
        if alike:
            remedy = f"did you mean {path.parent / alike[0]}?"
        elif there:
            remedy = f"{folder} has {', '.join(there[:_MOST_FILES])}"
        else:
            remedy = "give the path of a .yaml file; `namsa init DIR` writes some to begin with"
        raise InputError(f"{error}: {remedy}") from None
