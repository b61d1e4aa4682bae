"""Partial coherence: an incoherent sum over coherent probes.

An extended source shifts the probe, and an energy spread defocuses it. Both have Gaussian distributions. Patterns are
averaged by quadrature, so that nothing is random. With u a normal deviate of unit variance, the source averages over
shifts σu and multiplies the coherence of two rays k₁ and k₂ by exp(−½s²), s = 2πσ|k₁ − k₂|. The focal spread Δ averages
over defocus and does the same with s = πλΔ|k₁² − k₂²|. The error of a quadrature with n points is therefore its
deviation from exp(−½s²) up to the aperture's largest s. It is known before the simulation, and n is chosen by it. Every
point costs a simulation of all probes.

A scan that fills the periodic cell finely enough needs no quadrature: see `average_over_source`.
"""

from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import constants

from namsa.arrays import Floats
from namsa.errors import InputError
from namsa.physics.grid import Grid

TOLERANCE = 1e-3  # of the coherence between any two rays
MAX_POINTS = 64  # per axis
FWHM = float(2 * np.sqrt(2 * np.log(2)))  # full width at half maximum of a Gaussian, in standard deviations
_REST_ENERGY_EV = constants.m_e * constants.c**2 / constants.e


class Mode(NamedTuple):
    """One coherent probe of the sum."""

    share: float  # share of the beam
    c10: float  # change of C10, Å
    shift: tuple[float, float]  # shift (y, x), Å


def focal_spread_angstrom(energy_ev: float, chromatic_aberration_mm: float, energy_spread_ev: float) -> float:
    """Returns the focal spread Δ = C_c (δE/E) (1 + E/mc²)/(1 + E/2mc²) of a lens with chromatic aberration.

    Reimer & Kohl, Transmission Electron Microscopy, 5th ed. (2008).

    Args:
        energy_spread_ev: FWHM of the electron energy, eV; δE is the standard deviation.

    Returns:
        Rms of the defocus, Å.
    """
    relativistic = (1 + energy_ev / _REST_ENERGY_EV) / (1 + energy_ev / (2 * _REST_ENERGY_EV))
    return chromatic_aberration_mm * 1e7 * energy_spread_ev / FWHM / energy_ev * relativistic


def modes(
    wavelength: float,  # electron wavelength, Å
    semiangle_mrad: float,  # semi-angle of convergence, mrad
    source_size_angstrom: float = 0.0,  # FWHM of the source's image at the specimen, Å
    # Shifts along each axis. By default as many as keep the error of the coherence to `TOLERANCE`.
    source_points: int | None = None,
    focal_spread_angstrom: float = 0.0,  # rms of the defocus, Å
    focal_points: int | None = None,  # defoci. By default as many as keep the error of the coherence to `TOLERANCE`
) -> list[Mode]:
    """Returns the coherent probes whose patterns, weighted by share, add up to those of a partially coherent probe.

    Raises:
        InputError: If a width is negative, or needs more than `MAX_POINTS` points.
    """
    sigma, aperture = source_size_angstrom / FWHM, semiangle_mrad * 1e-3 / wavelength
    offsets, source_shares = _quadrature(
        "source", source_size_angstrom, 2 * np.pi * sigma * 2 * aperture, source_points
    )
    defoci, focal_shares = _quadrature(
        "focal", focal_spread_angstrom, np.pi * wavelength * focal_spread_angstrom * aperture**2, focal_points
    )
    return [
        Mode(float(f * y * x), float(focal_spread_angstrom * c10), (float(sigma * dy), float(sigma * dx)))
        for (c10, f), (dy, y), (dx, x) in product(
            zip(defoci, focal_shares, strict=True),
            zip(offsets, source_shares, strict=True),
            zip(offsets, source_shares, strict=True),
        )
    ]


