"""Arrays of a file in another order of axes, or as frames; nothing is read before it is sliced."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.io.recording import PatternArray


@dataclass(frozen=True)
class AxesView:
    """An array whose axes are in another order, with some fixed at one index."""

    stored: PatternArray  # the array as it is stored
    axes: tuple[int, ...]  # the stored axis that each axis is
    fixed: Mapping[int, int] = field(default_factory=dict)  # index along each of the other stored axes

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return tuple(self.stored.shape[axis] for axis in self.axes)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers."""
        return self.stored.dtype

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """The shape of the pieces that are stored together, if there are any."""
        return None if self.stored.chunks is None else tuple(self.stored.chunks[axis] for axis in self.axes)

    def __getitem__(self, index: tuple[slice, ...]) -> npt.NDArray[Any]:
        """Returns a part; there is a slice for each of the first axes."""
        slices = dict(zip(self.axes, (*index, *(slice(None),) * (len(self.axes) - len(index))), strict=True))
        slices |= {axis: slice(number, number + 1) for axis, number in self.fixed.items()}
        part = self.stored[tuple(slices[axis] for axis in range(len(self.stored.shape)))]
        part = part.transpose(*self.axes, *self.fixed)
        return part.reshape(part.shape[: len(self.axes)])


@dataclass(frozen=True)
class FramesOfScan:
    """The patterns of a scan as frames, row after row."""

    scan: PatternArray  # the scan, `(sy, sx, dy, dx)`

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (n, dy, dx)."""
        sy, sx, *frame = self.scan.shape
        return (sy * sx, *frame)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers."""
        return self.scan.dtype

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of the pieces that are read together: whole rows."""
        return ((self.scan.chunks or (1,))[0] * self.scan.shape[1], *self.scan.shape[2:])

    def __getitem__(self, index: tuple[slice, ...]) -> npt.NDArray[Any]:
        """Returns consecutive frames."""
        start, stop, _ = index[0].indices(self.shape[0])
        columns = self.scan.shape[1]
        row = start // columns
        rows = self.scan[slice(row, -(-max(start, stop) // columns)), slice(0, columns)]
        frames = rows.reshape(-1, *self.shape[1:])[start - row * columns : max(start, stop) - row * columns]
        return frames[(slice(None), *index[1:])]
