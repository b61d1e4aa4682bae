"""Divides a large scan into windows and blends what is predicted for them; streams the scan's rows.

Windows overlap by half. They begin at multiples of the factor by which the network's poolings
reduce an image, so that a window gives what the whole scan would have given. Each is weighted by
sin² across it and by zero in a margin, where the network saw the padding beyond the window's edge.
Divided by the sum of the weights, these are a partition of unity, which leaves no seams.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

import numpy as np
from scipy import sparse

from namsa.base.arrays import Array, Floats
from namsa.base.errors import InputError
from namsa.base.text import plural

from .resampling import resampled

BATCH_BYTES = 128 * 2**20  # windows that the network is given at once
# of a window's side: the network sees most of the padding beyond the window's edge there
MARGIN = 1 / 8


def window_side(size: int, trained: int, multiple: int) -> int:
    """Returns the side of a window.

    Args:
        size: Positions of the scan along one axis.
        trained: Side of the windows that the network was trained with. A smaller scan gets a
            smaller window.
        multiple: The side of a smaller window is a multiple of this.

    Raises:
        InputError: If the scan is smaller than `multiple`.
    """
    if size < multiple:
        raise InputError(
            f"the scan has {plural(size, 'position')} of the network's step along one side, the "
            f"network needs {multiple} or more: check the scan step (--scan-step-angstrom), or "
            "give a larger part of the scan"
        )
    return trained if size >= trained else size // multiple * multiple


def window_slices(size: int, side: int, multiple: int) -> list[slice]:
    """Returns windows that cover an axis and overlap by half; the last one ends where the scan
    does.

    Args:
        size: Positions of the scan along the axis.
        multiple: All windows but the last begin at a multiple of this.
    """
    step = max(multiple, side // 2 // multiple * multiple)
    starts = [*range(0, size - side, step), size - side]
    return [slice(start, start + side) for start in starts]


def covering_subset(windows: Sequence[slice]) -> list[int]:
    """Returns the indices of as few windows as cover the same positions."""
    chosen = [0]
    for index, window in enumerate(windows):
        # a gap: the previous window still touches the last chosen one
        if window.start > windows[chosen[-1]].stop:
            chosen.append(index - 1)
    if chosen[-1] == len(windows) - 1:
        return chosen
    return [*chosen, len(windows) - 1]


def spread_windows(windows: tuple[int, int], most: tuple[int, int]) -> dict[tuple[int, int], int]:
    """Returns some of so many windows along (y, x), evenly spaced: (row, column), with a number
    each in their order.
    """
    rows = _evenly_spaced(windows[0], most[0])
    columns = _evenly_spaced(windows[1], most[1])
    return {window: index for index, window in enumerate(product(rows, columns))}


def _evenly_spaced(windows: int, most: int) -> list[int]:
    """Returns the indices of at most so many windows along one axis, evenly spaced."""
    count = min(windows, most)
    return [(2 * index + 1) * windows // (2 * count) for index in range(count)]


def window_weights(window: slice, size: int, margin: int) -> Floats:
    """Returns the weight of each position of a window along one axis: sin², and zero in the
    margins, `(side,)`.

    Args:
        size: Positions of the scan. A window that ends with the scan has no margin there.
    """
    n = window.stop - window.start
    start = 0 if window.start == 0 else margin
    stop = n if window.stop == size else n - margin
    inner = np.sin(np.pi * (np.arange(stop - start) + 0.5) / (stop - start)) ** 2
    return np.pad(inner, (start, n - stop))


class Blend:
    """The weighted mean and standard deviation of predictions over windows and ensemble.

    If predictions have variances of their own, the deviation is that of the mixture: the root of
    the mean variance plus the variance of the means.

    Sums are float64, so that the order of windows does not matter.
    """

    def __init__(self, shape: tuple[int, int], margin: int, bins: tuple[int, ...] = ()) -> None:
        """Starts with nothing added.

        Args:
            shape: Shape of the whole image.
            margin: Width of the margin of a window that gets no weight.
            bins: Axes of an image before y and x: `(n,)` if there is one for each of n bins.
        """
        self.shape = shape
        self.margin = margin
        self.weights = np.zeros(shape)
        self.first = np.zeros((*bins, *shape))
        self.second = np.zeros((*bins, *shape))

    def add(
        self, window: tuple[slice, slice], predictions: Array, variances: Array | None = None
    ) -> None:
        """Adds the predictions of one window.

        Args:
            window: Where the window lies, (y, x).
            predictions: `(members, h, w)`, or `(members, n, h, w)` of n bins.
            variances: Variance of each prediction, in the same shape. `None` stands for 0.
        """
        y, x = (
            window_weights(along, size, self.margin)
            for along, size in zip(window, self.shape, strict=True)
        )
        weights = y[:, None] * x
        members = predictions.astype(np.float64)
        self.weights[window] += len(members) * weights
        self.first[..., *window] += weights * members.sum(axis=0)
        self.second[..., *window] += weights * (members**2).sum(axis=0)
        if variances is not None:
            self.second[..., *window] += weights * variances.sum(axis=0, dtype=np.float64)

    def mean(self) -> Floats:
        """Returns the weighted mean of each pixel; NaN where nothing was added."""
        return self._over_weights(self.first)

    def deviation(self) -> Floats:
        """Returns the weighted standard deviation of each pixel; NaN where nothing was added."""
        return np.sqrt(np.clip(self._over_weights(self.second) - self.mean() ** 2, 0, None))

    def _over_weights(self, sums: Floats) -> Floats:
        return np.divide(
            sums, self.weights, out=np.full(sums.shape, np.nan), where=self.weights > 0
        )


def source_rows(resampling: sparse.csr_array, window: slice) -> slice:
    """Returns the scan's rows that have weight in a window's resampled rows; arguments as
    `strips`.
    """
    of_window = resampling[window.start : window.stop]
    return slice(int(of_window.indices.min()), int(of_window.indices.max()) + 1)


def strips(
    bands: Iterable[Array],
    resampling: sparse.csr_array,
    windows: Sequence[slice],
    first_row: int = 0,
) -> Iterator[Array]:
    """Yields the resampled rows of each window. Holds no more rows than a window needs.

    Args:
        bands: Consecutive rows of the scan, `(k, ...)` each, of any number.
        resampling: Weights of the scan's rows in each resampled row, `(resampled rows, rows)`; only
            neighbouring rows have weight.
        windows: Resampled rows of each window, the first window first.
        first: The scan's row that the bands begin with, at most the first that has weight.

    Yields:
        `(rows of the window, ...)`; NaN at positions whose pattern is lost.
    """
    source = iter(bands)
    held = next(source)
    for window in windows:
        of_window = resampling[window.start : window.stop]
        needed = source_rows(resampling, window)
        low = needed.start
        high = needed.stop
        while first_row + len(held) < high:
            held = np.concatenate([held, next(source)])
        held = held[low - first_row :]
        first_row = low
        rows = held[: high - low]
        yield resampled(of_window[:, low:high], rows)
