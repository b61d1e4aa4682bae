"""Names of samples and materials. They become names of files, and so may hold nothing that leads out of a folder."""

import re

from namsa.errors import InputError
from namsa.text import shorten

LONGEST = 200  # bytes in UTF-8; with a prefix and an ending a file's name fits the 255 that file systems allow
ALPHABET = "letters, digits and _ . + - only, no . in front, 200 bytes at most"
_NAME = re.compile(r"[\w+-][\w.+-]*")


def is_name(value: object) -> bool:
    """Returns whether a value may name a sample or a material: `ALPHABET` says which may."""
    return isinstance(value, str) and bool(_NAME.fullmatch(value)) and len(value.encode()) <= LONGEST


def check_name(value: object, source: str, remedy: str = "") -> str:
    """Returns a value that may name a sample or a material.

    Args:
        source: What it names, or where it was read, for the message: "a sample of data/manifest.jsonl".

    Raises:
        InputError: If it may not.
    """
    if not is_name(value):
        way_out = f": {remedy}" * bool(remedy)
        raise InputError(f"{source} is named {shorten(repr(value))}{way_out}; a name has {ALPHABET}")
    return str(value)
