"""Partial coherence: an incoherent sum over coherent probes.

An extended source shifts the probe, and an energy spread defocuses it. Both have Gaussian
distributions. Patterns are averaged by quadrature, so that nothing is random. With u a normal
deviate of unit variance, the source averages over shifts σu and multiplies the coherence of two
rays k₁ and k₂ by exp(−½s²), s = 2πσ|k₁ − k₂|. The focal spread Δ averages over defocus and does the
same with s = πλΔ|k₁² − k₂²|. The error of a quadrature with n points is therefore its deviation
from exp(−½s²) up to the aperture's largest s. It is known before the simulation, and n is chosen by
it. Every point costs a simulation of all probes.

A scan that fills the periodic cell finely enough needs no quadrature: see `average_over_source`.
"""

from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import constants

from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.physics.grid import Grid

TOLERANCE = 1e-3  # of the coherence between any two rays
MAX_POINTS = 64  # per axis
# Full width at half maximum of a Gaussian, in standard deviations.
FWHM = float(2 * np.sqrt(2 * np.log(2)))
_REST_ENERGY_EV = constants.m_e * constants.c**2 / constants.e


class Mode(NamedTuple):
    """One coherent probe of the sum."""

    share: float  # share of the beam
    c10: float  # change of C10, Å
    shift: tuple[float, float]  # shift (y, x), Å


def focal_spread_angstrom(
    energy_ev: float,
    chromatic_aberration_mm: float,
    energy_spread_ev: float = 0.0,
    high_tension_ripple_ppm: float = 0.0,
    lens_current_ripple_ppm: float = 0.0,
) -> float:
    """Returns the focal spread of a lens with chromatic aberration, from independent fluctuations:

    Δ = C_c √[(δE² + (V_r E)²) R²/E² + (2 I_r)²],    R = (1 + E/mc²)/(1 + E/2mc²).

    Reimer & Kohl, Transmission Electron Microscopy, 5th ed. (2008), sections 2.4 and 6.4.

    Args:
        energy_ev: Electron energy E, eV.
        chromatic_aberration_mm: Coefficient C_c, mm.
        energy_spread_ev: FWHM of the electron energy, eV; δE is the standard deviation.
        high_tension_ripple_ppm: Rms V_r of the accelerating voltage, 10⁻⁶ of it.
        lens_current_ripple_ppm: Rms I_r of the lens current, 10⁻⁶ of it.

    Returns:
        Rms of the defocus, Å.

    Example:
        >>> spread = namsa.focal_spread_angstrom(
        ...     200e3, chromatic_aberration_mm=1.2, energy_spread_ev=0.7
        ... )
        >>> round(spread, 1)
        20.8
    """
    relativistic = (1 + energy_ev / _REST_ENERGY_EV) / (1 + energy_ev / (2 * _REST_ENERGY_EV))
    of_source = energy_spread_ev / FWHM / energy_ev * relativistic
    of_voltage = 1e-6 * high_tension_ripple_ppm * relativistic
    of_current = 2e-6 * lens_current_ripple_ppm
    relative = float(np.linalg.norm([of_source, of_voltage, of_current]))
    return chromatic_aberration_mm * 1e7 * relative


def modes(
    wavelength: float,  # electron wavelength, Å
    semiangle_mrad: float,  # semi-angle of convergence, mrad
    source_size_angstrom: float = 0.0,  # FWHM of the source's image at the specimen, Å
    # Shifts along each axis. By default as many as keep the error of the coherence to `TOLERANCE`.
    source_points: int | None = None,
    focal_spread_angstrom: float = 0.0,  # rms of the defocus, Å
    # Defoci. By default as many as keep the error of the coherence to `TOLERANCE`.
    focal_points: int | None = None,
) -> list[Mode]:
    """Returns the coherent probes whose patterns, weighted by share, add up to those of a partially
    coherent probe.

    Raises:
        InputError: If a width is negative, or needs more than `MAX_POINTS` points.
    """
    sigma = source_size_angstrom / FWHM
    aperture = semiangle_mrad * 1e-3 / wavelength
    offsets, source_shares = quadrature(
        "source", source_size_angstrom, 2 * np.pi * sigma * 2 * aperture, source_points
    )
    defoci, focal_shares = quadrature(
        "focal",
        focal_spread_angstrom,
        np.pi * wavelength * focal_spread_angstrom * aperture**2,
        focal_points,
    )
    axis = list(zip(offsets, source_shares, strict=True))
    focus = zip(defoci, focal_shares, strict=True)
    probes = []
    for (defocus, focal_share), (dy, share_y), (dx, share_x) in product(focus, axis, axis):
        share = float(focal_share * share_y * share_x)
        shift = (float(sigma * dy), float(sigma * dx))
        probes.append(Mode(share, float(focal_spread_angstrom * defocus), shift))
    return probes


