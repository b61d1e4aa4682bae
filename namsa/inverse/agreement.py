"""The agreement of two reconstructions of independent halves of the data.

It estimates their errors without a truth.

It holds for any method and any two images of one place: densities, or phases of ptychography. A
method that adds the same to both halves, as a network adds what it has learnt, agrees with itself
better than with the specimen: the numbers are lower bounds of the errors.
"""

from typing import NamedTuple

import numpy as np
from scipy.spatial import KDTree

from namsa.base.arrays import Array, Floats
from namsa.base.errors import InputError
from namsa.base.pixels import PixelGrid
from namsa.inverse.maxima import RADIUS_ANGSTROM, local_maxima
from namsa.physics.grid import hann_window

# of the correlation: 0.5 for the mean of both halves with the specimen (Rosenthal & Henderson 2003)
THRESHOLD = 1 / 7
# of the strongest ring's power: rings with less have no signal, as those of a crystal between Bragg
# spots
_LEAST_POWER = 0.01
SMALLEST = 8  # pixels of an image along an axis


class RingCorrelation(NamedTuple):
    """The Fourier ring correlation of two images.

    Attributes:
        q_per_angstrom: Middles of the rings, `(n,)`, 1/Å.
        correlation: Re Σ F₁F₂* / √(Σ|F₁|² Σ|F₂|²) of each ring, `(n,)`.
        snr: Spectral signal-to-noise ratio of the mean of both, 2C/(1 − C), `(n,)`; infinite for
            equal images.
        resolution_angstrom: 1/q of the last ring before the correlation falls below `THRESHOLD`, of
            rings with a hundredth of the strongest one's power or more; of the first ring if it is
            below.
    """

    q_per_angstrom: Floats
    correlation: Floats
    snr: Floats
    resolution_angstrom: float


class ColumnErrors(NamedTuple):
    """Differences of two images' columns, as errors of the mean of both."""

    columns: int  # found in both
    # share of the maxima of either that the other has not within `RADIUS_ANGSTROM`
    unmatched: float
    position_angstrom: float  # rms along one axis, but for the shift
    intensity: float  # rms of the heights above each image's median, over their mean
    # mean displacement (y, x) from the second image to the first
    shift_angstrom: tuple[float, float]


def ring_correlation(first: Array, second: Array, pixels: PixelGrid) -> RingCorrelation:
    """Returns the Fourier ring correlation of two images under a Hann window, without their means.

    Args:
        first: `(ny, nx)`.
        second: The same.
        pixels: Their pixels, Å.

    Raises:
        InputError: If shapes differ, or if an image is complex, not finite or constant.
    """
    shape = _shape(first, second)
    first_spectrum = _windowed_spectrum(first)
    second_spectrum = _windowed_spectrum(second)
    step_y, step_x = pixels.step
    y = np.fft.fftfreq(shape[0], step_y)
    x = np.fft.fftfreq(shape[1], step_x)
    width = 2 / min(shape[0] * step_y, shape[1] * step_x)  # the window joins two frequencies
    ring = np.round(np.hypot(y[:, None], x) / width).astype(int)
    count = int(min(np.abs(y).max(), np.abs(x).max()) / width)

    cross = _ring_sums((first_spectrum * second_spectrum.conj()).real, ring, count)
    first_power = _ring_sums(np.abs(first_spectrum) ** 2, ring, count)
    second_power = _ring_sums(np.abs(second_spectrum) ** 2, ring, count)
    power = np.sqrt(first_power * second_power)
    correlation = cross / power
    q = np.arange(1, count + 1) * width
    with np.errstate(divide="ignore"):
        snr = 2 * np.maximum(correlation, 0) / np.maximum(1 - correlation, 0)
    with_signal = np.flatnonzero(power >= _LEAST_POWER * power.max())
    agree = correlation[with_signal] >= THRESHOLD
    count_before = len(agree) if agree.all() else int(np.argmin(agree))
    last = with_signal[max(count_before - 1, 0)]
    return RingCorrelation(q, correlation, snr, float(1 / q[last]))


def _windowed_spectrum(image: Array) -> Array:
    """Returns the Fourier transform of an image under a Hann window, without its mean there."""
    window = hann_window((image.shape[0], image.shape[1]))
    return np.asarray(np.fft.fft2(window * (image - np.average(image, weights=window))))


def _ring_sums(values: Array, ring: Array, count: int) -> Floats:
    """Returns the sums over the rings 1 to `count`."""
    return np.asarray(np.bincount(ring.ravel(), values.ravel(), count + 1)[1 : count + 1])


def column_errors(first: Array, second: Array, pixels: PixelGrid) -> ColumnErrors | None:
    """Returns how the maxima of two images differ; `None` if they have none in common.

    A phase is known but for a constant, and two of them but for a shift: neither counts as an
    error.

    Args:
        first: `(ny, nx)`.
        second: The same.
        pixels: Their pixels, Å.

    Raises:
        InputError: As `ring_correlation`.
    """
    _shape(first, second)
    first_yx, first_heights = local_maxima(first, pixels)
    second_yx, second_heights = local_maxima(second, pixels)
    if not len(first_yx) or not len(second_yx):
        return None
    distance, index = KDTree(second_yx).query(first_yx)
    near = np.asarray(distance <= RADIUS_ANGSTROM)
    if not near.any():
        return None
    partner = np.asarray(index)[near]
    offset = first_yx[near] - second_yx[partner]
    matched = int(near.sum())
    first_above = first_heights[near] - np.median(first)
    second_above = second_heights[partner] - np.median(second)
    position_variance = np.mean(offset.std(axis=0) ** 2)
    height_difference = np.sqrt(np.mean((first_above - second_above) ** 2))
    return ColumnErrors(
        columns=matched,
        unmatched=1 - 2 * matched / (len(first_yx) + len(second_yx)),
        position_angstrom=float(np.sqrt(position_variance) / 2),
        intensity=float(height_difference / np.sum(first_above + second_above) * matched),
        shift_angstrom=(float(offset[:, 0].mean()), float(offset[:, 1].mean())),
    )


def _shape(first: Array, second: Array) -> tuple[int, int]:
    """Returns the shape of two images that can be compared."""
    shape = np.shape(first)
    if shape != np.shape(second) or len(shape) != 2 or min(shape) < SMALLEST:
        raise InputError(
            f"images of {shape} and {np.shape(second)} pixels: give two of one shape, 8×8 or more; "
            "add slices up"
        )
    if np.iscomplexobj(first) or np.iscomplexobj(second):
        raise InputError("the images are complex: give phases, as np.angle returns them")
    if not all(np.isfinite(image).all() and np.ptp(image) > 0 for image in (first, second)):
        raise InputError(
            "two images are compared if they are finite and not constant: cut off what is not known"
        )
    return shape[0], shape[1]
