"""A file for the HDF5 library to write to, which crashes when it closes a file that a full disk has cut off."""

import os
from typing import BinaryIO


class UnfailingFile:
    """Tells HDF5 that all is written, and keeps the error for the caller to raise.

    It has what h5py asks of a Python file.

    Args:
        file: A file, open for reading and writing without a buffer.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._descriptor = file.fileno()
        self._position, self._size = 0, os.fstat(self._descriptor).st_size
        self._error: OSError | None = None

    def fileno(self) -> int:
        """Returns the file's descriptor."""
        return self._descriptor

    def check(self) -> None:
        """Raises the first error of the system, if there was one."""
        if self._error is not None:
            raise self._error

    def write(self, data: memoryview) -> int:
        """Writes at the position."""
        view = memoryview(data).cast("B")
        start, length = self._position, len(view)
        self._position += length
        self._size = max(self._size, self._position)
        try:
            while view and self._error is None:
                os.lseek(self._descriptor, start, os.SEEK_SET)  # Windows has no pwrite
                written = os.write(self._descriptor, view)
                start, view = start + written, view[written:]
        except OSError as error:
            self._error = error
        return length

    def read(self, size: int) -> bytes:
        """Returns bytes at the position, as `readinto`; by this method h5py knows a file."""
        data = bytearray(size)
        self.readinto(memoryview(data))
        return bytes(data)

    def readinto(self, buffer: memoryview) -> int:
        """Reads at the position; what could not be written is zero."""
        view = memoryview(buffer).cast("B")
        os.lseek(self._descriptor, self._position, os.SEEK_SET)
        data = os.read(self._descriptor, len(view))
        view[:] = data.ljust(len(view), b"\0")
        self._position += len(view)
        return len(view)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves the position."""
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def tell(self) -> int:
        """Returns the position."""
        return self._position

    def truncate(self, size: int | None = None) -> int:
        """Sets the size of the file."""
        self._size = self._position if size is None else size
        try:
            if self._error is None:
                os.ftruncate(self._descriptor, self._size)
        except OSError as error:
            self._error = error
        return self._size

    def flush(self) -> None:
        """Does nothing: there is no buffer."""
