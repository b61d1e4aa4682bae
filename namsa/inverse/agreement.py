"""How far two reconstructions of independent halves of the data agree: an estimate of their errors without a truth.

It holds for any method and any two images of one place: densities, or phases of ptychography. A method that adds the
same to both halves, as a network adds what it has learnt, agrees with itself better than with the specimen: the numbers
are lower bounds of the errors.
"""

from typing import NamedTuple

import numpy as np
from scipy.spatial import KDTree

from namsa.arrays import Array, Floats
from namsa.errors import InputError
from namsa.inverse.columns import RADIUS_ANGSTROM, local_maxima
from namsa.physics.grid import hann_window
from namsa.pixels import PixelGrid

THRESHOLD = 1 / 7  # of the correlation: 0.5 for the mean of both halves with the specimen (Rosenthal & Henderson 2003)


class RingCorrelation(NamedTuple):
    """The Fourier ring correlation of two images.

    Attributes:
        q_per_angstrom: Middles of the rings, `(n,)`, 1/Å.
        correlation: Re Σ F₁F₂* / √(Σ|F₁|² Σ|F₂|²) of each ring, `(n,)`.
        snr: Spectral signal-to-noise ratio of the mean of both, 2C/(1 − C), `(n,)`; infinite for equal images.
        resolution_angstrom: 1/q where the correlation first falls below `THRESHOLD`; of the last ring if it does not.
    """

    q_per_angstrom: Floats
    correlation: Floats
    snr: Floats
    resolution_angstrom: float


class ColumnErrors(NamedTuple):
    """How the columns of two images differ, as errors of the mean of both."""

    columns: int  # found in both
    unmatched: float  # share of the maxima of either that the other has not within `RADIUS_ANGSTROM`
    position_angstrom: float  # rms along one axis, but for the shift
    intensity: float  # rms of the heights above each image's median, over their mean
    shift_angstrom: tuple[float, float]  # mean displacement (y, x) from the second image to the first


def ring_correlation(first: Array, second: Array, pixels: PixelGrid) -> RingCorrelation:
    """Returns the Fourier ring correlation of two images `(ny, nx)` under a Hann window, without their means.

    Raises:
        InputError: If shapes differ, or if an image is complex, not finite or constant.
    """
    shape = _shape(first, second)
    window = hann_window(shape)
    a, b = (np.fft.fft2(window * (image - np.average(image, weights=window))) for image in (first, second))
    y, x = (np.fft.fftfreq(n, step) for n, step in zip(shape, pixels.step, strict=True))
    width = 2 / min(n * step for n, step in zip(shape, pixels.step, strict=True))  # the window joins two frequencies
    ring = np.round(np.hypot(y[:, None], x) / width).astype(int).ravel()
    count = int(min(np.abs(y).max(), np.abs(x).max()) / width)
    cross, own, other = (
        np.bincount(ring, each.ravel(), count + 1)[1 : count + 1]
        for each in ((a * b.conj()).real, np.abs(a) ** 2, np.abs(b) ** 2)
    )
    correlation = cross / np.sqrt(own * other)
    q = np.arange(1, count + 1) * width
    with np.errstate(divide="ignore"):
        snr = 2 * np.maximum(correlation, 0) / np.maximum(1 - correlation, 0)
    below = np.flatnonzero(correlation < THRESHOLD)
    return RingCorrelation(q, correlation, snr, float(1 / q[below[0] if len(below) else -1]))


def column_errors(first: Array, second: Array, pixels: PixelGrid) -> ColumnErrors | None:
    """Returns how the maxima of two images differ; `None` if they have none in common. Arguments and errors as above.

    A phase is known but for a constant, and two of them but for a shift: neither counts as an error.
    """
    _shape(first, second)
    (a, heights), (b, others) = (local_maxima(image, pixels) for image in (first, second))
    if not len(a) or not len(b):
        return None
    distance, index = (np.asarray(each) for each in KDTree(b).query(a))
    near = distance <= RADIUS_ANGSTROM
    if not near.any():
        return None
    offset, matched = a[near] - b[index[near]], int(near.sum())
    above, beside = heights[near] - np.median(first), others[index[near]] - np.median(second)
    return ColumnErrors(
        matched,
        1 - 2 * matched / (len(a) + len(b)),
        float(np.sqrt(np.mean(offset.std(axis=0) ** 2)) / 2),
        float(np.sqrt(np.mean((above - beside) ** 2)) / np.sum(above + beside) * matched),
        (float(offset[:, 0].mean()), float(offset[:, 1].mean())),
    )


def _shape(first: Array, second: Array) -> tuple[int, int]:
    """Returns the shape of two images that can be compared."""
    shape = np.shape(first)
    if shape != np.shape(second) or len(shape) != 2 or min(shape) < 8:
        raise InputError(
            f"images of {shape} and {np.shape(second)} pixels: give two of one shape, 8×8 or more; add slices up"
        )
    if np.iscomplexobj(first) or np.iscomplexobj(second):
        raise InputError("the images are complex: give phases, as np.angle returns them")
    if not all(np.isfinite(image).all() and np.ptp(image) > 0 for image in (first, second)):
        raise InputError("two images are compared if they are finite and not constant: cut off what is not known")
    return shape[0], shape[1]
