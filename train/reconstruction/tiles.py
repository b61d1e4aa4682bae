"""A large scan in windows: where they lie, how they are blended, and the scan's rows as a stream.

Windows overlap by half and begin at multiples of what the network's poolings halve, so that a window sees what the
whole scan would have seen. Each counts with sin² across it, and nothing in a margin where the network saw the padding
behind the window's edge; divided by the sum of weights these are a partition of unity, in which no seam is left.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from namsa.errors import InputError

Array = npt.NDArray[Any]


def side(size: int, trained: int, multiple: int) -> int:
    """A window's side: the one that was trained, or in a smaller scan the largest `multiple` that it holds."""
    if size < multiple:
        raise InputError(f"the scan has {size} positions along one side, the network needs {multiple} or more")
    return trained if size >= trained else size // multiple * multiple


def windows(size: int, side: int, multiple: int) -> list[slice]:
    """Windows of `side` that cover `size`, half of each in the next one; the last ends where the scan does."""
    step = max(multiple, side // 2 // multiple * multiple)
    starts = [*range(0, size - side, step), size - side]
    return [slice(start, start + side) for start in starts]


def apart(windows: Sequence[slice]) -> list[int]:
    """Numbers of as few of `windows` as cover the same, each beside the one before."""
    chosen = [0]
    for number, window in enumerate(windows):
        if window.start > windows[chosen[-1]].stop:  # the one before still reached the last one's end
            chosen.append(number - 1)
    return chosen if chosen[-1] == len(windows) - 1 else [*chosen, len(windows) - 1]


def weight(window: slice, size: int, margin: int) -> npt.NDArray[np.float64]:
    """sin² over `window`, zero in `margin` positions at either end unless the scan of `size` ends there, too."""
    n = window.stop - window.start
    first = 0 if window.start == 0 else margin
    last = n if window.stop == size else n - margin
    inner = np.sin(np.pi * (np.arange(last - first) + 0.5) / (last - first)) ** 2
    return np.pad(inner, (first, n - last))


class Blend:
    """The weighted mean of predictions over windows and ensemble, and their spread; float64, so in any order."""

    def __init__(self, shape: tuple[int, int], margin: int) -> None:
        self.shape, self.margin = shape, margin
        self.weights, self.first, self.second = (np.zeros(shape) for _ in range(3))

    def add(self, window: tuple[slice, slice], predictions: Array) -> None:
        """predictions: (members, h, w) of one window"""
        y, x = (weight(along, size, self.margin) for along, size in zip(window, self.shape, strict=True))
        weights, members = y[:, None] * x, predictions.astype(np.float64)
        self.weights[window] += len(members) * weights
        self.first[window] += weights * members.sum(axis=0)
        self.second[window] += weights * (members**2).sum(axis=0)

    def mean(self) -> npt.NDArray[np.float64]:
        return self.first / self.weights

    def deviation(self) -> npt.NDArray[np.float64]:
        """Standard deviation of what was added, each by its weight."""
        return np.sqrt(np.clip(self.second / self.weights - self.mean() ** 2, 0, None))


def strips(bands: Iterable[Array], down: sparse.csr_array, wanted: Sequence[slice]) -> Iterator[Array]:
    """The rows `wanted`, window by window from the first on, of down @ rows; holds no more rows than a window takes.

    bands: the rows (k, ...) one after another, in pieces of any height
    down: (new rows, rows), each made of neighbouring rows
    """
    source, first = iter(bands), 0
    held = next(source)
    for window in wanted:
        part = down[window.start : window.stop]
        low, high = int(part.indices.min()), int(part.indices.max()) + 1
        while first + len(held) < high:
            held = np.concatenate([held, next(source)])
        held, first = held[low - first :], low
        rows = held[: high - low]
        yield (part[:, low:high] @ rows.reshape(len(rows), -1)).reshape(-1, *rows.shape[1:])
