"""Files beside a file: the same name with another suffix, in small letters or in capitals as
Windows has it.
"""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

MOST_ENTRIES = 200_000  # of a folder


def sibling(path: Path, suffix: str) -> Path | None:
    """Returns the file beside `path` that has its name and another suffix; `None` if there is
    none.
    """
    named = path.with_suffix(suffix)
    if named.is_file():
        return named
    for other in siblings(path, suffix):
        if other.name.lower() == named.name.lower():
            return other
    return None


def siblings(path: Path, suffix: str) -> Iterator[Path]:
    """Yields the files in the folder of `path` that end in a suffix, in small letters or in
    capitals.
    """
    try:
        with os.scandir(path.parent) as entries:
            names = sorted(
                entry.name
                for entry in islice(entries, MOST_ENTRIES)
                if entry.name.lower().endswith(suffix)
            )
    except OSError:
        return
    yield from (other for name in names if (other := path.parent / name).is_file())
