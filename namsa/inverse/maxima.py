"""Local maxima of an image, to a fraction of a pixel."""

import numpy as np
import numpy.typing as npt
from scipy.ndimage import map_coordinates
from skimage.feature import peak_local_max

from namsa.base.arrays import Array, Floats
from namsa.base.pixels import PixelGrid

RADIUS_ANGSTROM = 0.4  # of a maximum: half of the least distance of two
MIN_HEIGHT = 0.05  # of maxima above the image's minimum, in units of the image's range
MAX_PIXEL_ANGSTROM = 0.1  # of the interpolated image in which maxima are looked for
SMALLEST = 3  # pixels along an axis


def local_maxima(image: Array, pixels: PixelGrid) -> tuple[Floats, Floats]:
    """Finds the local maxima of an image.

    They are found in an image that is interpolated by splines, and refined by the parabola through
    each maximum and its two neighbours along each axis.

    Args:
        image: `(h, w)`.
        pixels: Its pixels, Å.

    Returns:
        Positions `(m, 2)`, (y, x), Å, and heights `(m,)`.
    """
    # before a spline's rounding makes maxima of a constant
    if np.ptp(image) == 0 or min(image.shape) < SMALLEST:
        return np.empty((0, 2)), np.empty(0)
    step = np.array(pixels.step)
    finer = np.maximum(np.ceil(step / MAX_PIXEL_ANGSTROM).astype(int), 1)
    fine = _interpolated(image, finer)
    threshold = fine.min() + MIN_HEIGHT * np.ptp(fine)
    distance = max(1, round(RADIUS_ANGSTROM / (step / finer).min()))
    peaks = peak_local_max(fine, min_distance=distance, threshold_abs=threshold, exclude_border=1)
    i, j = peaks.T
    heights = fine[i, j]
    places = peaks.astype(np.float64)
    places[:, 0] += _vertex(fine[i - 1, j], heights, fine[i + 1, j])
    places[:, 1] += _vertex(fine[i, j - 1], heights, fine[i, j + 1])
    return np.asarray(pixels.origin) + places / finer * step, heights


def _interpolated(image: Array, finer: npt.NDArray[np.intp]) -> Floats:
    """Returns an image with so many times the pixels along each axis, by splines."""
    rows, columns = (
        np.arange((length - 1) * times + 1) / times
        for length, times in zip(image.shape, finer, strict=True)
    )
    grid = np.meshgrid(rows, columns, indexing="ij")
    fine = map_coordinates(np.asarray(image, np.float64), grid, order=5, mode="mirror")
    return np.asarray(fine)


def _vertex(before: Floats, middle: Floats, after: Floats) -> Floats:
    """Returns where the parabola through three values one pixel apart is largest.

    Returns:
        Distance from the middle one, pixels; 0 if the parabola has no maximum.
    """
    curvature = before - 2 * middle + after
    bent = curvature < 0
    return np.where(bent, (before - after) / np.where(bent, 2 * curvature, 1), 0)
