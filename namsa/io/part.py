"""Part of a stored scan that is read, and the places of its detector on the stored one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from namsa.base.arrays import Pair


class Span(NamedTuple):
    """Indices along an axis."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of indices."""
        return self.stop - self.start


@dataclass(frozen=True)
class Window:
    """The part of a stored scan that is read.

    Attributes:
        rows, columns: Positions of the scan.
        pixel_rows, pixel_columns: Pixels of the detector.
        binning: Pixels along a side of the squares that are added.
        stored_shape: Shape of the stored scan, (sy, sx, dy, dx).
        stored_bad_pixels: Its bad pixels.
    """

    rows: Span
    columns: Span
    pixel_rows: Span
    pixel_columns: Span
    binning: int
    stored_shape: tuple[int, int, int, int]
    stored_bad_pixels: tuple[tuple[int, int], ...]

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (dy, dx) of patterns as they are read."""
        return self.pixel_rows.size // self.binning, self.pixel_columns.size // self.binning

    @property
    def scan_shift(self) -> Pair:
        """Positions from the middle of the stored scan to that of the part, (rows, columns)."""
        sy, sx = self.stored_shape[:2]
        shift_y = (self.rows.start + self.rows.stop - sy) / 2
        shift_x = (self.columns.start + self.columns.stop - sx) / 2
        return shift_y, shift_x

    def pixel_of(self, stored: Pair) -> Pair:
        """Returns where a place on the stored detector lies on the one that is read, pixels."""
        half = (self.binning - 1) / 2
        y = (stored[0] - self.pixel_rows.start - half) / self.binning
        x = (stored[1] - self.pixel_columns.start - half) / self.binning
        return y, x

    def stored_pixel_of(self, read: Pair) -> Pair:
        """Returns where a place on the detector that is read lies on the stored one, pixels."""
        half = (self.binning - 1) / 2
        y = read[0] * self.binning + half + self.pixel_rows.start
        x = read[1] * self.binning + half + self.pixel_columns.start
        return y, x

    def bad_pixels_of(self, stored: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """Returns the pixels of the detector that is read that contain bad ones of the stored
        one.
        """
        height, width = self.shape
        places = set()
        for row, column in stored:
            y = (row - self.pixel_rows.start) // self.binning
            x = (column - self.pixel_columns.start) // self.binning
            if 0 <= y < height and 0 <= x < width:
                places.add((y, x))
        return tuple(sorted(places))

    def stored_bad_pixels_of(self, read: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """Returns the stored pixels that pixels of the detector that is read consist of."""
        places = []
        for row, column in read:
            top = row * self.binning + self.pixel_rows.start
            left = column * self.binning + self.pixel_columns.start
            for index in range(self.binning**2):
                places.append((top + index // self.binning, left + index % self.binning))
        return tuple(places)
