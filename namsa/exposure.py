"""One stack of patterns before its specimen is known: positions, lens, source, detector and noise, on one grid."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from namsa import checks
from namsa.config.instrument import Detector
from namsa.engines import dispatch
from namsa.engines.dispatch import EngineName
from namsa.physics import coherence, optics
from namsa.physics import detector as detectors
from namsa.physics.grid import Grid


@dataclass(frozen=True)
class Exposure:
    """What decides a stack of patterns besides the specimen.

    Attributes:
        positions: Probe positions (n, 2) as (y, x), Å.
        setup: Lenses, propagator, detector and engine.
        beams: Plane waves of the lens, (ny, nx), zero frequency first.
        averaged_scan: Rows and columns of a raster that is averaged over the source when all patterns are there. `None`
            if coherent probes sample the source.
        source_size_angstrom: FWHM of the Gaussian source at the specimen, Å.
        electrons: Electrons per pattern; `None` without noise.
        pattern_shape: Pixels (dy, dx) of a pattern.
        seed: Seed of the noise.
    """

    positions: npt.NDArray[np.float64]
    setup: dispatch.OpticalSetup
    beams: npt.NDArray[np.bool_]
    averaged_scan: tuple[int, int] | None
    source_size_angstrom: float
    electrons: float | None
    pattern_shape: tuple[int, int]
    seed: int

    def finish(self, patterns: npt.NDArray[Any], first: int = 0, *, configurations: int) -> npt.NDArray[Any]:
        """Returns the patterns as the detector counts them.

        Args:
            patterns: Sums over the thermal configurations, (m, dy, dx); changed.
            first: Number of the first of the patterns in the stack.
            configurations: Number of thermal configurations.
        """
        if configurations > 1:
            patterns /= configurations
        if self.averaged_scan:
            extent = self.setup.grid.extent_angstrom
            coherence.average_over_source(patterns, self.averaged_scan, extent, self.source_size_angstrom)
        if self.electrons is None:
            return patterns
        return detectors.add_poisson_noise(patterns, self.electrons, self.seed, first)


def expose(
    grid: Grid,
    slice_thickness_angstrom: float,
    positions: npt.NDArray[np.float64],
    *,
    energy_ev: float,
    semiangle_mrad: float,
    aberrations: Mapping[str, float],
    beam_tilt_mrad: tuple[float, float],
    specimen_tilt_mrad: tuple[float, float],
    source_size_angstrom: float,
    source_points: int | None,
    focal_spread_angstrom: float,
    focal_points: int | None,
    detector: Detector | None,
    scan_shape: tuple[int, int] | None,
    precision: Literal["float32", "float64"],
    xp: Any,
    engine: EngineName,
    seed: int,
) -> Exposure:
    """Prepares a stack of patterns.

    Args:
        grid: The sampling of the waves.
        slice_thickness_angstrom: Thickness of each slice, Å.
        positions: Probe positions (n, 2) as (y, x), Å.
        energy_ev: As the other arguments from here on, that of `namsa.simulate`.

    Raises:
        InputError: If an argument is out of its range, the engine does not support the grid, or beam, detector and grid
            do not fit.
    """
    checks.check_ranges(
        semiangle_mrad=semiangle_mrad,
        beam_tilt_mrad=beam_tilt_mrad,
        source_size_angstrom=source_size_angstrom,
        focal_spread_angstrom=focal_spread_angstrom,
    )
    optics.check_aberrations(aberrations)
    wavelength = optics.wavelength_angstrom(energy_ev)
    # If the scan resolves how patterns change with position, they are averaged over the source afterwards.
    resolved = coherence.resolved_scan_shape(scan_shape, positions, grid, wavelength, semiangle_mrad)
    resolved = resolved if source_points is None else None
    points = 1 if resolved else source_points
    modes = coherence.modes(
        wavelength, semiangle_mrad, source_size_angstrom, points, focal_spread_angstrom, focal_points
    )
    beam = optics.BeamSettings(energy_ev, semiangle_mrad, dict(aberrations), beam_tilt_mrad, specimen_tilt_mrad)
    setup = dispatch.optical_setup(
        grid, beam, modes, slice_thickness_angstrom, detector, precision=precision, xp=xp, engine=engine
    )
    rows, columns = detectors.pixels(grid, wavelength, detector)
    return Exposure(
        positions=positions,
        setup=setup,
        beams=optics.aperture(grid, energy_ev, semiangle_mrad, beam_tilt_mrad) != 0,
        averaged_scan=resolved if source_size_angstrom else None,
        source_size_angstrom=source_size_angstrom,
        electrons=detectors.electrons_per_pattern(detector, positions, scan_shape),
        pattern_shape=(rows.count, columns.count),
        seed=seed,
    )
