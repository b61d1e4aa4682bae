"""The patterns of a file that is written while they are simulated, and the units of its journal."""

import zlib
from collections.abc import Iterator
from math import lcm
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.io.confined_library import DamagedFileError
from namsa.io.hdf5_items import Hdf5Dataset


class StackLayout(NamedTuple):
    """The patterns of a simulation, and the units in which the journal counts them."""

    patterns: tuple[int, int, int]  # (n, dy, dx)
    stored: tuple[int, ...]  # the shape in the file
    dtype: np.dtype[np.generic]
    unit: int  # patterns per line of the journal

    def rows(self, unit: int, stop: int | None = None) -> slice:
        """Returns the patterns of a unit, or of the units from `unit` to `stop`."""
        last = unit + 1 if stop is None else stop
        return slice(unit * self.unit, min(last * self.unit, self.patterns[0]))

    def units(self, rows: slice) -> range:
        """Returns the units of the patterns of a batch, which has whole ones."""
        return range(rows.start // self.unit, -(-rows.stop // self.unit))

    @property
    def unit_count(self) -> int:
        """The number of units."""
        return -(-self.patterns[0] // self.unit)


def whole_multiple(wanted: int, multiple: int, row: int) -> int:
    """Returns a number of patterns: a multiple, of whole rows of the scan if one is not too many.

    Args:
        wanted: The number of patterns that is not to be exceeded, if `multiple` is not.
    """
    whole_rows = lcm(multiple, row)
    unit = whole_rows if whole_rows <= wanted else multiple
    return max(unit, wanted - wanted % unit)


def verified_configurations(
    data: Hdf5Dataset, done: Hdf5Dataset, crc32: Hdf5Dataset, layout: StackLayout
) -> npt.NDArray[np.int64]:
    """Returns the configurations in each unit, 0 where the patterns do not match their
    checksum.
    """
    configurations = done[:].astype(np.int64)
    checksums = crc32[:]
    for unit in np.flatnonzero(configurations):
        try:
            parts = [data[place] for place, _, _ in places(layout.rows(int(unit)), layout.stored)]
        except DamagedFileError:
            configurations[unit] = 0
            continue
        checksum = 0
        for block in parts:
            checksum = zlib.crc32(block.data, checksum)
        if checksum != checksums[unit]:
            configurations[unit] = 0
    return configurations


def places(
    rows: slice, stored: tuple[int, ...]
) -> Iterator[tuple[tuple[slice, ...], slice, tuple[int, ...]]]:
    """Splits a run of patterns, stored as (sy, sx, dy, dx) or (n, dy, dx), into rectangles of the
    scan.

    Yields:
        The place in the file, the part of the run, and the shape of the part.
    """
    if len(stored) == 3:
        yield (rows,), slice(0, rows.stop - rows.start), (rows.stop - rows.start, *stored[1:])
        return
    columns = stored[1]
    start = rows.start
    while start < rows.stop:
        y, x = divmod(start, columns)
        lines = (rows.stop - start) // columns if x == 0 else 0
        height, width = (lines, columns) if lines else (1, min(columns - x, rows.stop - start))
        of_run = slice(start - rows.start, start - rows.start + height * width)
        yield (slice(y, y + height), slice(x, x + width)), of_run, (height, width, *stored[2:])
        start += height * width