def _quadrature(name: str, width: float, largest_s: float, points: int | None) -> tuple[Floats, Floats]:
    """Returns (nodes in standard deviations, shares that sum to 1)."""
    if not (np.isfinite(width) and width >= 0):
        raise InputError(f"the {name} width is {width} Å; it must be 0 or more")
    if points is not None and not 1 <= points <= MAX_POINTS:
        raise InputError(f"{name}_points is {points}; it must lie in 1 to {MAX_POINTS}")
    if width == 0:
        return np.zeros(1), np.ones(1)
    s = np.linspace(0, largest_s, 256)

    def error(nodes: Floats, shares: Floats) -> float:
        return float(np.abs(np.cos(np.outer(s, nodes)) @ shares - np.exp(-(s**2) / 2)).max())

    for count in range(1, MAX_POINTS + 1) if points is None else (points,):
        # Gauss–Hermite needs the fewest points for narrow spreads, equal steps for wide ones.
        best = min(_gauss_hermite(count), _equal_steps(count, largest_s), key=lambda rule: error(*rule))
        if points is not None or error(*best) <= TOLERANCE:
            return best
    raise InputError(
        f"a {name} width of {width:g} Å needs more than {MAX_POINTS} quadrature points at this aperture: make it "
        f"smaller, or give {name}_points yourself"
    )


def _gauss_hermite(points: int) -> tuple[Floats, Floats]:
    """Returns nodes and shares of Gauss–Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    return nodes, weights / weights.sum()


def _equal_steps(points: int, largest_s: float) -> tuple[Floats, Floats]:
    """Returns nodes and shares of equal steps.

    The step h makes what is cut off, beyond nh/2, equal to what is aliased, beyond 2π/h − s.
    """
    step = (np.sqrt(largest_s**2 + 4 * np.pi * points) - largest_s) / points
    nodes = (np.arange(points) - (points - 1) / 2) * step
    weights = np.exp(-(nodes**2) / 2)
    return nodes, weights / weights.sum()


def resolved_scan_shape(
    scan_shape: tuple[int, int] | None,  # rows and columns (sy, sx) of the raster, or `None`
    positions: Floats,  # probe positions (n, 2) as (y, x), Å
    grid: Grid,
    wavelength: float,  # electron wavelength, Å
    semiangle_mrad: float,  # semi-angle of convergence, mrad
) -> tuple[int, int] | None:
    """Returns the scan's shape if the scan resolves all variation of the patterns, otherwise `None`.

    A pixel of a pattern is a sum over pairs of rays. As a function of probe position it has no frequency above the
    aperture's diameter: two semi-angles and one pixel of the soft edge. A scan that fills the cell evenly with finer
    steps determines it everywhere.
    """
    if scan_shape is None:
        return None
    extent, shape = np.array(grid.extent_angstrom), np.array(scan_shape)
    even = positions[0] + np.argwhere(np.ones(scan_shape)) * extent / shape
    diameter = 2 * semiangle_mrad * 1e-3 / wavelength + 1 / extent.min()
    resolved = np.allclose(positions, even, rtol=0, atol=1e-6) and np.all(diameter < shape / (2 * extent))
    return scan_shape if resolved else None


def average_over_source(
    # Patterns (n, dy, dx) of a scan for which `resolved_scan_shape` is not `None`; changed in place.
    cbed: npt.NDArray[np.floating],
    scan_shape: tuple[int, int],  # rows and columns (sy, sx) of the raster
    extent_angstrom: tuple[float, float],  # sides (Ly, Lx) of the cell, Å
    source_size_angstrom: float,  # FWHM of the source's image at the specimen, Å
) -> None:
    """Averages patterns over the source, in place: an exact convolution along the scan, by its Fourier sum.

    Rounding can make an intensity of zero slightly negative; it is set to zero.
    """
    weight_y, weight_x = (
        _periodic_gaussian(n, extent, source_size_angstrom / FWHM).astype(cbed.dtype)
        for n, extent in zip(scan_shape, extent_angstrom, strict=True)
    )
    for row in range(cbed.shape[1]):  # one row of the detector at a time limits the memory
        patterns = cbed[:, row].reshape(*scan_shape, -1)
        averaged = np.matmul(weight_x, np.tensordot(weight_y, patterns, (1, 0)))
        cbed[:, row] = np.maximum(averaged, 0).reshape(len(cbed), -1)


def _periodic_gaussian(n: int, extent: float, sigma: float) -> Floats:
    """Returns the matrix (n, n) that convolves n even samples over a period with a Gaussian."""
    frequencies = np.fft.fftfreq(n, extent / n)
    kernel = np.fft.ifft(np.exp(-2 * np.pi**2 * sigma**2 * frequencies**2)).real
    return kernel[(np.arange(n)[:, None] - np.arange(n)) % n]
