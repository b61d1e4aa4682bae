"""One pass over a scan: the statistics of every detector pixel, the sum of every pattern, and means
of scan regions.

The scan is read in pieces, so that it may be larger than memory. What was not recorded is left out
(`namsa.io.lost`).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array, Booleans, Floats, Integers
from namsa.io.lost import Losses, repair_missing
from namsa.io.recording import PatternScan, Recording

Piece = tuple[slice, slice, npt.NDArray[np.float32]]  # rows, columns, patterns
OnRows = Callable[[int], object]  # takes the number of scan rows done

# of patterns as float32 in one piece; working on it takes several times as much
PIECE_BYTES = 16 * 2**20
REGIONS = 5  # scan regions along each axis whose mean patterns show the descan
REGION_BYTES = 128 * 2**20  # of the mean patterns of all regions


@dataclass(frozen=True)
class Survey:
    """Statistics over the positions of a scan."""

    mean: Floats  # mean pattern, `(dy, dx)`
    # Variance of one value about its neighbours along the scan, `(dy, dx)`: half the mean square of
    # differences. It is less affected by the specimen than the variance over the scan.
    variance: Floats
    extremes: Floats  # least and largest value of each pixel, `(2, dy, dx)`
    # Number of patterns in which each pixel has the largest value of the whole scan, `(dy, dx)`.
    at_top: Integers
    # Number of patterns in which each pixel is not finite, `(dy, dx)`; lost patterns do not count.
    missing: Integers
    negative: int  # number of values below 0
    whole: bool  # whether all values are whole numbers
    sums: Floats  # sum of each pattern, `(sy, sx)`
    regions: npt.NDArray[np.float32]  # mean patterns of regions of the scan, `(ry, rx, dy, dx)`
    centres: Floats  # mean scan row and column of each region, `(ry, rx, 2)`
    lost: Booleans  # which patterns are lost, `(sy, sx)`
    losses: Losses  # what was not recorded

    @property
    def recorded(self) -> int:
        """Number of patterns that are not lost."""
        return int(self.lost.size - self.lost.sum())

    @property
    def top(self) -> float:
        """The largest value."""
        return float(self.extremes[1].max())


def pieces(recording: PatternScan) -> Iterator[tuple[slice, slice]]:
    """Yields rows and columns of the pieces in which a scan is read: whole chunks of the file, in
    the order of rows.
    """
    sy, sx, dy, dx = recording.shape
    height, width = (min(size, n) for size, n in zip(recording.chunk, (sy, sx), strict=True))
    columns = max(1, PIECE_BYTES // (height * width * dy * dx * 4)) * width
    rows = max(1, PIECE_BYTES // (height * min(columns, sx) * dy * dx * 4)) * height
    for row in range(0, sy, rows):
        for column in range(0, sx, columns):
            yield slice(row, min(row + rows, sy)), slice(column, min(column + columns, sx))


def read_pieces(recording: Recording, on_rows: OnRows) -> Iterator[Piece]:
    """Yields rows, columns and patterns `(n, m, dy, dx)`, float32, of all pieces of a scan."""
    for rows, columns in pieces(recording):
        yield rows, columns, recording.read(rows, columns).astype(np.float32)
        on_rows(rows.stop)


def survey(parts: Iterable[Piece], shape: tuple[int, int, int, int]) -> Survey:
    """Computes the statistics of a scan.

    Args:
        parts: Rows, columns and patterns of pieces that cover the scan once, as `read_pieces`
            yields them.
    """
    sy, sx, dy, dx = shape
    total = np.zeros((dy, dx))
    squares = np.zeros((dy, dx))
    pairs = 0
    extremes = np.stack([np.full((dy, dx), np.inf), np.full((dy, dx), -np.inf)])
    at_top = np.zeros((dy, dx), np.int64)
    missing = np.zeros((dy, dx), np.int64)
    sums = np.zeros((sy, sx))
    top = -np.inf
    negative = 0
    is_integer = True
    along_y, along_x, ry, rx = _regions(shape)
    regions = np.zeros((ry, rx, dy, dx), np.float32)
    counts = np.zeros((ry, rx))
    lost = np.zeros((sy, sx), bool)
    losses = Losses()
    for rows, columns, stored in parts:
        repaired = repair_missing(stored, sy * sx)
        patterns = repaired.patterns
        kept = ~repaired.lost
        lost[rows, columns] = repaired.lost
        losses.add(Losses.of(repaired, rows, columns))
        missing += repaired.missing
        steps = np.diff(patterns, axis=1)[kept[:, 1:] & kept[:, :-1]]
        squares += np.square(steps, out=steps).sum(axis=0, dtype=np.float64) / 2
        pairs += len(steps)
        sums[rows, columns] = patterns.sum(axis=(2, 3), dtype=np.float64)
        for row, line, of in zip(along_y[rows], patterns, kept, strict=True):
            for column in np.unique(along_x[columns]):
                chosen = line[of & (along_x[columns] == column)]
                regions[row, column] += chosen.sum(axis=0)
                counts[row, column] += len(chosen)
        if not kept.any():
            continue
        patterns = patterns[kept]
        total += patterns.sum(axis=0, dtype=np.float64)
        extremes[0] = np.minimum(extremes[0], patterns.min(axis=0))
        extremes[1] = np.maximum(extremes[1], patterns.max(axis=0))
        if extremes[1].max() > top:
            top = extremes[1].max()
            at_top[:] = 0
        at_top += (patterns == top).sum(axis=0)
        negative += int((patterns < 0).sum())
        values = stored[kept] if repaired.values else patterns
        is_integer = is_integer and bool(((values == np.rint(values)) | ~np.isfinite(values)).all())
    if lost.all():  # a scan of zeros alone
        lost[:] = False
        losses = Losses()
        extremes[:] = 0
    regions /= np.maximum(counts, 1)[..., None, None]
    return Survey(
        mean=total / (sy * sx - lost.sum()),
        variance=squares / max(pairs, 1),
        extremes=extremes,
        at_top=at_top,
        missing=missing,
        negative=negative,
        whole=is_integer,
        sums=sums,
        regions=regions,
        centres=np.stack(np.meshgrid(_middles(along_y), _middles(along_x), indexing="ij"), axis=-1),
        lost=lost,
        losses=losses,
    )


def _middles(numbers: Array) -> Array:
    """Returns the mean index of each region, from the region of each row or column."""
    return np.array([np.flatnonzero(numbers == n).mean() for n in range(numbers.max() + 1)])


def _regions(shape: tuple[int, int, int, int]) -> tuple[Array, Array, int, int]:
    """Returns the region of each scan row and of each column, and the number of regions along y and
    x.
    """
    sy, sx, dy, dx = shape
    most = max(1, min(REGIONS, int((REGION_BYTES / (dy * dx * 4)) ** 0.5)))
    ry = min(most, sy)
    rx = min(most, sx)
    return np.arange(sy) * ry // sy, np.arange(sx) * rx // sx, ry, rx