def quadrature(
    name: str,
    width: float,
    largest_s: float,
    points: int | None,
    remedy: str = "",
) -> tuple[Floats, Floats]:
    """Returns the points of an average over a Gaussian: nodes in standard deviations, and shares
    that sum to 1.

    Args:
        name: Of the width, for messages.
        width: 0 if there is none, then one point.
        largest_s: The average of exp(i s u) over a normal deviate u is right up to this s.
        points: Number of points; by default as many as keep the error to `TOLERANCE`.
        remedy: What to do if more than `MAX_POINTS` are needed.

    Raises:
        InputError: If the width or the number of points is out of its range.
    """
    if not (np.isfinite(width) and width >= 0):
        raise InputError(f"the {name} width is {width} Å; it must be 0 or more")
    if points is not None and not 1 <= points <= MAX_POINTS:
        raise InputError(f"{name}_points is {points}; it must lie in 1 to {MAX_POINTS}")
    if width == 0:
        return np.zeros(1), np.ones(1)
    s = np.linspace(0, largest_s, 256)

    def error(nodes: Floats, shares: Floats) -> float:
        return float(np.abs(np.cos(np.outer(s, nodes)) @ shares - np.exp(-(s**2) / 2)).max())

    def best(count: int) -> tuple[Floats, Floats]:
        """Gauss–Hermite needs the fewest points for narrow spreads, equal steps for wide ones."""
        rules = (_gauss_hermite(count), _equal_steps(count, largest_s))
        return min(rules, key=lambda rule: error(*rule))

    if points is not None:
        return best(points)
    for count in range(1, MAX_POINTS + 1):
        rule = best(count)
        if error(*rule) <= TOLERANCE:
            return rule
    raise InputError(
        f"a {name} width of {width:g} Å needs more than {MAX_POINTS} quadrature points at this "
        f"aperture: {remedy or f'make it smaller, or give {name}_points yourself'}"
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
    """Returns the scan's shape if the scan resolves all variation of the patterns, otherwise
    `None`.

    A pixel of a pattern is a sum over pairs of rays. As a function of probe position it has no
    frequency above the aperture's diameter: two semi-angles and one pixel of the soft edge. A scan
    that fills the cell evenly with finer steps determines it everywhere.
    """
    if scan_shape is None:
        return None
    extent = np.array(grid.extent_angstrom)
    shape = np.array(scan_shape)
    even = positions[0] + np.argwhere(np.ones(scan_shape)) * extent / shape
    diameter = 2 * semiangle_mrad * 1e-3 / wavelength + 1 / extent.min()
    is_even = np.allclose(positions, even, rtol=0, atol=1e-6)
    if is_even and np.all(diameter < shape / (2 * extent)):
        return scan_shape
    return None


def average_over_source(
    # Patterns (n, dy, dx) of a scan for which `resolved_scan_shape` is not `None`; changed in
    # place.
    cbed: npt.NDArray[np.floating],
    scan_shape: tuple[int, int],  # rows and columns (sy, sx) of the raster
    extent_angstrom: tuple[float, float],  # sides (Ly, Lx) of the cell, Å
    source_size_angstrom: float,  # FWHM of the source's image at the specimen, Å
) -> None:
    """Averages patterns over the source, in place: an exact convolution along the scan, by its
    Fourier sum.

    Rounding can make an intensity of zero slightly negative; it is set to zero.
    """
    sigma = source_size_angstrom / FWHM
    weight_y = _periodic_gaussian(scan_shape[0], extent_angstrom[0], sigma).astype(cbed.dtype)
    weight_x = _periodic_gaussian(scan_shape[1], extent_angstrom[1], sigma).astype(cbed.dtype)
    for row in range(cbed.shape[1]):  # one row of the detector at a time limits the memory
        patterns = cbed[:, row].reshape(*scan_shape, -1)
        averaged = np.matmul(weight_x, np.tensordot(weight_y, patterns, (1, 0)))
        cbed[:, row] = np.maximum(averaged, 0).reshape(len(cbed), -1)


def _periodic_gaussian(n: int, extent: float, sigma: float) -> Floats:
    """Returns the matrix (n, n) that convolves n even samples over a period with a Gaussian."""
    frequencies = np.fft.fftfreq(n, extent / n)
    kernel = np.fft.ifft(np.exp(-2 * np.pi**2 * sigma**2 * frequencies**2)).real
    return kernel[(np.arange(n)[:, None] - np.arange(n)) % n]
