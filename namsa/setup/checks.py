"""Checks before a simulation starts: errors that name the remedy, and warnings about results that
may mislead.

A warning is a sentence with numbers. It is issued as a `SimulationWarning` and kept in the sample's
provenance.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.base.memory import available_memory_bytes, check_memory_for
from namsa.base.text import plural
from namsa.config.bounds import LARGEST_INTERPOLATION, RANGES
from namsa.config.instrument import Detector
from namsa.config.numerics import Simulation
from namsa.physics import optics
from namsa.physics.detector import sampling_and_origin
from namsa.physics.grid import Grid

# The paraxial propagator's error of phase over the specimen. Of the first one at the largest angle
# of interest, the intensities of rings there are wrong by up to 9 %, and single pixels by 20 %. Of
# the second one at 2/Å, patterns are wrong by 0.5 to 2 % (SrTiO3, Au and Si, 30 to 200 kV, 40 to
# 200 Å).
PARAXIAL_PHASE_RAD = 0.5
STRONG_PARAXIAL_PHASE_RAD = 0.15
STRONG_FREQUENCY_PER_ANGSTROM = 2.0
THICK_SLICE_ANGSTROM = 4.0  # two layers of atoms in most crystals
# Steps finer than the probe needs by this factor, and than this length, are a likely slip.
FINEST_STEP_FACTOR = 5
SLIP_ANGSTROM = 0.1


def check_positions(
    positions_angstrom: npt.ArrayLike, scan_shape: tuple[int, int] | None = None
) -> Floats:
    """Returns probe positions as an array, (n, 2).

    Args:
        positions_angstrom: Probe positions (n, 2) as (y, x), Å.
        scan_shape: Rows and columns (sy, sx) of the raster, if the positions are one.

    Raises:
        InputError: If the shape is wrong, a position is not finite, or the number does not match
            `scan_shape`.
    """
    positions = np.asarray(positions_angstrom, dtype=np.float64)
    if positions.ndim != 2 or positions.shape[1] != 2 or not len(positions):
        raise InputError(
            f"positions_angstrom has shape {positions.shape}; it must be (n, 2), as (y, x), with n "
            ">= 1"
        )
    if not np.all(np.isfinite(positions)):
        row = int(np.argmin(np.all(np.isfinite(positions), axis=1)))
        raise InputError(
            f"positions_angstrom[{row}] is {positions[row].tolist()}; positions must be finite"
        )
    farthest = RANGES["positions_angstrom"][1]
    if np.abs(positions).max() > farthest:
        row = int(np.argmax(np.abs(positions).max(axis=1)))
        raise InputError(
            f"positions_angstrom[{row}] is {positions[row].tolist()}; positions must be within "
            f"±{farthest:g} Å"
        )
    if scan_shape is not None and len(positions) != scan_shape[0] * scan_shape[1]:
        raise InputError(
            f"scan_shape is {tuple(scan_shape)}, and there are {len(positions)} positions"
        )
    return positions


def check_choices(simulation: Simulation) -> None:
    """Raises InputError, which lists the allowed values, if a setting has another one."""
    thickness = simulation.slice_thickness_angstrom
    if thickness != "auto" and not thickness > 0:
        raise InputError(f"slice_thickness_angstrom is {thickness}; it must be positive")
    if simulation.precision not in ("float32", "float64"):
        raise InputError(
            f"precision is {simulation.precision!r}; it must be 'float32' or 'float64'"
        )
    if simulation.projection not in ("infinite", "finite"):
        raise InputError(
            f"projection is {simulation.projection!r}; it must be 'infinite' or 'finite'"
        )
    if simulation.propagator not in ("paraxial", "exact"):
        raise InputError(
            f"propagator is {simulation.propagator!r}; it must be 'paraxial' or 'exact'"
        )
    if simulation.engine not in ("auto", "plain", "fused"):
        raise InputError(f"engine is {simulation.engine!r}; it must be 'auto', 'plain' or 'fused'")
    interpolation = simulation.interpolation
    if not isinstance(interpolation, int) or not 1 <= interpolation <= LARGEST_INTERPOLATION:
        raise InputError(
            f"interpolation is {interpolation!r}; give a whole number of 1 to "
            f"{LARGEST_INTERPOLATION}"
        )
    if simulation.method not in ("auto", "multislice", "prism"):
        raise InputError(
            f"method is {simulation.method!r}; it must be 'auto', 'multislice' or 'prism'"
        )
    if thickness != "auto":
        check_ranges(slice_thickness_angstrom=thickness)


def check_ranges(**quantities: float | tuple[float, float]) -> None:
    """Raises InputError unless quantities of the microscope are in their ranges of
    `namsa.config.bounds`.
    """
    for name, value in quantities.items():
        least, most = RANGES[name]
        if not np.all((np.asarray(value) >= least) & (np.asarray(value) <= most)):
            raise InputError(f"{name} is {value}; it must lie within {least:g} to {most:g}")


def check_depth_bins(depth_bins: int) -> None:
    """Raises InputError unless the number of depth bins is a whole number in its range."""
    least, most = RANGES["depth_bins"]
    if not isinstance(depth_bins, int) or not least <= depth_bins <= most:
        raise InputError(
            f"depth_bins is {depth_bins}; it must be a whole number of {least} to {most}"
        )


def check_engine(requested: str, shape: tuple[int, int], supported: bool) -> None:
    """Raises InputError if the fused engine is requested and does not support a grid of (ny, nx)
    pixels.
    """
    if requested == "fused" and not supported:
        raise InputError(
            f"engine 'fused' does not support a grid of {shape} in this precision: use sides "
            "without prime factors beyond 7 (on a GPU up to 1024, float32), install namsa where a "
            "C compiler is, or use engine 'auto'"
        )


def warning_texts(
    grid: Grid,
    beam: optics.BeamSettings,
    thickness_angstrom: float,  # thickness of the specimen, Å
    # Thickness of equal slices, Å; `None` if slices follow the layers of atoms.
    slice_thickness_angstrom: float | None,
    detector: Detector | None,
    positions: Floats,  # probe positions (n, 2) as (y, x), Å
) -> list[str]:
    """Returns warnings about a cell and slices that do not suffice, and negative positions."""
    texts = list(_probe_size(grid, beam, thickness_angstrom))
    if slice_thickness_angstrom:
        _, first_pixel_mrad = sampling_and_origin(grid, beam.wavelength, detector)
        band_limit_mrad = grid.band_limit * beam.wavelength * 1e3
        recorded_mrad = min(np.abs(first_pixel_mrad).max(), band_limit_mrad)
        texts += _slice_thickness(
            beam.wavelength, slice_thickness_angstrom, beam.semiangle_mrad, recorded_mrad
        )
    texts += _fine_pixels(grid, beam.wavelength, detector)
    texts += _negative_positions(positions)
    return texts


def _probe_size(grid: Grid, beam: optics.BeamSettings, thickness_angstrom: float) -> Iterator[str]:
    """Yields a warning if the probe is wider than the cell, or a plane wave is not what was
    asked.
    """
    if optics.is_parallel(grid, beam):
        yield from _plane_wave(grid, beam)
        return
    diameter = optics.probe_diameter_angstrom(beam, thickness_angstrom)
    width = min(grid.extent_angstrom)
    if diameter > width:
        yield (
            f"the probe spreads to {diameter:.1f} Å and overlaps its periodic copies in a cell "
            f"{width:.1f} Å wide: use a larger cell, less defocus or a thinner specimen"
        )


def _in_radians(semiangle_mrad: float) -> str:
    """Returns a question about a semiangle that is usual in rad and not in mrad, or nothing."""
    if not 2e-3 <= semiangle_mrad <= 0.1:
        return ""
    return f". Is it in rad? Then give semiangle_mrad {1e3 * semiangle_mrad:g}"


def _plane_wave(grid: Grid, beam: optics.BeamSettings) -> Iterator[str]:
    """Yields warnings if a plane wave of the grid stands for a convergent beam, or for one of
    another direction.
    """
    pitch = [1e3 * beam.wavelength / extent for extent in grid.extent_angstrom]
    if beam.semiangle_mrad:
        yield (
            f"semiangle_mrad {beam.semiangle_mrad:g} is below one reciprocal pixel of "
            f"{max(pitch):.3g} mrad: the illumination is parallel; a cell of "
            f"{1e3 * beam.wavelength / max(beam.semiangle_mrad, 1e-9):.3g} Å resolves it"
            + _in_radians(beam.semiangle_mrad)
        )
    made = [
        round(tilt / step) * step for tilt, step in zip(beam.beam_tilt_mrad, pitch, strict=True)
    ]
    if np.abs(np.subtract(made, beam.beam_tilt_mrad)).max() > 1e-3 * min(pitch):
        yield (
            f"the plane wave is tilted by ({made[0]:.3g}, {made[1]:.3g}) mrad in place of "
            f"beam_tilt_mrad ({beam.beam_tilt_mrad[0]:g}, {beam.beam_tilt_mrad[1]:g}): the cell "
            f"holds multiples of ({pitch[0]:.3g}, {pitch[1]:.3g}) mrad"
        )


def _fine_pixels(grid: Grid, wavelength: float, detector: Detector | None) -> Iterator[str]:
    """Yields a warning if the detector's pixels are a little finer than the reciprocal grid's."""
    if detector is None or detector.pixel_mrad is None:
        return
    pitch_mrad = 1e3 * wavelength / min(grid.extent_angstrom)
    if detector.pixel_mrad < 0.999 * pitch_mrad:
        yield (
            f"detector.pixel_mrad {detector.pixel_mrad:g} is "
            f"{100 * (1 - detector.pixel_mrad / pitch_mrad):.1f} % finer than the reciprocal "
            f"grid's {pitch_mrad:.3f} mrad: neighbouring pixels share intensity; a cell of "
            f"{1e3 * wavelength / detector.pixel_mrad:.1f} Å resolves them "
            f"(now {min(grid.extent_angstrom):.1f} Å)"
        )


def fine_steps(step_angstrom: float | None, beam: optics.BeamSettings) -> Iterator[str]:
    """Yields a warning if a scan's steps are far finer than the probe needs, as 0.04 Å for 0.4 Å.

    Args:
        step_angstrom: Smallest distance between the rows or columns of a raster, Å; `None` for
            other positions.
    """
    if step_angstrom is None or beam.semiangle_mrad <= 0:
        return
    needed = beam.wavelength / (4e-3 * beam.semiangle_mrad)
    if step_angstrom < min(needed / FINEST_STEP_FACTOR, SLIP_ANGSTROM):
        yield (
            f"scan.step_angstrom is {step_angstrom:g} Å, and steps of {needed:.2g} Å sample the "
            f"probe of {beam.semiangle_mrad:g} mrad: is {10 * step_angstrom:g} Å meant?"
        )


def _slice_thickness(
    wavelength: float, slice_thickness_angstrom: float, semiangle_mrad: float, recorded_mrad: float
) -> Iterator[str]:
    """Yields warnings about thick slices.

    Equal slices diffract like a lattice along the beam, whose first Laue zone is where λk²/2 =
    1/Δz.
    """
    if slice_thickness_angstrom > THICK_SLICE_ANGSTROM:
        yield (
            f"slices are {slice_thickness_angstrom:.2f} Å thick, and {THICK_SLICE_ANGSTROM:g} Å "
            "hold two layers of atoms: use about 2 Å, or leave slice_thickness_angstrom out"
        )
    zone_mrad = np.sqrt(2 * wavelength / slice_thickness_angstrom) * 1e3
    if zone_mrad < semiangle_mrad + recorded_mrad:
        thin = 2 * wavelength / ((semiangle_mrad + recorded_mrad) * 1e-3) ** 2
        yield (
            f"slices of {slice_thickness_angstrom:.2f} Å have a Laue zone of their own at "
            f"{zone_mrad:.0f} mrad, and patterns reach {recorded_mrad:.0f} mrad: use {thin:.2f} Å "
            "or less, or leave slice_thickness_angstrom out, so that slices follow the layers of "
            "atoms"
        )


def paraxial_doubts(
    wavelength: float, thickness_angstrom: float, reach_mrad: float
) -> Iterator[str]:
    """Yields a warning if the phase of the paraxial propagator is wrong by more than its limits.

    They are `PARAXIAL_PHASE_RAD` at the largest angle of interest, and `STRONG_PARAXIAL_PHASE_RAD`
    where atoms still scatter strongly.

    Args:
        wavelength: Electron wavelength, Å.
        thickness_angstrom: Thickness of the specimen, Å.
        reach_mrad: Largest angle of interest along y and x, mrad.
    """
    strong_mrad = 1e3 * wavelength * STRONG_FREQUENCY_PER_ANGSTROM
    for angle_mrad, limit, affected in (
        (strong_mrad, STRONG_PARAXIAL_PHASE_RAD, "multiple scattering carries this to all angles"),
        (reach_mrad, PARAXIAL_PHASE_RAD, "the intensity of outer rings is wrong by percents"),
    ):
        phase = optics.paraxial_phase_error(wavelength, thickness_angstrom, angle_mrad)
        if phase > limit:
            yield (
                f"the paraxial propagator is wrong by {phase:.2g} rad at {angle_mrad:.0f} mrad "
                f"over {thickness_angstrom:.4g} Å, more than {limit:g}: {affected}; use "
                "propagator 'exact', which costs as much"
            )
            return


def _negative_positions(positions: Floats) -> Iterator[str]:
    """Yields a warning if positions are negative."""
    negative = int(np.count_nonzero((positions < 0).any(axis=1)))
    if negative:
        yield (
            f"{negative} of {len(positions)} positions are negative, down to {positions.min():.2f} "
            "Å: they wrap into the cell, whose origin is (0, 0)"
        )


def check_memory(
    patterns: int, shape: tuple[int, ...], bytes_per_pixel: int, available_bytes: int | None = None
) -> None:
    """Checks that the patterns fit into memory.

    Args:
        shape: Pixels (dy, dx) of a pattern.
        available_bytes: Available memory; by default that of this process.

    Raises:
        OutOfMemoryError: If the patterns need more memory.
    """
    check_memory_for(
        patterns * shape[0] * shape[1] * bytes_per_pixel,
        f"{plural(patterns, 'pattern')} of {shape[0]}×{shape[1]} pixels",
        "use fewer positions, a detector, or a smaller grid",
        available_memory_bytes() if available_bytes is None else available_bytes,
    )
