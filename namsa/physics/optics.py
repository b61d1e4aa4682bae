"""The electron's wavelength, the probe-forming lens, and tilts of beam and specimen.

λ is the wavelength (Å), σ the interaction constant (rad/(V·Å)), α = λk the angle (rad), φ the
azimuth from +x towards +y. The aberration phase is Krivanek's,

    χ(α, φ) = (2π/λ) Σ_nm C_nm α^(n+1)/(n+1) cos(m(φ − φ_nm)),

with coefficients in Å; C10 = −defocus, so that an underfocused lens has C10 < 0 (Krivanek, Dellby &
Lupini, Ultramicroscopy 78 (1999) 1; Kirkland, Advanced Computing in Electron Microscopy (2010),
chapter 2).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy import constants

from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.config.aberrations import aberration_problem
from namsa.config.bounds import RANGES
from namsa.physics.backend import array_module
from namsa.physics.grid import Array, Grid

_REST_ENERGY_EV = constants.m_e * constants.c**2 / constants.e
ApertureEdge = Literal["intensity", "amplitude"]
LARGEST_SPECIMEN_TILT_MRAD = 87.0  # 5°
# Radial and azimuthal orders (n, m) of the aberrations C_nm, to fifth order.
_ORDERS = (
    *((1, 0), (1, 2)),
    *((2, 1), (2, 3)),
    *((3, 0), (3, 2), (3, 4)),
    *((4, 1), (4, 3), (4, 5)),
    *((5, 0), (5, 2), (5, 4), (5, 6)),
)


@dataclass(frozen=True)
class BeamSettings:
    """The electron beam, the lens that focuses it, and its direction in the specimen."""

    energy_ev: float  # electron energy, eV
    semiangle_mrad: float  # semi-angle of convergence, mrad
    aberrations: Mapping[str, float]  # Krivanek coefficients, Å and rad; C10 = −defocus
    beam_tilt_mrad: tuple[float, float] = (0.0, 0.0)  # tilt (y, x) of the beam, mrad; see `lens`
    # Tilt (y, x) of the specimen, mrad; see `specimen_tilt`.
    specimen_tilt_mrad: tuple[float, float] = (0.0, 0.0)
    aperture_edge: ApertureEdge = "intensity"  # what falls linearly over its edge; see `aperture`

    @cached_property
    def wavelength(self) -> float:
        """Wavelength, Å."""
        return wavelength_angstrom(self.energy_ev)


def wavelength_angstrom(energy_ev: float) -> float:
    """Returns the relativistic wavelength λ = hc/√(E(2mc² + E)), Å. Raises InputError outside of 10
    keV to 1 MeV.
    """
    least, most = RANGES["energy_ev"]
    if not least <= energy_ev <= most:
        raise InputError(
            f"energy_ev is {energy_ev:g} eV; it must lie between {least:g} and {most:g} eV (200 kV "
            "is 200e3)"
        )
    hc = constants.h * constants.c / constants.e * 1e10  # eV·Å
    return float(hc / np.sqrt(energy_ev * (2 * _REST_ENERGY_EV + energy_ev)))


def probe_limit(energy_ev: float, semiangle_mrad: float) -> float:
    """Returns the highest frequency of the intensity of a probe of semi-angle α, 2α/λ, 1/Å."""
    return 2e-3 * semiangle_mrad / wavelength_angstrom(energy_ev)


def interaction_constant(energy_ev: float) -> float:
    """Returns the interaction constant σ = 2πmeλ/h² with the relativistic mass m, rad/(V·Å)."""
    mass = constants.m_e * (1 + energy_ev / _REST_ENERGY_EV)
    wavelength = wavelength_angstrom(energy_ev) * 1e-10
    return float(2 * np.pi * mass * constants.e * wavelength / constants.h**2 * 1e-10)


def check_aberrations(aberrations: Mapping[str, float]) -> None:
    """Checks the names and values, Å and rad, of aberration coefficients.

    Raises:
        InputError: If a name is not in Krivanek's notation to fifth order, or a value is not finite
            or not in the range of `namsa.config.aberrations`.
    """
    for name, value in aberrations.items():
        problem = aberration_problem(name, value)
        if problem:
            raise InputError(problem)


def aberration_phase(
    alpha: Floats, phi: Floats, wavelength: float, aberrations: Mapping[str, float]
) -> Floats:
    """Returns the aberration phase χ: χ in rad, of the common shape of `alpha` and `phi`.

    Args:
        alpha: Angles from the optic axis, rad.
        phi: Azimuths from +x towards +y, rad.
        aberrations: Krivanek coefficients, Å and rad.

    Raises:
        InputError: If an aberration is unknown or not finite.
    """
    check_aberrations(aberrations)
    path = np.zeros(np.broadcast_shapes(alpha.shape, phi.shape))
    for n, m in _ORDERS:
        coefficient = aberrations.get(f"C{n}{m}", 0.0)
        if coefficient:
            azimuth = aberrations.get(f"phi{n}{m}", 0.0)
            path += coefficient * alpha ** (n + 1) / (n + 1) * np.cos(m * (phi - azimuth))
    return 2 * np.pi / wavelength * path


def aperture(grid: Grid, beam: BeamSettings) -> Floats:
    """Returns the aperture A(k): 1 inside, 0 outside, with an edge one reciprocal pixel wide.

    Over the edge the intensity A² falls linearly, so that it sums to the solid angle of the
    semi-angle. With the edge "amplitude" A falls linearly, as abTEM has it, and the disk is smaller
    by a part of a pixel that depends on the cell.

    A semi-angle below one reciprocal pixel is parallel illumination: one plane wave, which the
    periodic cell holds if it is one of the grid's, the nearest one to the beam's tilt.

    Args:
        beam: The electron beam. Its tilt moves the aperture by tilt/λ.

    Returns:
        A(k), (ny, nx), zero frequency first.

    Raises:
        InputError: If the grid's band limit cuts the aperture.
    """
    _check_aperture(grid, beam)
    wavelength = beam.wavelength
    semiangle = beam.semiangle_mrad * 1e-3
    ky, kx = _frequencies_from_beam(grid, beam)
    if is_parallel(grid, beam):
        through = np.zeros(grid.shape)
        through[np.argmin(np.abs(ky)), np.argmin(np.abs(kx))] = 1
        return through
    k = np.hypot(ky, kx)
    # The size of a pixel along k lies between its sizes along y and x: only pixels this near can be
    # inside.
    pitch_y, pitch_x = (wavelength / extent for extent in grid.extent_angstrom)
    near = np.nonzero(wavelength * k < semiangle + max(pitch_y, pitch_x))
    phi = np.arctan2(ky[near[0], 0], kx[0, near[1]])
    pixel = np.hypot(np.sin(phi) * pitch_y, np.cos(phi) * pitch_x)
    through = np.zeros(grid.shape)
    inside = np.clip((semiangle - wavelength * k[near]) / pixel + 0.5, 0, 1)
    through[near] = inside if beam.aperture_edge == "amplitude" else np.sqrt(inside)
    return through


def is_parallel(grid: Grid, beam: BeamSettings) -> bool:
    """Returns whether the convergence is below one reciprocal pixel of the grid, so that the beam
    is a plane wave.
    """
    return beam.semiangle_mrad * 1e-3 < beam.wavelength / min(grid.extent_angstrom)


def lens(grid: Grid, beam: BeamSettings, c10_angstrom: float = 0.0) -> npt.NDArray[np.complex128]:
    """Returns the probe at the cell's origin in reciprocal space, A(k) exp(−iχ(k)) with Σ|ψ|² = 1.

    A beam tilt turns the whole cone with its aberrations: A and χ are functions of k − tilt/λ. The
    probe keeps its shape and its position at the entrance face.

    Args:
        c10_angstrom: Change of its C10, Å.

    Returns:
        The probe, (ny, nx), zero frequency first.

    Raises:
        InputError: If the aperture does not fit the grid, or an aberration is unknown or not
            finite.
    """
    through = aperture(grid, beam)
    ky, kx = _frequencies_from_beam(grid, beam)
    lit = np.nonzero(through)
    ky = ky[lit[0], 0]
    kx = kx[0, lit[1]]
    alpha = beam.wavelength * np.hypot(ky, kx)
    aberrations = dict(beam.aberrations)
    aberrations["C10"] = aberrations.get("C10", 0.0) + c10_angstrom
    phase = aberration_phase(alpha, np.arctan2(ky, kx), beam.wavelength, aberrations)
    wave = np.zeros(grid.shape, np.complex128)
    wave[lit] = through[lit] * np.exp(-1j * phase)
    return wave / np.linalg.norm(wave)


def _frequencies_from_beam(grid: Grid, beam: BeamSettings) -> tuple[Floats, Floats]:
    """Returns (ky, kx) relative to the tilted beam, shapes (ny, 1) and (1, nx), 1/Å."""
    tilt_y, tilt_x = beam.beam_tilt_mrad
    ky, kx = grid.frequencies()
    return ky - tilt_y * 1e-3 / beam.wavelength, kx - tilt_x * 1e-3 / beam.wavelength


def _check_aperture(grid: Grid, beam: BeamSettings) -> None:
    """Raises InputError if the aperture does not fit the grid."""
    if beam.aperture_edge not in get_args(ApertureEdge):
        raise InputError(
            f"aperture_edge is {beam.aperture_edge!r}; it must be 'intensity' or 'amplitude'"
        )
    wavelength = beam.wavelength
    semiangle_mrad = beam.semiangle_mrad
    beam_tilt_mrad = beam.beam_tilt_mrad
    if not (np.isfinite(semiangle_mrad) and semiangle_mrad >= 0):
        raise InputError(
            f"semiangle_mrad is {semiangle_mrad}; it must be a number of 0 mrad or more"
        )
    if not np.all(np.isfinite(beam_tilt_mrad)):
        raise InputError(f"beam_tilt_mrad is {beam_tilt_mrad}; give finite numbers (y, x)")
    pixel_mrad = wavelength / min(grid.extent_angstrom) * 1e3
    limit_mrad = grid.band_limit * wavelength * 1e3
    tilt_mrad = float(np.hypot(*beam_tilt_mrad))
    reach_mrad = semiangle_mrad + tilt_mrad + pixel_mrad / 2
    if reach_mrad > limit_mrad:
        tilted = f" with a beam tilt of {tilt_mrad:g} mrad" if tilt_mrad else ""
        finest = max(grid.sampling_angstrom) * limit_mrad / reach_mrad
        raise InputError(
            f"semiangle_mrad {semiangle_mrad:g}{tilted} does not fit the grid, whose band limit is "
            f"{limit_mrad:.1f} mrad: use pixels of {finest:.3f} Å or less (now "
            f"{max(grid.sampling_angstrom):.3f} Å)"
        )


def check_specimen_tilt(specimen_tilt_mrad: tuple[float, float]) -> None:
    """Raises InputError if a tilt (y, x) exceeds `LARGEST_SPECIMEN_TILT_MRAD`."""
    if not np.hypot(*specimen_tilt_mrad) <= LARGEST_SPECIMEN_TILT_MRAD:
        raise InputError(
            f"specimen_tilt_mrad is {specimen_tilt_mrad}; tilts by the propagator hold up to "
            f"{LARGEST_SPECIMEN_TILT_MRAD:g} mrad: turn the atoms for more"
        )


def specimen_tilt(
    grid: Grid, specimen_tilt_mrad: tuple[float, float], distance_angstrom: float
) -> npt.NDArray[np.complex128]:
    """Returns the propagator's factor exp(2πi Δz (kx tan θx + ky tan θy)) for a specimen tilted by
    (θy, θx), mrad.

    It shifts the wave by −Δz tan θ per slice. This shears the specimen by x += z tan θx, y += z tan
    θy, which is a rotation to first order in θ. Lengths along and across the beam are wrong by
    θ²/2: 0.1% at 50 mrad and 0.4% at the limit of 5° (Kirkland 2010, chapter 6; Chen, Van Dyck & Op
    de Beeck, Acta Cryst. A53 (1997) 576).

    Returns:
        The factor, (ny, nx), zero frequency first.

    Raises:
        InputError: If the tilt exceeds `LARGEST_SPECIMEN_TILT_MRAD`.
    """
    check_specimen_tilt(specimen_tilt_mrad)
    tan_y, tan_x = np.tan(np.asarray(specimen_tilt_mrad) * 1e-3)
    ky, kx = grid.frequencies()
    along_y = np.exp(2j * np.pi * distance_angstrom * (ky * tan_y))
    along_x = np.exp(2j * np.pi * distance_angstrom * (kx * tan_x))
    return along_y * along_x


def paraxial_phase_error(wavelength: float, thickness_angstrom: float, angle_mrad: float) -> float:
    """Returns how much the phase of the paraxial propagator exceeds the exact one, rad.

    To lowest order it is πtα⁴/4λ.

    Args:
        thickness_angstrom: Distance t, Å.
        angle_mrad: Angle α = λk with the axis, mrad.
    """
    squared = (1e-3 * angle_mrad) ** 2
    exact = squared / (1 + np.sqrt(max(0.0, 1 - squared)))
    return float(2 * np.pi * thickness_angstrom / wavelength * (exact - squared / 2))


def probe_diameter_angstrom(beam: BeamSettings, thickness_angstrom: float) -> float:
    """Returns the largest diameter of the probe over the specimen's depth, in vacuum.

    It is the diameter of the rays' positions, enlarged by the Airy disc. A ray at angle α arrives
    at ∇χ·λ/2π; a depth z adds αz, as C10 does.
    """
    aberrations = beam.aberrations
    semiangle = beam.semiangle_mrad * 1e-3
    alpha = np.linspace(0, semiangle, 65)[1:, None]
    phi = np.linspace(0, 2 * np.pi, 72, endpoint=False)
    radius = 0.0
    for depth in (0.0, thickness_angstrom):
        outward = depth * alpha
        across = np.zeros_like(alpha)
        for n, m in _ORDERS:
            coefficient = aberrations.get(f"C{n}{m}", 0.0)
            turn = phi - aberrations.get(f"phi{n}{m}", 0.0)
            outward = outward + coefficient * alpha**n * np.cos(m * turn)
            across = across - coefficient * alpha**n * m / (n + 1) * np.sin(m * turn)
        radius = max(radius, float(np.hypot(outward, across).max()))
    return 2 * (radius + 0.61 * beam.wavelength / semiangle)


def probes(lens_wave: Array, grid: Grid, positions: Array) -> Array:
    """Returns probes in reciprocal space, ψ(k) exp(−2πi k·r), (n, ny, nx), of the type of
    `lens_wave`.

    Positions outside the cell wrap, as the specimen does. The phases are computed in double
    precision, then cast.

    Args:
        lens_wave: The probe at the origin, (ny, nx) complex, zero frequency first.
        positions: Probe positions (n, 2) as (y, x), Å.
    """
    xp = array_module(lens_wave)
    positions = xp.asarray(positions)
    ky, kx = (xp.asarray(k) for k in grid.frequencies())
    ramp_y = xp.exp(-2j * np.pi * positions[:, 0, None, None] * ky).astype(lens_wave.dtype)
    ramp_x = xp.exp(-2j * np.pi * positions[:, 1, None, None] * kx).astype(lens_wave.dtype)
    return (ramp_y * lens_wave) * ramp_x
