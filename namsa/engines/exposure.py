"""One stack of patterns before its specimen is known: positions, lens, source, detector and noise,
on one grid.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from namsa.base.arrays import Array, Booleans, Floats
from namsa.base.errors import InputError
from namsa.config.instrument import Microscope
from namsa.config.response import PRESETS, Response
from namsa.engines import dispatch
from namsa.physics import coherence, optics
from namsa.physics import detector as detectors
from namsa.physics.grid import Grid
from namsa.physics.response import PatternFilter, counted, pattern_filter
from namsa.setup import checks
from namsa.setup.scan import ProbePositions
from namsa.setup.settings import SimulationSettings


@dataclass(frozen=True)
class Exposure:
    """Preparation and completion of a stack of patterns."""

    positions: Floats  # probe positions (n, 2) as (y, x), Å
    setup: dispatch.OpticalSetup  # lenses, propagator, detector and engine
    beams: Booleans  # plane waves of the lens, (ny, nx), zero frequency first
    # Rows and columns of a raster that is averaged over the source when all patterns are there.
    # `None` if coherent probes sample the source.
    averaged_scan: tuple[int, int] | None
    source_size_angstrom: float  # FWHM of the Gaussian source at the specimen, Å
    electrons: float | None  # electrons per pattern; `None` without noise
    # Convolution by plasmons and the detector; `None` if there is none.
    blurring: PatternFilter | None
    response: Response | None  # the detector's response; `None` if it is ideal
    pattern_shape: tuple[int, int]  # pixels (dy, dx) of a pattern
    seed: int  # seed of the noise
    note: str | None  # what is not known of the detector; `None` if nothing is missing

    def finish(self, patterns: Array, first_pattern: int = 0, *, configurations: int) -> Array:
        """Returns the patterns as the detector counts them.

        Args:
            patterns: Sums over the thermal configurations, (m, dy, dx); changed.
            first: Number of the first of the patterns in the stack.
        """
        if configurations > 1:
            patterns /= configurations
        if self.averaged_scan:
            extent = self.setup.grid.extent_angstrom
            coherence.average_over_source(
                patterns, self.averaged_scan, extent, self.source_size_angstrom
            )
        if self.blurring:
            self.blurring.apply(patterns)
        if self.electrons is None:
            return patterns
        expected = counted(patterns, self.electrons, self.response) if self.response else patterns
        noisy = detectors.add_poisson_noise(expected, self.electrons, self.seed, first_pattern)
        if self.response and self.response.saturation:
            np.minimum(noisy, self.response.saturation / self.electrons, out=noisy)
        return noisy


def expose(
    settings: SimulationSettings,
    grid: Grid,
    slice_thicknesses_angstrom: Sequence[float],  # distinct thicknesses of slices, Å
    thickness_angstrom: float,  # thickness of the specimen, Å
    probes: ProbePositions,
    xp: ModuleType,  # the array module, numpy or cupy
) -> Exposure:
    """Prepares a stack of patterns.

    Raises:
        InputError: If a setting is out of its range, the engine does not support the grid, or beam,
            detector and grid do not fit.
    """
    microscope = settings.microscope
    simulation = settings.simulation
    detector = settings.detector
    beam = _beam(microscope)
    averaged_scan = _averaged_scan(settings, grid, beam, probes)
    source_points = 1 if averaged_scan else microscope.source_points
    setup = dispatch.optical_setup(
        grid,
        beam,
        _modes(microscope, beam, source_points),
        slice_thicknesses_angstrom,
        detector,
        precision=simulation.precision,
        xp=xp,
        engine=simulation.engine,
        propagation=simulation.propagator,
    )
    rows, columns = detectors.pixels(grid, beam.wavelength, detector)
    electrons = detectors.electrons_per_pattern(detector, probes.positions, probes.scan_shape)
    response = detector.response if detector else None
    blurring = pattern_filter(
        (rows.count, columns.count),
        (rows.size_mrad, columns.size_mrad),
        microscope.energy_ev,
        thickness_angstrom,
        settings.plasmons,
        response,
    )
    return Exposure(
        positions=probes.positions,
        setup=setup,
        beams=optics.aperture(grid, beam) != 0,
        averaged_scan=averaged_scan if microscope.source_size_angstrom else None,
        source_size_angstrom=microscope.source_size_angstrom,
        electrons=electrons,
        blurring=blurring,
        response=response,
        pattern_shape=(rows.count, columns.count),
        seed=settings.seed,
        note=_note_of_response(response, electrons),
    )


def _beam(microscope: Microscope) -> optics.BeamSettings:
    """Returns the lens and the tilts. Raises InputError if a setting is out of its range."""
    checks.check_ranges(
        semiangle_mrad=microscope.semiangle_mrad,
        beam_tilt_mrad=microscope.beam_tilt_mrad,
        source_size_angstrom=microscope.source_size_angstrom,
        focal_spread_angstrom=microscope.focal_spread_angstrom,
    )
    optics.check_aberrations(microscope.aberrations)
    return optics.BeamSettings(
        microscope.energy_ev,
        microscope.semiangle_mrad,
        microscope.aberrations,
        microscope.beam_tilt_mrad,
        microscope.specimen_tilt_mrad,
        microscope.aperture_edge,
    )


def _modes(
    microscope: Microscope, beam: optics.BeamSettings, source_points: int | None
) -> list[coherence.Mode]:
    """Returns the coherent probes of a position."""
    return coherence.modes(
        beam.wavelength,
        microscope.semiangle_mrad,
        microscope.source_size_angstrom,
        source_points,
        microscope.focal_spread_angstrom,
        microscope.focal_points,
    )


def _averaged_scan(
    settings: SimulationSettings, grid: Grid, beam: optics.BeamSettings, probes: ProbePositions
) -> tuple[int, int] | None:
    """Returns the raster whose patterns may be averaged over the source afterwards.

    It resolves how patterns change with position; `None` if the scan does not, or the points of the
    source are given.
    """
    if settings.microscope.source_points is not None:
        return None
    return coherence.resolved_scan_shape(
        probes.scan_shape, probes.positions, grid, beam.wavelength, beam.semiangle_mrad
    )


def _note_of_response(response: Response | None, electrons: float | None) -> str | None:
    """Returns a note on what a preset of the detector leaves unknown or does not apply; `None` if
    it is complete.

    Raises:
        InputError: If losses of counts have no dose.
    """
    if response is None:
        return None
    if electrons is None and (response.dead_time_ns or response.saturation_counts):
        raise InputError(
            "detector.response has dead_time_ns or saturation_counts, which need electrons: give "
            "detector.electrons_per_pattern or dose_electrons_per_angstrom2"
        )
    if response.preset is None:
        return None
    notes = []
    if electrons is None and response.saturation:
        notes.append(
            f"its saturation of {response.saturation:g} electrons is left out, because there is "
            "no dose: give detector.electrons_per_pattern or dose_electrons_per_angstrom2"
        )
    unknown = response.unknown()
    if unknown:
        notes.append(
            f"{', '.join(unknown)} are not known here and count as ideal; give measured values "
            f"({PRESETS[response.preset].source})"
        )
    if not notes:
        return None
    return f"detector.response.preset {response.preset}: {'; '.join(notes)}"
