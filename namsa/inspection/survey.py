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
    statistics = _Statistics(shape)
    for rows, columns, stored in parts:
        statistics.add(rows, columns, stored)
    return statistics.result()


class _Statistics:
    """Sums over the pieces of a scan, from which `Survey` follows.

    Args:
        shape: Shape (sy, sx, dy, dx) of the scan.
    """

    def __init__(self, shape: tuple[int, int, int, int]) -> None:
        sy, sx, dy, dx = shape
        self.patterns = sy * sx
        self.total = np.zeros((dy, dx))
        self.squares = np.zeros((dy, dx))  # of differences along the scan, halved
        self.pairs = 0  # of neighbours along the scan
        self.extremes = np.stack([np.full((dy, dx), np.inf), np.full((dy, dx), -np.inf)])
        self.top = -np.inf  # the largest value
        self.at_top = np.zeros((dy, dx), np.int64)
        self.missing = np.zeros((dy, dx), np.int64)
        self.negative = 0
        self.is_integer = True
        self.sums = np.zeros((sy, sx))
        self.along_y, self.along_x, ry, rx = _regions(shape)
        self.regions = np.zeros((ry, rx, dy, dx), np.float32)
        self.counts = np.zeros((ry, rx))  # of patterns in each region
        self.lost = np.zeros((sy, sx), bool)
        self.losses = Losses()

    def add(self, rows: slice, columns: slice, stored: npt.NDArray[np.float32]) -> None:
        """Adds a piece of the scan."""
        repaired = repair_missing(stored, self.patterns)
        patterns = repaired.patterns
        kept = ~repaired.lost
        self.lost[rows, columns] = repaired.lost
        self.losses.add(Losses.of(repaired, rows, columns))
        self.missing += repaired.missing
        self.sums[rows, columns] = patterns.sum(axis=(2, 3), dtype=np.float64)
        self._add_differences(patterns, kept)
        self._add_to_regions(rows, columns, patterns, kept)
        if kept.any():
            values = patterns[kept]
            self._add_values(values, stored[kept] if repaired.values else values)

    def _add_differences(self, patterns: npt.NDArray[np.float32], kept: Booleans) -> None:
        """Adds the differences of neighbours along the scan that are not lost."""
        steps = np.diff(patterns, axis=1)[kept[:, 1:] & kept[:, :-1]]
        self.squares += np.square(steps, out=steps).sum(axis=0, dtype=np.float64) / 2
        self.pairs += len(steps)

    def _add_to_regions(
        self, rows: slice, columns: slice, patterns: npt.NDArray[np.float32], kept: Booleans
    ) -> None:
        """Adds patterns to the sums of their regions."""
        region_columns = self.along_x[columns]
        for row, line, is_kept in zip(self.along_y[rows], patterns, kept, strict=True):
            for column in np.unique(region_columns):
                chosen = line[is_kept & (region_columns == column)]
                self.regions[row, column] += chosen.sum(axis=0)
                self.counts[row, column] += len(chosen)

    def _add_values(
        self, patterns: npt.NDArray[np.float32], stored: npt.NDArray[np.float32]
    ) -> None:
        """Adds patterns `(n, dy, dx)` that are not lost, and the same as they are stored."""
        self.total += patterns.sum(axis=0, dtype=np.float64)
        self.extremes[0] = np.minimum(self.extremes[0], patterns.min(axis=0))
        self.extremes[1] = np.maximum(self.extremes[1], patterns.max(axis=0))
        if self.extremes[1].max() > self.top:
            self.top = self.extremes[1].max()
            self.at_top[:] = 0
        self.at_top += (patterns == self.top).sum(axis=0)
        self.negative += int((patterns < 0).sum())
        if self.is_integer:
            whole = (stored == np.rint(stored)) | ~np.isfinite(stored)
            self.is_integer = bool(whole.all())

    def result(self) -> Survey:
        """Returns the statistics of all pieces."""
        if self.lost.all():  # a scan of zeros alone
            self.lost[:] = False
            self.losses = Losses()
            self.extremes[:] = 0
        self.regions /= np.maximum(self.counts, 1)[..., None, None]
        middles = (_middles(self.along_y), _middles(self.along_x))
        return Survey(
            mean=self.total / (self.patterns - self.lost.sum()),
            variance=self.squares / max(self.pairs, 1),
            extremes=self.extremes,
            at_top=self.at_top,
            missing=self.missing,
            negative=self.negative,
            whole=self.is_integer,
            sums=self.sums,
            regions=self.regions,
            centres=np.stack(np.meshgrid(*middles, indexing="ij"), axis=-1),
            lost=self.lost,
            losses=self.losses,
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
