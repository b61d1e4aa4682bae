"""The electron and the probe-forming lens.

λ is the wavelength (Å), σ the interaction constant (rad/(V·Å)), α = λk the angle (rad), φ the azimuth from +x
towards +y. The aberration phase is Krivanek's,

    χ(α, φ) = (2π/λ) Σ_nm C_nm α^(n+1)/(n+1) cos(m(φ − φ_nm)),

with coefficients in Å; C10 = −defocus, so that an underfocused lens has C10 < 0 (Krivanek, Dellby & Lupini,
Ultramicroscopy 78 (1999) 1; Kirkland, Advanced Computing in Electron Microscopy (2010), chapter 2).
"""

import difflib
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from scipy import constants

from namsa.backend import array_module
from namsa.errors import InputError
from namsa.grid import Array, Grid

_REST_ENERGY_EV = constants.m_e * constants.c**2 / constants.e
_ORDERS = tuple((n, m) for n in range(1, 6) for m in range((n + 1) % 2, n + 2, 2))
ABERRATIONS = tuple(f"C{n}{m}" for n, m in _ORDERS) + tuple(f"phi{n}{m}" for n, m in _ORDERS if m)


def wavelength_angstrom(energy_ev: float) -> float:
    """Relativistic wavelength λ = hc/√(E(2mc² + E)), Å.

    Raises InputError outside 10 keV to 1 MeV, where a slip between eV and keV is the likely reason.
    """
    if not 10e3 <= energy_ev <= 1e6:
        raise InputError(f"energy_ev is {energy_ev:g} eV; it must lie between 10e3 and 1e6 eV (200 kV is 200e3)")
    hc = constants.h * constants.c / constants.e * 1e10  # eV·Å
    return float(hc / np.sqrt(energy_ev * (2 * _REST_ENERGY_EV + energy_ev)))


def interaction_constant(energy_ev: float) -> float:
    """σ = 2πmeλ/h² with the relativistic mass m, rad/(V·Å)."""
    mass = constants.m_e * (1 + energy_ev / _REST_ENERGY_EV)
    wavelength = wavelength_angstrom(energy_ev) * 1e-10
    return float(2 * np.pi * mass * constants.e * wavelength / constants.h**2 * 1e-10)


def aberration_phase(
    alpha: npt.NDArray[np.float64], phi: npt.NDArray[np.float64], energy_ev: float, aberrations: Mapping[str, float]
) -> npt.NDArray[np.float64]:
    """χ in rad, of the common shape of `alpha` and `phi` (rad).

    Raises InputError for a name outside Krivanek's notation to fifth order, or a value that is not finite.
    """
    for name, value in aberrations.items():
        if name not in ABERRATIONS:
            near = difflib.get_close_matches(name, ABERRATIONS, n=1, cutoff=0.0)[0]
            raise InputError(f"unknown aberration {name!r}; did you mean {near}? Known: {', '.join(ABERRATIONS)}")
        if not np.isfinite(value):
            raise InputError(f"aberration {name} is {value}; give a finite number (Å, or rad for phi)")
    path = np.zeros(np.broadcast_shapes(alpha.shape, phi.shape))
    for n, m in _ORDERS:
        if coefficient := aberrations.get(f"C{n}{m}", 0.0):
            path += coefficient * alpha ** (n + 1) / (n + 1) * np.cos(m * (phi - aberrations.get(f"phi{n}{m}", 0.0)))
    return 2 * np.pi / wavelength_angstrom(energy_ev) * path


def lens(
    grid: Grid, energy_ev: float, semiangle_mrad: float, aberrations: Mapping[str, float]
) -> npt.NDArray[np.complex128]:
    """The probe on the optic axis in reciprocal space, A(k) exp(−iχ(k)) with Σ|ψ|² = 1, shape (ny, nx).

    The aperture's edge is one reciprocal pixel wide. Raises InputError where the grid's band limit cuts the aperture
    or the aperture is smaller than one reciprocal pixel.
    """
    wavelength = wavelength_angstrom(energy_ev)
    semiangle = semiangle_mrad * 1e-3
    _check_aperture(grid, wavelength, semiangle_mrad)
    ky, kx = grid.frequencies()
    alpha, phi = wavelength * np.hypot(ky, kx), np.arctan2(ky, kx)
    pixel = np.hypot(
        np.sin(phi) * wavelength / grid.extent_angstrom[0], np.cos(phi) * wavelength / grid.extent_angstrom[1]
    )
    aperture = np.clip((semiangle - alpha) / pixel + 0.5, 0, 1)
    aperture[0, 0] = 1
    wave = aperture * np.exp(-1j * aberration_phase(alpha, phi, energy_ev, aberrations))
    return wave / np.linalg.norm(wave)


def _check_aperture(grid: Grid, wavelength: float, semiangle_mrad: float) -> None:
    if not (np.isfinite(semiangle_mrad) and semiangle_mrad > 0):
        raise InputError(f"semiangle_mrad is {semiangle_mrad}; it must be a positive number of mrad")
    pixel_mrad = wavelength / min(grid.extent_angstrom) * 1e3
    limit_mrad = grid.band_limit * wavelength * 1e3
    if semiangle_mrad + pixel_mrad / 2 > limit_mrad:
        finest = max(grid.sampling_angstrom) * limit_mrad / (semiangle_mrad + pixel_mrad / 2)
        raise InputError(
            f"semiangle_mrad {semiangle_mrad:g} does not fit the grid, whose band limit is {limit_mrad:.1f} mrad: "
            f"use pixels of {finest:.3f} Å or less (now {max(grid.sampling_angstrom):.3f} Å)"
        )
    if semiangle_mrad < pixel_mrad:
        extent = wavelength / (semiangle_mrad * 1e-3)
        raise InputError(
            f"semiangle_mrad {semiangle_mrad:g} is below one reciprocal pixel of {pixel_mrad:.2f} mrad: "
            f"use a cell of {extent:.0f} Å or more (now {min(grid.extent_angstrom):.1f} Å)"
        )


def probes(lens_wave: Array, grid: Grid, positions: Array) -> Array:
    """Probes in reciprocal space, ψ(k) exp(−2πi k·r) at `positions` (n, 2) in Å as (y, x): shape (n, ny, nx).

    Positions outside the cell wrap, as the specimen does. The phases are formed in double precision, then cast.
    """
    xp = array_module(lens_wave)
    positions = xp.asarray(positions)
    ky, kx = (xp.asarray(k) for k in grid.frequencies())
    ramp_y = xp.exp(-2j * np.pi * positions[:, 0, None, None] * ky).astype(lens_wave.dtype)
    ramp_x = xp.exp(-2j * np.pi * positions[:, 1, None, None] * kx).astype(lens_wave.dtype)
    return (ramp_y * lens_wave) * ramp_x
