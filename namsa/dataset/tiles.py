"""Patterns in tiles, each contiguous in its record with a digest of its own, so that a slab can be
read alone.

The patterns of a sample are an array of scan y, scan x, detector y, detector x. A record stores
them as a grid of equal tiles. The tiles are in the order of that grid, and the numbers of a tile
are in the order of the array. A slab is a range along one axis. Along the first axis with more than
one tile its tiles are contiguous. Along a later axis there is one run of bytes per tile of the axes
before.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import xxhash

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.pixels import tiles_problem

Shape = tuple[int, int, int, int]

DIGEST_DIGITS = 32  # hexadecimal, of xxh3_128


@dataclass(frozen=True)
class Slab:
    """A range of the patterns (sy, sx, dy, dx) along one axis."""

    axis: int  # index of the axis
    start: int  # first index
    stop: int  # index after the last

    @property
    def index(self) -> tuple[slice, ...]:
        """Index of the slab in the patterns."""
        return (slice(None),) * self.axis + (slice(self.start, self.stop),)

    def shape(self, patterns: Shape) -> Shape:
        """Returns the shape of the slab of patterns of this shape."""
        sy, sx, dy, dx = (
            self.stop - self.start if axis == self.axis else n for axis, n in enumerate(patterns)
        )
        return sy, sx, dy, dx


@dataclass(frozen=True)
class Tiling:
    """A grid of equal tiles.

    Raises:
        InputError: If the tiles do not divide the patterns.
    """

    patterns: Shape  # shape of the patterns (sy, sx, dy, dx)
    counts: Shape  # number of tiles along each axis

    def __post_init__(self) -> None:
        if fault := tiles_problem(self.patterns, self.counts):
            raise InputError(fault)

    @property
    def tile(self) -> Shape:
        """Shape of a tile."""
        sy, sx, dy, dx = (n // count for n, count in zip(self.patterns, self.counts, strict=True))
        return sy, sx, dy, dx

    def grid(self, stored: Array) -> Array:
        """Returns a view of stored patterns, one axis, as (tile, row in tile) of scan y, scan x,
        detector y and x.
        """
        return stored.reshape(*self.counts, *self.tile).transpose(0, 4, 1, 5, 2, 6, 3, 7)

    def each_pattern(self, stored: Array) -> Iterator[Array]:
        """Yields views of the stored patterns, each as (tile, row in tile) of detector y, then of
        detector x.
        """
        for rows in self.grid(stored):
            for row in rows:
                for columns in row:
                    yield from columns

    def whole(self, stored: Array) -> Array:
        """Returns the patterns (n, dy, dx). They are a view if tiles run along scan y alone,
        otherwise a copy.
        """
        sy, sx, dy, dx = self.patterns
        return self.grid(stored).reshape(sy * sx, dy, dx)

    def has(self, slab: Slab) -> bool:
        """Returns whether a slab consists of whole tiles."""
        return not (slab.start % self.tile[slab.axis] or slab.stop % self.tile[slab.axis])

    def runs(self, slab: Slab) -> Iterator[tuple[int, int, int]]:
        """Yields the contiguous runs of tiles of a slab of whole tiles.

        Yields:
            The first tile of the run in the record, the number of tiles, and the first tile's
                number in the slab, whose
            tiles are counted in the order of `part`.
        """
        begin, end = (edge // self.tile[slab.axis] for edge in (slab.start, slab.stop))
        inner = math.prod(self.counts[slab.axis + 1 :])
        length = (end - begin) * inner
        for outer in range(math.prod(self.counts[: slab.axis])):
            yield (outer * self.counts[slab.axis] + begin) * inner, length, outer * length

    def part(self, slab: Slab) -> "Tiling":
        """Returns the tiling of the patterns of a slab of whole tiles."""
        tiles = (slab.stop - slab.start) // self.tile[slab.axis]
        return Tiling(slab.shape(self.patterns), Slab(slab.axis, 0, tiles).shape(self.counts))


def digests(array: Array, tiles: int = 1) -> list[str]:
    """Returns the digests of equal parts of a contiguous array, one after the other."""
    return [
        xxhash.xxh3_128_hexdigest(tile.data)
        for tile in np.split(array.reshape(-1).view(np.uint8), tiles)
    ]
