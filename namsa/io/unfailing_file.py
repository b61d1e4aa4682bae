"""A file for the HDF5 library to write to, which crashes when it closes a file that a full disk has
cut off.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import h5py

from namsa.base.interrupts import uninterrupted


class UnfailingFile:
    """Tells HDF5 that all is written, and keeps the error for the caller to raise.

    It has what h5py asks of a Python file. No signal interrupts its methods: HDF5, which calls
    them, would make another error of that.

    Args:
        file: A file, open for reading and writing without a buffer.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._descriptor = file.fileno()
        self._position = 0
        self._size = os.fstat(self._descriptor).st_size
        self._error: OSError | None = None

    @uninterrupted
    def fileno(self) -> int:
        """Returns the file's descriptor."""
        return self._descriptor

    def check(self) -> None:
        """Raises the first error of the system, if there was one."""
        if self._error is not None:
            raise self._error

    @uninterrupted
    def write(self, data: memoryview) -> int:
        """Writes at the position."""
        view = memoryview(data).cast("B")
        start = self._position
        length = len(view)
        self._position += length
        self._size = max(self._size, self._position)
        try:
            while view and self._error is None:
                os.lseek(self._descriptor, start, os.SEEK_SET)  # Windows has no pwrite
                written = os.write(self._descriptor, view)
                start = start + written
                view = view[written:]
        except OSError as error:
            self._error = error
        return length

    @uninterrupted
    def read(self, size: int) -> bytes:
        """Returns bytes at the position, as `readinto`; by this method h5py knows a file."""
        data = bytearray(size)
        self.readinto(memoryview(data))
        return bytes(data)

    @uninterrupted
    def readinto(self, buffer: memoryview) -> int:
        """Reads at the position; what could not be written is zero."""
        view = memoryview(buffer).cast("B")
        os.lseek(self._descriptor, self._position, os.SEEK_SET)
        data = os.read(self._descriptor, len(view))
        view[:] = data.ljust(len(view), b"\0")
        self._position += len(view)
        return len(view)

    @uninterrupted
    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves the position."""
        self._position = (
            offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        )
        return self._position

    @uninterrupted
    def tell(self) -> int:
        """Returns the position."""
        return self._position

    @uninterrupted
    def truncate(self, size: int | None = None) -> int:
        """Sets the size of the file."""
        self._size = self._position if size is None else size
        try:
            if self._error is None:
                os.ftruncate(self._descriptor, self._size)
        except OSError as error:
            self._error = error
        return self._size

    @uninterrupted
    def flush(self) -> None:
        """Does nothing: there is no buffer."""


@contextmanager
def create_hdf5(path: Path) -> Iterator[tuple[h5py.File, UnfailingFile]]:
    """Yields a new HDF5 file, and the file that it is written to, whose `check` says whether that
    has failed.

    Raises:
        OSError: If the file cannot be created, or something could not be written.
    """
    with path.open("x+b", buffering=0) as opened:
        target = UnfailingFile(opened)
        with h5py.File(target, "w") as file:
            yield file, target
        target.check()
