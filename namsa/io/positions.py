"""Reading at a position of an open file, by several threads at once."""

import os
import threading
from typing import BinaryIO

_TURNS = threading.Lock()  # where a file has one position for all threads


def read_at(file: BinaryIO, size: int, offset: int) -> bytes:
    """Returns bytes at an offset; fewer where the file ends. The file's position may change.

    Raises:
        OSError: If the system cannot read them.
    """
    if hasattr(os, "pread"):
        return os.pread(file.fileno(), size, offset)
    with _TURNS:  # Windows
        file.seek(offset)
        return file.read(size)
