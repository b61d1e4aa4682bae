"""One stack of patterns before its specimen is known: positions, lens, source, detector and noise, on one grid."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from namsa import checks
from namsa.arrays import Array, Booleans, Floats
from namsa.config.instrument import Detector
from namsa.config.response import PRESETS, Plasmons, Response
from namsa.engines import dispatch
from namsa.errors import InputError, SimulationWarning
from namsa.physics import coherence, optics
from namsa.physics import detector as detectors
from namsa.physics.response import PatternFilter, counted, pattern_filter
from namsa.slicing import Slicing


@dataclass(frozen=True)
class ExposureSettings:
    """What decides a stack of patterns besides the specimen, by the names of the arguments of `namsa.simulate`."""

    semiangle_mrad: float
    aberrations: Mapping[str, float]
    beam_tilt_mrad: tuple[float, float]
    source_size_angstrom: float
    source_points: int | None
    focal_spread_angstrom: float
    focal_points: int | None
    detector: Detector | None
    plasmons: Plasmons | None
    scan_shape: tuple[int, int] | None
    seed: int


@dataclass(frozen=True)
class Exposure:
    """What prepares and finishes a stack of patterns."""

    positions: Floats  # probe positions (n, 2) as (y, x), Å
    setup: dispatch.OpticalSetup  # lenses, propagator, detector and engine
    beams: Booleans  # plane waves of the lens, (ny, nx), zero frequency first
    # Rows and columns of a raster that is averaged over the source when all patterns are there. `None` if coherent
    # probes sample the source.
    averaged_scan: tuple[int, int] | None
    source_size_angstrom: float  # FWHM of the Gaussian source at the specimen, Å
    electrons: float | None  # electrons per pattern; `None` without noise
    blurring: PatternFilter | None  # convolution by plasmons and the detector; `None` if there is none
    response: Response | None  # the detector's response; `None` if it is ideal
    pattern_shape: tuple[int, int]  # pixels (dy, dx) of a pattern
    seed: int  # seed of the noise

    def finish(self, patterns: Array, first: int = 0, *, configurations: int) -> Array:
        """Returns the patterns as the detector counts them.

        Args:
            patterns: Sums over the thermal configurations, (m, dy, dx); changed.
            first: Number of the first of the patterns in the stack.
        """
        if configurations > 1:
            patterns /= configurations
        if self.averaged_scan:
            extent = self.setup.grid.extent_angstrom
            coherence.average_over_source(patterns, self.averaged_scan, extent, self.source_size_angstrom)
        if self.blurring:
            self.blurring.apply(patterns)
        if self.electrons is None:
            return patterns
        expected = counted(patterns, self.electrons, self.response) if self.response else patterns
        noisy = detectors.add_poisson_noise(expected, self.electrons, self.seed, first)
        if self.response and self.response.saturation:
            np.minimum(noisy, self.response.saturation / self.electrons, out=noisy)
        return noisy


def expose(
    slicing: Slicing,  # how the specimen is sliced
    positions: Floats,  # probe positions (n, 2) as (y, x), Å
    settings: ExposureSettings,  # lens, source, detector and noise
    thickness_angstrom: float | None = None,  # thickness of the specimen, Å; by default all that is sliced
) -> Exposure:
    """Prepares a stack of patterns.

    Raises:
        InputError: If a setting is out of its range, the engine does not support the grid, or beam, detector and grid
            do not fit.
    """
    checks.check_ranges(
        semiangle_mrad=settings.semiangle_mrad,
        beam_tilt_mrad=settings.beam_tilt_mrad,
        source_size_angstrom=settings.source_size_angstrom,
        focal_spread_angstrom=settings.focal_spread_angstrom,
    )
    optics.check_aberrations(settings.aberrations)
    grid, semiangle, detector, own = slicing.grid, settings.semiangle_mrad, settings.detector, slicing.settings
    tilts = settings.beam_tilt_mrad, own.specimen_tilt_mrad
    beam = optics.BeamSettings(own.energy_ev, semiangle, settings.aberrations, *tilts)
    # If the scan resolves how patterns change with position, they are averaged over the source afterwards.
    resolved = coherence.resolved_scan_shape(settings.scan_shape, positions, grid, beam.wavelength, semiangle)
    resolved = resolved if settings.source_points is None else None
    modes = coherence.modes(
        beam.wavelength,
        semiangle,
        settings.source_size_angstrom,
        1 if resolved else settings.source_points,
        settings.focal_spread_angstrom,
        settings.focal_points,
    )
    setup = dispatch.optical_setup(
        grid,
        beam,
        modes,
        slicing.slice_thicknesses_angstrom,
        detector,
        precision=own.precision,
        xp=slicing.xp,
        engine=own.engine,
    )
    rows, columns = detectors.pixels(grid, beam.wavelength, detector)
    electrons = detectors.electrons_per_pattern(detector, positions, settings.scan_shape)
    response = detector.response if detector else None
    _check_response(response, electrons)
    blurring = pattern_filter(
        (rows.count, columns.count),
        (rows.size_mrad, columns.size_mrad),
        own.energy_ev,
        thickness_angstrom or slicing.thickness_angstrom,
        settings.plasmons,
        response,
    )
    return Exposure(
        positions=positions,
        setup=setup,
        beams=optics.aperture(grid, beam) != 0,
        averaged_scan=resolved if settings.source_size_angstrom else None,
        source_size_angstrom=settings.source_size_angstrom,
        electrons=electrons,
        blurring=blurring,
        response=response,
        pattern_shape=(rows.count, columns.count),
        seed=settings.seed,
    )


def _check_response(response: Response | None, electrons: float | None) -> None:
    """Warns of what a preset leaves unknown. Raises InputError if losses of counts have no dose."""
    if response is None:
        return
    if electrons is None and (response.dead_time_ns or response.saturation_counts):
        raise InputError(
            "detector.response has dead_time_ns or saturation_counts, which need electrons: give "
            "detector.electrons_per_pattern or dose_electrons_per_angstrom2"
        )
    if (unknown := response.unknown()) and response.preset:
        warnings.warn(
            f"detector.response.preset {response.preset}: {', '.join(unknown)} are not known here and count as ideal; "
            f"give measured values ({PRESETS[response.preset].source})",
            SimulationWarning,
            stacklevel=5,
        )
