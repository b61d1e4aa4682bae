"""Translations that repeat an image, and its mean over them."""

from collections.abc import Sequence

import numpy as np
from scipy.ndimage import map_coordinates

from namsa.base.arrays import Floats
from namsa.base.pixels import PixelGrid
from namsa.inverse.maxima import RADIUS_ANGSTROM, local_maxima

REPEATS = 0.9  # correlation of an image with itself from which on a translation repeats it


def average_over_lattice(image: Floats, pixels: PixelGrid) -> Floats:
    """Returns the mean of an image over the translations that repeat it; the image, if none does.

    Noise displaces columns of atoms, makes equal ones unequal and adds others: they scatter
    otherwise than a crystal's.

    Args:
        image: `(ny, nx)`.
        pixels: Its pixels, Å.
    """
    moved = [translated(image, pixels, vector) for vector in repeating_translations(image, pixels)]
    return np.asarray(np.nanmean([image, *moved], axis=0))


def repeating_translations(image: Floats, pixels: PixelGrid) -> Floats:
    """Returns the translations that repeat an image, by at most half of it.

    Args:
        image: `(ny, nx)`.
        pixels: Its pixels, Å.

    Returns:
        `(n, 2)` as (y, x), Å.
    """
    ny, nx = image.shape
    half_y = ny // 2
    half_x = nx // 2
    # half of the image is in common
    window = (slice(ny - half_y, ny + half_y + 1), slice(nx - half_x, nx + half_x + 1))
    products = _autocorrelation(image - image.mean())[window]
    overlaps = _autocorrelation(np.ones(image.shape))[window]  # pixels in common
    correlation = products / overlaps / image.var()
    step_y, step_x = pixels.step
    around = PixelGrid(pixels.step, (-half_y * step_y, -half_x * step_x))
    vectors, heights = local_maxima(correlation, around)
    return np.asarray(vectors[(heights > REPEATS) & (np.hypot(*vectors.T) > RADIUS_ANGSTROM)])


def _autocorrelation(image: Floats) -> Floats:
    """Returns the sums of an image times itself moved, `(2·ny, 2·nx)`; no move is in the middle."""
    padded = (2 * image.shape[0], 2 * image.shape[1])
    power = np.abs(np.fft.rfft2(image, padded)) ** 2
    return np.fft.fftshift(np.fft.irfft2(power, padded))


def translated(image: Floats, pixels: PixelGrid, vector: Sequence[float]) -> Floats:
    """Returns an image as it is at a distance from each pixel; NaN beyond its edges.

    Args:
        image: `(ny, nx)`.
        pixels: Its pixels, Å.
        vector: The distance, (y, x), Å.
    """
    indices = np.indices(image.shape) + np.divide(vector, pixels.step)[:, None, None]
    last = np.reshape(image.shape, (2, 1, 1)) - 1
    inside = np.all((indices >= 0) & (indices <= last), axis=0)
    moved = map_coordinates(image, indices, order=5, mode="mirror")
    return np.where(inside, moved, np.nan)
