"""Patterns of a file that stores, for each pixel of the detector, an image of the whole scan;
reading at a position.
"""

import math
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from namsa.base.arrays import Array
from namsa.base.errors import InputError, WorkError
from namsa.base.files import system_errors

_TURNS = threading.Lock()  # where a file has one position for all threads


def read_at(file: BinaryIO, size: int, offset: int) -> bytes:
    """Returns bytes at an offset, fewer at the end; the position may change. Raises OSError if they
    cannot be read.
    """
    if hasattr(os, "pread"):
        return os.pread(file.fileno(), size, offset)
    with _TURNS:  # Windows
        file.seek(offset)
        return file.read(size)


READ_BYTES = 2**24  # at once


@dataclass(frozen=True)
class ScanPlanes:
    """An array `(detector, detector, scan, scan)` in the order of C in a file."""

    path: Path  # the file, for messages
    file: BinaryIO  # the open file
    offset: int  # its first byte
    shape: tuple[int, int, int, int]  # its shape
    stored: np.dtype[np.generic]  # type of the stored numbers
    chunks: None = None

    def __post_init__(self) -> None:
        """Checks that the file holds the array."""
        length = os.fstat(self.file.fileno()).st_size
        end = self.offset + math.prod(self.shape) * self.stored.itemsize
        if min(self.shape) < 1 or end > length:
            raise InputError(
                f"{self.path} is cut short: it declares {self.shape} to byte {end}, and has "
                f"{length}"
            )

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return self.stored.newbyteorder("=")

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Returns a part; there is a slice for each axis.

        Of each plane the rows from the first to the last are read, or whole planes together if that
        is most of them.

        Raises:
            WorkError: If the file ends before them.
        """
        axes = []
        for selected, length in zip(index, self.shape, strict=True):
            axes.append(range(*selected.indices(length)))
        scan_rows, scan_columns, rows, columns = axes
        block = np.empty(tuple(map(len, axes)), self.dtype)
        if not block.size:
            return block
        width = self.shape[3]
        low = min(rows[0], rows[-1])
        high = max(rows[0], rows[-1]) + 1
        # then reading all is quicker than reading plane by plane
        reads_all = 4 * (high - low) > self.shape[2]
        start, lines = (0, self.shape[2]) if reads_all else (low, high - low)
        plane = self.shape[2] * width
        together = max(1, READ_BYTES // (plane * self.stored.itemsize)) if reads_all else 1
        wanted = slice(low - start, high - start)
        rows_read = np.array(rows) - low
        columns_read = np.array(columns)
        for row, line in enumerate(scan_rows):
            for at in range(0, len(scan_columns), together):
                planes = np.array(scan_columns[at : at + together])
                lowest = int(planes.min())
                span = int(planes.max()) - lowest + 1 if reads_all else 1
                offset = (line * self.shape[1] + lowest) * plane + start * width
                values = self._read(offset, (span - 1) * plane + lines * width)
                values = values.reshape(span, lines, width)[planes - lowest, wanted]
                values = values[:, rows_read][:, :, columns_read]
                block[row, at : at + len(planes)] = values
        return block

    def _read(self, offset: int, count: int) -> Array:
        """Returns numbers from the first one on."""
        size = count * self.stored.itemsize
        with system_errors(f"cannot read {self.path}"):
            data = read_at(self.file, size, self.offset + offset * self.stored.itemsize)
        if len(data) < size:
            raise WorkError(f"cannot read {self.path}: it has become shorter since it was opened")
        return np.frombuffer(data, self.stored)
