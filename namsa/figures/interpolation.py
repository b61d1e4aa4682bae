"""Images on finer pixels, for the eye: by the frequencies that their pixels hold, not by repeating pixels."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.fft import dctn, idctn
from scipy.ndimage import distance_transform_edt

FINER = 4
FINE = 256  # pixels along an axis, from which an image is drawn as it is


def interpolated(image: npt.NDArray[Any], finer: int = FINER) -> npt.NDArray[np.float64]:
    """Returns an image `(ny, nx)` on `finer` times the pixels along both axes, over the same area; NaN stays NaN.

    Its cosine transform is continued by zeros. This is Fourier interpolation of the image mirrored at its edges, which
    has no jump there. It is exact for an image without frequencies beyond those of its pixels, up to what the mirror
    changes within a few pixels of the edge.

    Returns:
        `(finer·ny, finer·nx)`.
    """
    values: npt.NDArray[Any] = np.asarray(image, np.float64)
    unknown = np.isnan(values)
    if unknown.all():
        return np.full((finer * values.shape[0], finer * values.shape[1]), np.nan)
    if unknown.any():  # continued by the nearest pixels
        nearest = distance_transform_edt(unknown, return_distances=False, return_indices=True)
        values = values[tuple(nearest)]
    found: npt.NDArray[np.float64] = finer * idctn(
        dctn(values, norm="ortho"), s=[finer * length for length in values.shape], norm="ortho"
    )
    found[np.repeat(np.repeat(unknown, finer, axis=0), finer, axis=1)] = np.nan
    return found
