"""High-resolution TEM: the image that a lens forms of an exit wave.

The lens multiplies the wave behind the specimen by A(k) exp(−iχ(k)), with the aberration phase of
the probe-forming lens (`namsa.physics.optics`): C10 = −defocus, and C10 > 0 is the wave further
down. The image is the intensity of the result. Partial coherence averages images, so that all
interference is right, not only that with the direct beam (by transmission cross-coefficients:
Kirkland, Advanced Computing in Electron Microscopy (2010), section 3.2):

- a focal spread of rms Δ changes C10 (Gaussian);
- an illumination of rms angle β tilts the beam (Gaussian in both directions). A tilt by q/λ is
  taken to shift the exit wave in reciprocal space, as that of a thin specimen: the lens then acts
  at k + q.
"""

from collections.abc import Mapping
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.fft

from namsa.base.arrays import Array, Floats
from namsa.base.errors import InputError
from namsa.physics.coherence import quadrature
from namsa.physics.grid import Grid
from namsa.physics.optics import aberration_phase, check_aberrations, wavelength_angstrom

MOST_IMAGES = 20_000  # coherent images that one partially coherent one averages
_NARROW = "give an aperture_mrad, or a smaller aperture or width"


class ImagingLens(NamedTuple):
    """The lens that forms an image, and its partial coherence."""

    energy_ev: float  # electron energy, eV
    aberrations: Mapping[str, float]  # Krivanek coefficients, Å and rad; C10 = −defocus
    aperture_mrad: float | None = None  # semi-angle of the objective aperture; `None`: none
    focal_spread_angstrom: float = 0.0  # rms of the Gaussian spread of defocus, Å
    illumination_mrad: float = 0.0  # rms of the Gaussian angles of illumination, per axis, mrad


def contrast_transfer(
    grid: Grid,
    lens: ImagingLens,
    c10_angstrom: float = 0.0,
    tilt_mrad: tuple[float, float] = (0.0, 0.0),
) -> npt.NDArray[np.complex128]:
    """Returns the transfer function of a coherent image, A(k) exp(−iχ(k)).

    Its imaginary part, −sin χ, transfers the phase of a weak object.

    Args:
        grid: The pixels of the wave.
        c10_angstrom: Change of C10, Å.
        tilt_mrad: Tilt (y, x) of the illumination, mrad: the function is that at k + tilt/λ.

    Returns:
        The function, (ny, nx), zero frequency first.

    Raises:
        InputError: If an aberration is unknown or out of its range.
    """
    wavelength = wavelength_angstrom(lens.energy_ev)
    ky, kx = grid.frequencies()
    ky = ky + tilt_mrad[0] * 1e-3 / wavelength
    kx = kx + tilt_mrad[1] * 1e-3 / wavelength
    alpha = wavelength * np.hypot(ky, kx)
    aberrations = dict(lens.aberrations)
    aberrations["C10"] = aberrations.get("C10", 0.0) + c10_angstrom
    transfer = np.exp(-1j * aberration_phase(alpha, np.arctan2(ky, kx), wavelength, aberrations))
    if lens.aperture_mrad is not None:
        transfer[alpha > lens.aperture_mrad * 1e-3] = 0
    return transfer


def form_images(waves: Array, grid: Grid, lens: ImagingLens) -> Floats:
    """Returns the images of exit waves.

    Args:
        waves: Exit waves (m, n, ny, nx) of m states in real space, as `Sample.waves`: Σ|ψ|² over
            states and pixels is the fraction of the beam.
        grid: Their pixels.

    Returns:
        Images (n, ny, nx), as multiples of the intensity of a plane wave without a specimen.

    Raises:
        InputError: If a setting is out of its range, or the partial coherence needs more than
            `MOST_IMAGES` coherent images.
    """
    _check(lens)
    shares = _coherent_images(grid, lens)
    images = np.zeros(waves.shape[1:])
    for state in waves:
        for index, wave in enumerate(state):
            spectrum = scipy.fft.fft2(wave)
            for share in shares:
                transfer = contrast_transfer(grid, lens, share.c10_angstrom, share.tilt_mrad)
                image = scipy.fft.ifft2(spectrum * transfer)
                images[index] += share.weight * (image.real**2 + image.imag**2)
    return images * (grid.shape[0] * grid.shape[1])


class _CoherentImage(NamedTuple):
    """One coherent image of the average."""

    weight: float
    c10_angstrom: float  # change of C10, Å
    tilt_mrad: tuple[float, float]  # tilt (y, x) of the illumination, mrad


def _coherent_images(grid: Grid, lens: ImagingLens) -> list[_CoherentImage]:
    """Returns the images whose average has the partial coherence of the lens."""
    wavelength = wavelength_angstrom(lens.energy_ev)
    largest_k = np.sqrt(grid.squared_frequency()).max()
    largest_k = min(largest_k, grid.band_limit)
    if lens.aperture_mrad is not None:
        largest_k = min(largest_k, lens.aperture_mrad * 1e-3 / wavelength)
    focal_s = np.pi * wavelength * lens.focal_spread_angstrom * largest_k**2
    defoci, focal_weights = quadrature("focal", lens.focal_spread_angstrom, focal_s, None, _NARROW)
    tilts, tilt_weights = quadrature(
        "illumination",
        lens.illumination_mrad,
        lens.illumination_mrad * 1e-3 / wavelength * _largest_gradient(lens, largest_k),
        None,
        _NARROW,
    )
    count = len(defoci) * len(tilts) ** 2
    if count > MOST_IMAGES:
        raise InputError(
            f"the partial coherence needs {count} coherent images, and at most {MOST_IMAGES} are "
            f"averaged: {_NARROW}"
        )
    focus = list(zip(defoci * lens.focal_spread_angstrom, focal_weights, strict=True))
    tilt = list(zip(tilts * lens.illumination_mrad, tilt_weights, strict=True))
    images = []
    for (c10, focal_weight), (tilt_y, weight_y), (tilt_x, weight_x) in product(focus, tilt, tilt):
        weight = float(focal_weight * weight_y * weight_x)
        images.append(_CoherentImage(weight, float(c10), (float(tilt_y), float(tilt_x))))
    return images


def _largest_gradient(lens: ImagingLens, largest_k: float) -> float:
    """Returns the largest difference of ∂χ/∂k along an axis between two frequencies, rad·Å.

    Args:
        largest_k: Largest frequency that the lens transfers, 1/Å.
    """
    wavelength = wavelength_angstrom(lens.energy_ev)
    k = np.linspace(-largest_k, largest_k, 129)
    ky, kx = np.meshgrid(k, k, indexing="ij")
    radius = np.hypot(ky, kx)
    phase = aberration_phase(
        wavelength * radius, np.arctan2(ky, kx), wavelength, dict(lens.aberrations)
    )
    inside = radius <= largest_k
    widths = []
    for gradient in np.gradient(phase, k, k):
        widths.append(float(np.ptp(gradient[inside])))
    return max(widths)


def _check(lens: ImagingLens) -> None:
    """Raises InputError if a setting of the lens is out of its range."""
    check_aberrations(lens.aberrations)
    aperture = lens.aperture_mrad
    if aperture is not None and not 0 < aperture <= 1000:
        raise InputError(f"aperture_mrad is {aperture}; it must be more than 0 and at most 1000")
    for name in ("focal_spread_angstrom", "illumination_mrad"):
        width = getattr(lens, name)
        if not (np.isfinite(width) and width >= 0):
            raise InputError(f"{name} is {width}; it must be 0 or more")
