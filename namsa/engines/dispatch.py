"""Chooses the engine and the method of a simulation, and adds the patterns of all coherent
probes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.config.instrument import Detector
from namsa.config.numerics import PropagatorName
from namsa.engines import fused, fused_gpu, kernel_plan, multislice, prism
from namsa.engines.interface import (
    Engine,
    PatternSink,
    PlaneWaves,
    ProgressCallback,
    waves_per_batch,
)
from namsa.physics import optics
from namsa.physics.coherence import Mode
from namsa.physics.detector import bin_matrices
from namsa.physics.grid import Array, Grid
from namsa.physics.potential import Slices
from namsa.setup import checks

EngineName = Literal["auto", "plain", "fused"]


class Implementation(NamedTuple):
    """The classes that propagate waves through slices."""

    name: Literal["plain", "fused"]  # "plain" or "fused", as the provenance has it
    engine: Callable[[Grid, Slices, Array], Engine]  # makes an engine of (grid, slices, propagator)
    # Makes plane waves of (grid, slices, propagator).
    plane_waves: Callable[[Grid, Slices, Array], PlaneWaves]


PLAIN = Implementation("plain", multislice.PlainEngine, multislice.PlainEngine)
FUSED = Implementation("fused", fused.FusedEngine, fused.FusedPlaneWaves)
FUSED_GPU = Implementation("fused", fused_gpu.FusedGpuEngine, multislice.PlainEngine)


def choose_implementation(
    engine: EngineName,
    xp: ModuleType,
    shape: tuple[int, int],
    dtype: npt.DTypeLike,
    fits: bool = True,
) -> Implementation:
    """Chooses the classes that propagate waves. "auto" chooses the fused ones where they support
    the grid.

    Args:
        fits: Whether a GPU has the shared memory for the fused kernels.

    Raises:
        InputError: If the fused engine is requested and does not support the grid or the precision.
    """
    on_host = xp is np
    if on_host:
        supported = fused.supports(shape, dtype)
    else:
        supported = kernel_plan.supports(shape, dtype)
    checks.check_engine(engine, shape, supported)
    if engine == "fused" or (engine == "auto" and supported and fits):
        return FUSED if on_host else FUSED_GPU
    return PLAIN


@dataclass(frozen=True)
class OpticalSetup:
    """Data of all thermal configurations of a specimen. Arrays are on the host or the device."""

    grid: Grid  # the sampling of the waves
    beam: optics.BeamSettings  # the electron beam and its lens
    modes: list[Mode]  # the coherent probes
    # the propagators over the distinct slices, (m, ny, nx) complex, zero frequency first
    propagators: Array
    # The detector's matrices as `namsa.physics.detector.bin_matrices` makes them. `None` without
    # detector.
    binning: tuple[Array, Array] | None
    implementation: Implementation  # the classes that propagate waves
    xp: ModuleType  # the array module, numpy or cupy

    @property
    def fresnel(self) -> Array:
        """The first propagator, (ny, nx); all are zero at the same frequencies."""
        return self.propagators[0]

    def lens(self, mode: Mode) -> Array:
        """Returns the lens of a mode with the mode's share of the beam, (ny, nx) complex, zero
        frequency first.
        """
        wave = optics.lens(self.grid, self.beam, mode.c10)
        return self.xp.asarray((np.sqrt(mode.share) * wave).astype(self.fresnel.dtype))


def optical_setup(
    grid: Grid,
    beam: optics.BeamSettings,
    modes: list[Mode],  # the coherent probes
    slice_thicknesses_angstrom: Sequence[float],  # distinct thicknesses of slices, Å
    detector: Detector | None,  # the detector; `None` leaves patterns on the reciprocal grid
    *,
    precision: Literal["float32", "float64"] = "float32",  # precision of waves and patterns
    xp: ModuleType = np,
    engine: EngineName = "auto",  # the requested engine
    propagation: PropagatorName = "paraxial",  # kind of the propagators
) -> OpticalSetup:
    """Computes the propagator and the detector's matrices, and chooses the engine.

    Raises:
        InputError: If the engine does not support the grid, or beam, detector and grid do not fit.
    """
    real = np.dtype(precision)
    dtype = np.result_type(precision, np.complex64)
    wavelength = beam.wavelength
    propagators = xp.empty((len(slice_thicknesses_angstrom), *grid.shape), dtype)
    for propagator, thickness in zip(propagators, slice_thicknesses_angstrom, strict=True):
        tilt = optics.specimen_tilt(grid, beam.specimen_tilt_mrad, thickness)
        propagator[...] = xp.asarray(
            (multislice.propagator(grid, wavelength, thickness, propagation) * tilt).astype(dtype)
        )
    binning = None
    if detector:
        rows, columns = bin_matrices(grid, wavelength, detector)
        binning = (xp.asarray(rows.astype(real)), xp.asarray(columns.astype(real)))
    # The propagator reaches all frequencies that a lens may have.
    fits = (
        xp is np
        or engine != "auto"
        or fused_gpu.device_plan(propagators[0], propagators[0]) is not None
    )
    implementation = choose_implementation(engine, xp, grid.shape, dtype, fits)
    return OpticalSetup(grid, beam, modes, propagators, binning, implementation, xp)


def add_patterns(
    cbed: npt.NDArray[np.floating],  # patterns (n, dy, dx) on the host, changed in place
    positions: npt.NDArray[np.float64],  # probe positions (n, 2) as (y, x), Å
    setup: OpticalSetup,  # lenses, propagator and detector
    engine: Engine,  # the specimen's engine
    # Called as `on_progress(stage, done, total)`.
    on_progress: ProgressCallback = lambda stage, done, total: None,
) -> None:
    """Adds to `cbed` the patterns of all modes at all positions."""
    for index, mode in enumerate(setup.modes):
        on_probes = partial(part_of(on_progress, index, len(setup.modes)), "probes")
        probes = engine.prepare(setup.lens(mode))
        probes.add_patterns(cbed, positions + mode.shift, setup.binning, on_probes)


def make_engine(
    setup: OpticalSetup,  # propagator and implementation
    slices: Slices,  # the specimen's transmission functions
    reuse: prism.PlaneWaveReuse | None = None,  # settings of PRISM; `None` propagates every probe
    # Called as `on_progress(stage, done, total)`.
    on_progress: ProgressCallback = lambda stage, done, total: None,
) -> Engine:
    """Returns the engine of one specimen."""
    if reuse is None:
        return setup.implementation.engine(setup.grid, slices, setup.propagators)
    plane_waves = setup.implementation.plane_waves(setup.grid, slices, setup.propagators)
    on_beams = partial(on_progress, "plane waves")
    (matrix,) = prism.scattering_matrices(
        plane_waves, setup.fresnel, reuse, [len(slices.order)], on_beams
    )
    return prism.PrismEngine(setup.grid, matrix, reuse.batch)


def fill(
    sink: PatternSink,
    configuration: int,  # number of the configuration, from 0
    positions: npt.NDArray[np.float64],  # probe positions (n, 2) as (y, x), Å
    setup: OpticalSetup,  # lenses, propagator and detector
    slices: Slices,  # the specimen's transmission functions in this configuration
    reuse: prism.PlaneWaveReuse | None,  # settings of PRISM; `None` propagates every probe
    # Of the last configuration, makes what is stored of the sums: called with a batch, which it may
    # change, and the number of its first pattern.
    finish: Callable[[npt.NDArray[np.floating], int], npt.NDArray[np.floating]] | None,
    on_progress: ProgressCallback,  # called as `on_progress(stage, done, total)`
) -> None:
    """Adds the patterns of a thermal configuration to the batches of a sink that lack them."""
    engine: Engine | None = None
    for rows in sink.pending(configuration):
        if engine is None:
            engine = make_engine(setup, slices, reuse, on_progress)
        patterns = sink.read(rows)
        on_batch = part_of_batches(on_progress, rows, len(positions))
        add_patterns(patterns, positions[rows], setup, engine, on_batch)
        if finish:
            patterns = finish(patterns, rows.start)
        sink.write(rows, patterns, configuration + 1)


def batch_multiple(setup: OpticalSetup, reuse: prism.PlaneWaveReuse | None) -> int:
    """Returns how many patterns an engine computes together on a host.

    A part of a scan that starts at a multiple of it has the same bits as in the whole scan:
    rounding can depend on what is computed together.
    """
    return reuse.batch if reuse else waves_per_batch(setup.fresnel)


def part_of_batches(on_progress: ProgressCallback, rows: slice, patterns: int) -> ProgressCallback:
    """Returns a callback that reports the progress of a batch of patterns as that of all; other
    stages as they are.
    """

    def report(stage: str, done: int, total: int) -> None:
        per_pattern = total // (rows.stop - rows.start)
        on_progress(stage, rows.start * per_pattern + done, patterns * per_pattern)

    return report


def part_of(on_progress: ProgressCallback, index: int, count: int) -> ProgressCallback:
    """Returns a callback that reports the progress of part `index` of `count` equal parts as that
    of the whole.
    """
    return lambda stage, done, total: on_progress(stage, index * total + done, count * total)
