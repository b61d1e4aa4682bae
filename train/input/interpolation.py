"""Sparse matrices that interpolate and blur regular samples at once.

Each weight is that of the best linear estimate from the nearest samples (kriging with a given power
spectrum), under the condition that constants are kept. The value estimated may be that of the
signal convolved with a Gaussian. Where the samples end, the stencil is shifted inwards, and the
weights are the best ones for that stencil.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from namsa.base.arrays import Array

SparseMatrix = csr_array[Any, Any]

# of the table, per sample: weights between two nodes are interpolated, with an error below 1e-3
_NODES = 32
_NUGGET = 1e-5  # part of the power that no neighbour explains; bounds the weights


class Spectrum(NamedTuple):
    """Power of a signal by spatial frequency along one axis."""

    frequencies: Array  # cycles per sample, `(m,)`
    power: Array  # of each, `(m,)`, in any unit


def scan_spectrum(diameter: float) -> Spectrum:
    """Returns the power of patterns as functions of the probe's position along one axis.

    A frequency comes from pairs of rays that differ by it. Its power is proportional to the number
    of such pairs, the overlap of two apertures, and ends at the aperture's diameter, 2 · semiangle
    / wavelength, cycles per scan step.
    """
    x = (np.arange(32) + 0.5) / 32
    return Spectrum(x * diameter, 2 / np.pi * (np.arccos(x) - x * np.sqrt(1 - x**2)))


def pattern_spectrum() -> Spectrum:
    """Returns the power of patterns along one axis of the detector, whose pixels average over disks
    with edges.
    """
    q = (np.arange(64) + 0.5) / 32
    return Spectrum(q, np.sinc(q) ** 2 / (q**2 + 0.05**2))


class Weights(NamedTuple):
    """Weights by the place of the estimate, from the stencil's first sample."""

    table: Array  # `(places, taps)`; place number i is (i / 32 − 1/2) samples from the first

    @property
    def taps(self) -> int:
        """Number of samples of the stencil."""
        return int(self.table.shape[1])

    def at(self, places: Array) -> Array:
        """Returns the weights `(n, taps)` of estimates at `places`, `(n,)`, samples from the
        stencil's first.
        """
        position = np.clip((places + 0.5) * _NODES, 0, len(self.table) - 1.001)
        node = position.astype(np.intp)
        fraction = (position - node)[:, None].astype(np.float32)
        return np.asarray((1 - fraction) * self.table[node] + fraction * self.table[node + 1])


def weights(spectrum: Spectrum, blur: float, samples: int, taps: int = 6) -> Weights:
    """Returns the weights of estimates along an axis.

    Args:
        blur: Standard deviation of the Gaussian, samples.
        taps: Samples of the stencil at least; it reaches two standard deviations beyond the nearest
            samples.
    """
    taps = min(samples, max(taps, 2 * int(np.ceil(1 + 2 * blur))))
    q = 2 * np.pi * spectrum.frequencies
    s = spectrum.power / spectrum.power.sum()
    at = np.arange(taps * _NODES + 1) / _NODES - 0.5
    k = np.arange(taps)
    covariance = np.cos(q * k[:, None]) @ s
    covariance = covariance[abs(k[:, None] - k)] + _NUGGET * np.eye(taps)
    damped = s * np.exp(-((q * blur) ** 2) / 2)
    cosine = np.cos(np.outer(at, q)) * damped
    sine = np.sin(np.outer(at, q)) * damped
    towards = cosine @ np.cos(np.outer(q, k)) + sine @ np.sin(np.outer(q, k))
    inverse = np.linalg.inv(covariance)
    free = towards @ inverse
    ones = inverse.sum(axis=1)
    table = free + (1 - free.sum(axis=1, keepdims=True)) * (ones / ones.sum())
    return Weights(table.astype(np.float32))


def matrix(
    y: Array,
    x: Array,
    shape: tuple[int, int],
    along_y: Weights,
    along_x: Weights,
    periodic: bool = False,
) -> SparseMatrix:
    """Returns the matrix `(n, ny · nx)` that estimates a signal on a grid at n points y, x, samples
    from the first.
    """
    rows, by_row = _stencil(y, shape[0], along_y, periodic)
    columns, by_column = _stencil(x, shape[1], along_x, periodic)
    indices = (rows * shape[1])[:, :, None] + columns[:, None, :]
    values = by_row[:, :, None] * by_column[:, None, :]
    taps = along_y.taps * along_x.taps
    ends = np.arange(0, len(y) * taps + 1, taps, dtype=np.int32)
    return csr_array((values.ravel(), indices.ravel(), ends), shape=(len(y), shape[0] * shape[1]))


def _stencil(at: Array, size: int, axis: Weights, periodic: bool) -> tuple[Array, Array]:
    """Returns the samples of each point's stencil, `(n, taps)`, and their weights."""
    start = np.floor(at).astype(np.int32) - (axis.taps // 2 - 1)
    if not periodic:
        start = np.clip(start, 0, size - axis.taps)
    samples = start[:, None] + np.arange(axis.taps, dtype=np.int32)
    return samples % size if periodic else samples, axis.at(at - start)
