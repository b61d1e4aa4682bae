"""Images on other pixels of the same area, by the frequencies that their pixels hold."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.fft import dctn, idctn
from scipy.ndimage import distance_transform_edt

from namsa.base.arrays import Array

FINER = 4
FINE = 256  # pixels along an axis, from which an image is drawn as it is


def interpolated(image: Array, finer: int = FINER) -> npt.NDArray[np.float64]:
    """Returns an image `(ny, nx)` on `finer` times the pixels along both axes; NaN stays NaN.

    Its cosine transform is continued by zeros. This is Fourier interpolation of the image mirrored
    at its edges, which has no jump there. It is exact for an image without frequencies beyond those
    of its pixels, up to what the mirror changes within a few pixels of the edge.

    Returns:
        `(finer·ny, finer·nx)`.
    """
    ny, nx = image.shape
    return resampled(image, (finer * ny, finer * nx))


def resampled(image: Array, shape: Sequence[int]) -> npt.NDArray[np.float64]:
    """Returns an image `(ny, nx)` on as many pixels as `shape` has, finer or coarser ones, as
    `interpolated` does.

    Coarser pixels leave out the frequencies that they cannot hold.
    """
    values: Array = np.asarray(image, np.float64)
    unknown = np.isnan(values)
    if unknown.all():
        return np.full(tuple(shape), np.nan)
    if unknown.any():  # continued by the nearest pixels
        nearest = distance_transform_edt(unknown, return_distances=False, return_indices=True)
        values = values[tuple(nearest)]
    ratio = math.sqrt(math.prod(shape) / values.size)
    finer: npt.NDArray[np.float64] = ratio * idctn(
        dctn(values, norm="ortho"), s=list(shape), norm="ortho"
    )
    if unknown.any():
        rows, columns = (
            np.arange(new) * old // new for new, old in zip(shape, values.shape, strict=True)
        )
        finer[unknown[np.ix_(rows, columns)]] = np.nan
    return finer
