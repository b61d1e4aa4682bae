"""Counters of the kernel: the bytes that a process asks files for, and those that it fetches from
the disk for them.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def _counters() -> dict[str, int]:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    counts = {}
    for line in lines:
        name, value = line.split(": ")
        counts[name] = int(value)
    return counts


@contextmanager
def read_counts() -> Iterator[dict[str, int]]:
    """Yields a dictionary that has, after the context, `asked` and `fetched`, of this process."""
    first = _counters()
    second = _counters()
    of_counting = second["rchar"] - first["rchar"]
    counts: dict[str, int] = {}
    yield counts
    third = _counters()
    counts["asked"] = third["rchar"] - second["rchar"] - of_counting
    counts["fetched"] = third["read_bytes"] - second["read_bytes"]


def evict(path: Path) -> None:
    """Removes a file's pages from the page cache."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)
