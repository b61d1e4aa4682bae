"""Number of the values that patterns are compared in which count as independent.

What a model of patterns leaves is of counting and of the model: thermal diffuse scattering, slices,
the place of atoms along the beam. The latter is alike at neighbouring pixels and positions. If the
squared correlation ρ² of what is left sums up to λ over distances on the detector and along the
scan, one in λ numbers is independent, as for a Gaussian random field. White noise has λ = 1. So
priors weigh what they are worth beside patterns that a model cannot explain to the last.
"""

import numpy as np
from scipy import fft

from namsa.base.arrays import Array, Floats

MOST_POSITIONS = 4  # distance of positions up to which correlation is counted, along each axis
MOST_PIXELS = 8  # the same on the detector


def independent_share(left: Array) -> float:
    """Returns the share of numbers that count as independent, from 0 to 1.

    Args:
        left: What the model leaves, over the root of its intensity, `(sy, sx, dy, dx)`; 0 where a
            pattern is lost.
    """
    if not left.any():
        return 1.0
    along_scan = _correlation_sum(left.reshape(*left.shape[:2], -1), MOST_POSITIONS)
    moved = np.moveaxis(left, (2, 3), (0, 1)).reshape(*left.shape[2:], -1)
    on_detector = _correlation_sum(moved, MOST_PIXELS)
    return 1 / (along_scan * on_detector)


def _correlation_sum(images: Array, most: int) -> float:
    """Returns the sum of ρ² over distances of up to `most` pixels, 1 or more.

    Args:
        images: `(ny, nx, n)`; the correlation is averaged over the last axis.
        most: Pixels along each axis.
    """
    ny, nx = images.shape[:2]
    shape = (fft.next_fast_len(ny + most), fft.next_fast_len(nx + most))
    power = np.zeros(shape)
    for batch in np.array_split(images, max(1, images.shape[2] // 128), axis=2):
        waves = fft.fft2(batch, shape, axes=(0, 1))
        power += (waves.real**2 + waves.imag**2).sum(axis=2)
    products = fft.ifft2(power).real
    pairs = _overlaps(ny, shape[0])[:, None] * _overlaps(nx, shape[1])
    near = np.ix_(_near(most, ny, shape[0]), _near(most, nx, shape[1]))
    covariance = products[near] / pairs[near]
    variance = products[0, 0] / pairs[0, 0]
    return max(1.0, float(((covariance / variance) ** 2).sum()))


def _near(most: int, length: int, padded: int) -> Array:
    """Returns the indices of distances of up to `most`, in the order of a Fourier transform."""
    reach = min(most, length - 1)
    return np.arange(-reach, reach + 1) % padded


def _overlaps(length: int, padded: int) -> Floats:
    """Returns how many pairs of pixels along an axis have each distance, at least 1."""
    index = np.arange(padded)
    distance = np.minimum(index, padded - index)
    return np.maximum(length - distance, 1).astype(np.float64)
