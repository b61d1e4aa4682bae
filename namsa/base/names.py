"""Names of samples and materials. They become names of files, and so may hold nothing that leads
out of a folder.
"""

import re
from pathlib import Path

from namsa.base.errors import InputError
from namsa.base.text import shorten

# bytes in UTF-8; with a prefix and an ending a file's name fits the 255 that file systems allow
LONGEST = 200
ALPHABET = "letters, digits and _ . + - only, no . in front, 200 bytes at most"
_NAME = re.compile(r"[\w+-][\w.+-]*")


def portable_path(place: Path | str) -> str:
    """Returns how a file that others may read names a path, without the folders of this machine.

    Returns:
        A relative path, or a text that is none, as it is; an absolute path from the current folder,
        if it lies there, else its name alone.
    """
    path = Path(place)
    if not path.is_absolute():
        return str(place)
    if path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return path.name


def is_name(value: object) -> bool:
    """Returns whether a value may name a sample or a material: `ALPHABET` says which may."""
    return (
        isinstance(value, str) and bool(_NAME.fullmatch(value)) and len(value.encode()) <= LONGEST
    )


def check_name(value: object, source: str, remedy: str = "") -> str:
    """Returns a value that may name a sample or a material.

    Args:
        source: What it names, or where it was read, for the message: "a sample of
            data/manifest.jsonl".

    Raises:
        InputError: If it may not.
    """
    if not is_name(value):
        way_out = f": {remedy}" * bool(remedy)
        raise InputError(
            f"{source} is named {shorten(repr(value))}{way_out}; a name has {ALPHABET}"
        )
    return str(value)
