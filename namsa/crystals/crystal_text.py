"""The text of a crystal's file, or what may have been meant by a file that is missing."""

import os
from pathlib import Path

from namsa.base.errors import InputError
from namsa.base.files import read_text
from namsa.base.missing_files import likely_file


def crystal_text(path: Path, largest_bytes: int) -> str:
    """Returns the text of a crystal's file; bytes that are not UTF-8 become a replacement
    character.

    Raises:
        InputError: If it cannot be read or is too large. For one that is missing, it names the file
            that was probably meant.
    """
    try:
        return read_text(path, largest_bytes=largest_bytes, kind="the crystal", errors="replace")
    except InputError as error:
        if os.path.lexists(path):
            raise
        raise InputError(f"{error}{likely_file(path)}") from None
