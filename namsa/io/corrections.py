"""Corrections of patterns as they are read: bad pixels, and a bright disk that moves with the scan.

A corrected scan is read like any other, so that whatever reads scans honours the corrections.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import ndimage, sparse

from namsa.base.arrays import Array, Booleans
from namsa.io.recording import PatternView

MOST_REACH = 3  # pixels, from which a bad pixel is interpolated
DETECTOR_REACH = 8  # the same for dead lines and regions of a detector
Slope = tuple[tuple[float, float], tuple[float, float]]


def repair_matrix(bad: Booleans, most_reach: int = MOST_REACH) -> sparse.csr_array:
    """Returns the matrix that replaces bad pixels, `(dy, dx)`, by the mean of the nearest good
    ones.

    Returns:
        Weights of all pixels in each bad one, in the order of rows, `(bad pixels, pixels)`. A bad
        pixel without good ones within `most_reach` pixels becomes 0.
    """
    rows: list[int] = []
    columns: list[int] = []
    weights: list[float] = []
    if bad.all():
        nearest = np.full(bad.shape, most_reach + 1)
    else:
        nearest = ndimage.distance_transform_cdt(bad, "chessboard")
    for index, (y, x) in enumerate(np.argwhere(bad)):
        if nearest[y, x] > most_reach:
            continue
        for reach in range(int(nearest[y, x]), most_reach + 1):
            top = max(y - reach, 0)
            left = max(x - reach, 0)
            near = np.argwhere(~bad[top : y + reach + 1, left : x + reach + 1]) + np.array(
                [top, left]
            )
            if len(near):
                rows += [index] * len(near)
                columns += (near[:, 0] * bad.shape[1] + near[:, 1]).tolist()
                weights += [1 / len(near)] * len(near)
                break
    values = np.array(weights, np.float32)
    matrix = sparse.coo_array(
        (values, (np.array(rows), np.array(columns))), shape=(int(bad.sum()), bad.size)
    )
    return sparse.csr_array(matrix)


def repair(patterns: Array, bad: Booleans, matrix: sparse.csr_array | None = None) -> Array:
    """Replaces bad pixels `(dy, dx)` of float patterns `(..., dy, dx)` in place, by
    `repair_matrix`; returns them.
    """
    flat = patterns.reshape(-1, bad.size)
    places = bad.ravel()
    flat[:, places] = 0  # what is not finite would spread
    flat[:, places] = ((repair_matrix(bad) if matrix is None else matrix) @ flat.T).T
    return flat.reshape(patterns.shape)


class ChangedPatterns(PatternView):
    """Patterns `(sy, sx, dy, dx)` that become other real numbers as they are read."""

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The type of the numbers: float64 if it is that of the file, otherwise float32."""
        return np.dtype(np.float64 if self.stored.dtype == np.float64 else np.float32)


@dataclass(frozen=True)
class CorrectedPatterns(ChangedPatterns):
    """Patterns whose bad pixels are replaced and whose disk stays in one place.

    Attributes:
        stored: The patterns as they are stored, `(sy, sx, dy, dx)`.
        bad_pixels: Rows and columns of pixels that are replaced by the mean of the nearest good
            ones.
        centre_slope: Movement of the disk, detector (y, x) by scan (row, column), pixels per step.
            Patterns are shifted back, by linear interpolation, to where they are in the middle of
            the scan. `None` for no movement.
    """

    bad_pixels: tuple[tuple[int, int], ...] = ()
    centre_slope: Slope | None = None

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Returns a part."""
        rows, columns, *pixels = (*index, *(slice(None),) * (4 - len(index)))
        patterns = np.array(self.stored[rows, columns], self.dtype, order="C")
        if self.bad_pixels:
            patterns = repair(patterns, *self._repair)
        if self.centre_slope is not None:
            middle = (np.array(self.shape[:2]) - 1) / 2
            places = np.stack(
                np.meshgrid(
                    *(
                        np.arange(n)[span]
                        for n, span in zip(self.shape, (rows, columns), strict=False)
                    ),
                    indexing="ij",
                ),
                -1,
            )
            for place in np.ndindex(*patterns.shape[:2]):
                moved = np.array(self.centre_slope) @ (places[place] - middle)
                patterns[place] = ndimage.shift(patterns[place], -moved, order=1, mode="nearest")
        return patterns[:, :, pixels[0], pixels[1]]

    @cached_property
    def _repair(self) -> tuple[Booleans, sparse.csr_array]:
        """The bad pixels as a mask, and their matrix."""
        bad = np.zeros(self.shape[2:], bool)
        bad[tuple(np.transpose(self.bad_pixels))] = True
        return bad, repair_matrix(bad, DETECTOR_REACH)
