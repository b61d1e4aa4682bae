"""Defocus and astigmatism from the shifts of tilted bright-field images.

A ray of the probe at angle α crosses the specimen at r + C α from the probe's position r, with the
matrix C of the second derivatives of the aberration function (path length) in the scan's frame: C10
on its diagonal, and C12. The image of the detector pixels at α is therefore that of the specimen
shifted by −C α. With β the angle in the detector's frame, α = O β with O the rotation and mirror
between the frames, and the shift is M β with M = −C O.

M is fitted to the cross spectra of all pairs of patches of the bright disk that are the same
distance apart, which are added up before: noise of counting is independent between patches and
averages out. C10 is that of the middle of the specimen: C10 at the entrance plus half the
thickness.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from namsa.base.arrays import Array, Floats
from namsa.inspection.spectra import frequencies, frequency_groups, sandwich, windowed_transform
from namsa.inspection.virtual_images import VirtualImages

MOST_APART = 4  # patches
STEPS = 60  # of the fit
# Of the agreement of the shifted images, over the scatter of that of noise. In 40 simulated scans
# of vacuum and noise the best agreement that a search finds was 2.8 to 9.8; a film of carbon at
# 10,000 electrons per pattern has 35.
LEAST_SIGNIFICANCE = 15.0


@dataclass(frozen=True)
class ShiftFit:
    """Shifts of tilted images: an image is shifted by M β."""

    matrix: Floats  # M, (y, x), in scan steps per pixel of the detector, `(2, 2)`
    covariance: Floats  # of M's four numbers, row by row, `(4, 4)`


def fit_shifts(images: VirtualImages) -> ShiftFit | None:
    """Fits the matrix of the shifts; `None` if scan or disk are too small, or nothing is in
    common.
    """
    _, sy, sx = images.patches.shape
    if min(sy, sx) < 8 or len(images.places) < 9:
        return None
    cross, power = _cross_spectra(images)
    if not cross:
        return None
    ky, kx = frequencies((sy, sx))
    low = np.hypot(ky, kx) < 0.45
    # Weights of maximum likelihood: signal over squared noise.
    total = ndimage.uniform_filter(power, 3, mode="wrap")
    common = np.clip(_common_power(cross), 0, 0.98 * total)
    weights = np.where(low, common / np.maximum(total**2 - common**2, 1e-300), 0)
    weights[0, 0] = 0
    if not weights.any():
        return None
    groups = frequency_groups((sy, sx))
    matrix = _first_guess(cross, weights, images.pitch)
    for most in range(1, MOST_APART + 1):
        chosen = []
        for apart, spectrum in cross.items():
            if max(map(abs, apart)) <= most:
                chosen.append((images.pitch @ apart, spectrum.total))
        matrix, covariance, agreement = _ascend(matrix, chosen, weights, ky, kx, groups)
    # Without anything in common, a sum of n cross spectra of power T has the variance n T².
    pairs = sum(spectrum.pairs for spectrum in cross.values())
    scatter = float(np.sqrt(pairs * ((weights * total) ** 2).sum()))
    if agreement > LEAST_SIGNIFICANCE * scatter:
        return ShiftFit(matrix, covariance)
    return None


class _CrossSpectrum(NamedTuple):
    """The sum of the cross spectra of all pairs of patches that are the same distance apart."""

    total: Array
    pairs: int  # number of pairs


_Apart = tuple[int, int]  # the distance, (y, x), in patches


def _common_power(cross: Mapping[_Apart, _CrossSpectrum]) -> Floats:
    """Returns the smoothed power that neighbouring patches have in common, with its sign."""
    of_neighbours = []
    for apart, (total, pairs) in cross.items():
        if max(map(abs, apart)) == 1:
            mean = total / pairs
            signed = np.abs(mean) * np.sign(mean.real + 0.0)
            of_neighbours.append(ndimage.uniform_filter(signed, 3, mode="wrap"))
    return np.asarray(np.mean(of_neighbours, axis=0))


def _cross_spectra(
    images: VirtualImages,
) -> tuple[dict[_Apart, _CrossSpectrum], Floats]:
    """Returns the cross spectra by distance, and the mean power spectrum."""
    total = images.patches.sum(axis=0)
    relative = images.patches / np.where(total > 0, total, 1)
    relative = relative / relative.mean(axis=(1, 2), keepdims=True)
    transforms = windowed_transform(relative).astype(np.complex64)
    numbers = {(int(row), int(column)): n for n, (row, column) in enumerate(images.places)}
    cross = {}
    for down in range(MOST_APART + 1):
        for along in range(-MOST_APART, MOST_APART + 1):
            if (down, along) <= (0, 0):
                continue
            pairs = [
                (numbers.get((row + down, column + along)), n)
                for (row, column), n in numbers.items()
            ]
            pairs = [(other, n) for other, n in pairs if other is not None]
            if pairs:
                spectrum = np.zeros(transforms.shape[1:], np.complex128)
                for other, n in pairs:
                    spectrum += transforms[other] * transforms[n].conj()
                cross[down, along] = _CrossSpectrum(spectrum, len(pairs))
    return cross, np.mean(np.abs(transforms) ** 2, axis=0)


def _first_guess(cross: Mapping[_Apart, _CrossSpectrum], weights: Floats, pitch: Floats) -> Floats:
    """Returns M from the peaks of the correlations of neighbouring patches along y and x."""
    shifts = []
    for apart in ((1, 0), (0, 1)):
        correlation = np.fft.ifft2(cross[apart].total * weights).real
        correlation = ndimage.gaussian_filter(correlation, 0.7, mode="wrap")
        peak = np.unravel_index(correlation.argmax(), correlation.shape)
        shifts.append(
            [(p + n // 2) % n - n // 2 for p, n in zip(peak, correlation.shape, strict=True)]
        )
    return np.asarray(np.array(shifts, float).T @ np.linalg.inv(pitch))


def _ascend(
    matrix: Floats,
    chosen: list[tuple[Floats, Array]],
    weights: Floats,
    ky: Floats,
    kx: Floats,
    groups: npt.NDArray[np.intp],
) -> tuple[Floats, Floats, float]:
    """Returns the M with the largest Σ w Re[G exp(2πi k·MΔ)], by damped Newton steps, its
    covariance, and the sum.
    """
    k = np.stack([ky + 0 * kx, kx + 0 * ky])

    def evaluate(m: Floats) -> tuple[float, Floats, Floats]:
        value = 0.0
        slopes = np.zeros((groups.max() + 1, 2, 2))
        hessian = np.zeros((4, 4))
        for apart, spectrum in chosen:
            along = 2 * np.pi * np.tensordot(m @ apart, k, 1)
            turned = weights * spectrum * np.exp(1j * along)
            value += float(turned.real.sum())
            slope = -2 * np.pi * turned.imag * k  # with respect to the shift
            sums = np.stack(
                [
                    np.bincount(groups.ravel(), component.ravel(), len(slopes))
                    for component in slope
                ],
                axis=1,
            )
            slopes += sums[:, :, None] * apart
            bend = (2 * np.pi) ** 2 * np.einsum("aij,bij,ij->ab", k, k, turned.real)
            hessian += np.einsum("ab,c,d->acbd", bend, apart, apart).reshape(4, 4)
        return value, slopes, hessian

    value, slopes, hessian = evaluate(matrix)
    damping = 1e-3
    for _ in range(STEPS):
        scale = np.eye(4) * np.trace(np.abs(hessian)) / 4
        step = np.linalg.solve(hessian + damping * scale, slopes.sum(axis=0).ravel()).reshape(2, 2)
        trial = evaluate(matrix + step)
        if trial[0] > value:
            matrix, (value, slopes, hessian), damping = matrix + step, trial, damping / 5
            if np.abs(step).max() < 1e-7 * max(np.abs(matrix).max(), 1e-6):
                break
        else:
            damping *= 5
            if damping > 1e6:
                break
    return matrix, sandwich(hessian, slopes.reshape(len(slopes), 4)), value


def corrected_bright_field(images: VirtualImages, matrix: Floats) -> Floats:
    """Returns the mean of the patches' images, each shifted back by −M β, relative to the mean,
    `(sy, sx)`.
    """
    relative = images.patches / images.patches.mean(axis=(1, 2), keepdims=True)
    total = np.zeros(relative.shape[1:])
    for image, tilt in zip(relative, images.tilts, strict=True):
        total += ndimage.shift(image.astype(np.float64), -(matrix @ tilt), order=1, mode="nearest")
    return np.asarray(total / len(relative))
