"""Rotation and mirror between the detector and the scan, from the centre of mass.

The deflection of the beam by a thin specimen is the gradient of a potential, so that its curl
vanishes in the scan's frame. At every frequency k of the scan, the deflection is parallel to k
then. The angle that makes its part across k least is known in closed form, for the detector as it
is and for the detector with y and x exchanged. For a mirrored detector no angle makes the curl
vanish, so that the two are told apart. An angle and the same angle plus 180° have the same curl;
see `sign_by_dark_field` and `sign_by_peaks`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Floats
from namsa.inspection.spectra import frequencies, frequency_groups, sandwich, windowed_transform

SHARPENING = 0.01  # noise over signal of the Wiener filter


@dataclass(frozen=True)
class CurlFit:
    """The rotation of least curl, from the detector's frame to the scan's; see
    `namsa.io.calibration`.
    """

    rotation_deg: float  # rotation, from −90 to 90 degrees; plus 180° it is as good
    error_deg: float  # its standard error
    flip: bool  # whether y and x are exchanged first
    curl: float  # part of the deflection's variance, beyond noise, that is curl at this rotation
    other_curl: float  # the same at the best rotation of the other handedness
    significance: float  # difference of the two, in standard errors


def rotated(deflection: Floats, rotation_deg: float, flip: bool) -> Floats:
    """Returns deflections `(..., 2)` in the scan's frame: y and x exchanged if `flip`, then
    rotated.
    """
    y, x = (
        (deflection[..., 1], deflection[..., 0])
        if flip
        else (deflection[..., 0], deflection[..., 1])
    )
    angle = np.deg2rad(rotation_deg)
    return np.stack(
        [y * np.cos(angle) - x * np.sin(angle), y * np.sin(angle) + x * np.cos(angle)], axis=-1
    )


def least_curl(deflection: Floats, noise: float | None = None) -> CurlFit | None:
    """Finds the rotation at which the curl is least.

    Args:
        deflection: Centre of mass, `(sy, sx, 2)`, (y, x).
        noise: Variance of one component from counting; by default that of the highest frequencies.

    Returns:
        The fit, or `None` if the scan is smaller than 4 × 4 or shows no deflection beyond noise.
    """
    sy, sx = deflection.shape[:2]
    if min(sy, sx) < 4:
        return None
    transforms = windowed_transform(np.moveaxis(deflection, -1, 0))
    ky, kx = frequencies((sy, sx))
    size = np.hypot(ky, kx)
    direction = np.arctan2(ky, kx) * np.ones((sy, sx))
    power = (np.abs(transforms) ** 2).sum(axis=0)
    used = (size > 1.5 / min(sy, sx)) & (size < 0.5)
    # Noise is the same at all frequencies; where the signal is weak compared with it, it would only
    # add scatter.
    if noise is None:
        floor = float(np.median(power[size > 0.4]))
    else:
        floor = noise * 2 * float(sy * sx) * 0.140625
    level = _radial_mean(power, size)
    signal = np.clip(level - floor, 0, None)
    weights = np.where(used, signal / np.maximum(level, 1e-300) ** 2, 0)
    if not weights.any():
        return None
    groups = frequency_groups((sy, sx))
    as_stored = _fit(transforms, direction, weights, groups)
    mirrored = _fit(transforms[::-1], direction, weights, groups)
    is_mirrored = bool(mirrored.curl.sum() < as_stored.curl.sum())
    best, other = (mirrored, as_stored) if is_mirrored else (as_stored, mirrored)
    total = (weights * signal).sum()
    # Noise has as much curl as divergence.
    curl_of_noise = (weights * np.minimum(floor, level)).sum() / 2
    difference = other.curl - best.curl
    spread = float(difference.std(ddof=1) * np.sqrt(len(difference)))
    return CurlFit(
        rotation_deg=best.angle_deg,
        error_deg=best.error_deg,
        flip=is_mirrored,
        curl=max(0.0, (best.curl.sum() - curl_of_noise) / total),
        other_curl=max(0.0, (other.curl.sum() - curl_of_noise) / total),
        significance=float(difference.sum() / spread) if spread > 0 else np.inf,
    )


class _AngleFit(NamedTuple):
    """The angle of least curl."""

    angle_deg: float
    error_deg: float
    curl: Floats  # of each group of frequencies


def _fit(
    transforms: npt.NDArray[np.complex128],
    direction: Floats,
    weights: Floats,
    groups: npt.NDArray[np.intp],
) -> _AngleFit:
    """Returns the angle of least curl of the transforms (y, x) of a deflection."""
    gy, gx = transforms
    # The part across k of a deflection turned by θ is |g_y cos(β + θ) − g_x sin(β + θ)| with k =
    # |k| (sin β, cos β): with P = g_y conj(g_y) and so on, its square is (P_yy + P_xx)/2 + A cos
    # 2(β + θ) − B sin 2(β + θ).
    mean = (np.abs(gy) ** 2 + np.abs(gx) ** 2) / 2
    a = (np.abs(gy) ** 2 - np.abs(gx) ** 2) / 2
    b = (gy * gx.conj()).real
    c = np.cos(2 * direction)
    s = np.sin(2 * direction)

    def by_group(values: Floats) -> Floats:
        return np.asarray(np.bincount(groups.ravel(), (weights * values).ravel()), float)

    # A vector turned by +θ in (y, x) has the direction of k turned by −θ seen from the vector.
    even = by_group(a * c - b * s)
    odd = by_group(a * s + b * c)
    cosine = even.sum()
    sine = odd.sum()
    constant = by_group(mean)
    theta = np.arctan2(-sine, -cosine) / 2
    curl = constant + even * np.cos(2 * theta) + odd * np.sin(2 * theta)
    scores = 2 * (odd * np.cos(2 * theta) - even * np.sin(2 * theta))
    hessian = -4 * (cosine * np.cos(2 * theta) + sine * np.sin(2 * theta))
    variance = sandwich(np.array([[hessian]]), scores[:, None])[0, 0]
    return _AngleFit(float(-np.rad2deg(theta)), float(np.rad2deg(np.sqrt(variance))), curl)


def _radial_mean(values: Floats, size: Floats) -> Floats:
    """Returns the mean of values at frequencies of about the same size."""
    bins = np.round(size * min(values.shape)).astype(int)
    means = np.bincount(bins.ravel(), values.ravel()) / np.maximum(np.bincount(bins.ravel()), 1)
    return np.asarray(means[bins])


def sign_by_dark_field(phase: Floats, dark: Floats) -> tuple[int, float]:
    """Returns the sign with which an integrated deflection `(sy, sx)` is a potential, by the dark
    field `(sy, sx)`.

    Potentials are positive, and matter scatters: where the phase is high, the dark field is bright.
    The probe blurs both images alike, so that their cross spectrum keeps its sign at any defocus.

    Returns:
        1, or −1 if the phase is to be inverted, and the correlation in standard errors.
    """
    phase_waves, dark_waves = windowed_transform(np.stack([phase, dark]))
    size = np.hypot(*frequencies(phase.shape))
    product = (phase_waves * dark_waves.conj()).real / np.sqrt(
        _radial_mean(np.abs(phase_waves) ** 2, size) + 1e-300
    )
    product /= np.sqrt(_radial_mean(np.abs(dark_waves) ** 2, size) + 1e-300)
    used = (size > 0) & (size < 0.25)
    parts = np.bincount(frequency_groups(phase.shape)[used], product[used])
    error = float(parts.std(ddof=1) * np.sqrt(len(parts)))
    return (1 if parts.sum() > 0 else -1), abs(float(parts.sum())) / error if error > 0 else 0.0


def sign_by_peaks(phase: Floats) -> tuple[int, float]:
    """Returns the sign with which an integrated deflection `(sy, sx)` without blur is a potential:
    atoms are peaks.

    Returns:
        1 if high values are the tails of the distribution, −1 if low values are, and the skewness
        in standard errors, from the scatter of nine regions.
    """
    cubes = (phase - phase.mean()) ** 3
    blocks = [
        block.mean() for row in np.array_split(cubes, 3) for block in np.array_split(row, 3, axis=1)
    ]
    error = float(np.std(blocks, ddof=1) / np.sqrt(len(blocks)))
    mean = float(np.mean(blocks))
    return (1 if mean > 0 else -1), abs(mean) / error if error > 0 else 0.0


def sharpened(
    phase: Floats,  # integrated deflection, `(sy, sx)`
    defocus_angstrom: float,  # of the probe, Å
    semiangle_mrad: float,  # of the probe, mrad
    step_angstrom: tuple[float, float],  # steps of the scan, (y, x), Å
    wavelength: float,  # of the electrons, Å
) -> Floats:
    """Removes the probe's blur from an integrated deflection, which is the phase convolved with
    |probe|².

    A defocused probe inverts the contrast of some frequencies. Its transfer function is the mean of
    cos(2πλ C10 k·q) over the overlap of two disks that are q apart; it is the same for −C10. The
    filter is Wiener's.
    """
    ky, kx = frequencies(phase.shape)
    radius = semiangle_mrad * 1e-3 / wavelength
    q = np.hypot(ky / step_angstrom[0], kx / step_angstrom[1])
    apart = np.linspace(0, 2 * radius, 400)[:, None]
    along = np.linspace(-1, 1, 801) * np.maximum(radius - apart / 2, 0)
    height = np.sqrt(np.maximum(radius**2 - (np.abs(along) + apart / 2) ** 2, 0))
    waves = height * np.cos(2 * np.pi * wavelength * defocus_angstrom * along * apart)
    transfer = waves.mean(axis=1) * (radius - apart[:, 0] / 2)
    transfer = np.interp(q, apart[:, 0], transfer / transfer[0], right=0.0)
    return np.asarray(np.fft.ifft2(np.fft.fft2(phase) * transfer / (transfer**2 + SHARPENING)).real)
