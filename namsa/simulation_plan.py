"""The plan of a simulation, which checks everything and does no work, and its run."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from namsa.base.provenance_values import Provenance
from namsa.engines import dispatch, prism
from namsa.engines.expected_time import interpolated_work, time_note
from namsa.engines.exposure import Exposure, expose
from namsa.engines.interface import MemorySink, PatternSink, ProgressCallback
from namsa.engines.interpolated_prism import (
    approximation,
    check_interpolation,
    interpolated,
    window_doubt,
)
from namsa.engines.wave_recorder import WaveRecorder, check_waves
from namsa.physics.grid import Grid
from namsa.physics.optics import BeamSettings
from namsa.physics.potential import Slices
from namsa.samples.sample import Sample
from namsa.sampling import measurement
from namsa.sampling.slicing import Slicing, plan_slices, requirement_of
from namsa.sampling.snapshots import Snapshots
from namsa.setup import checks, provenance
from namsa.setup.scan import ProbePositions, probe_positions
from namsa.setup.settings import SimulationSettings


@dataclass(frozen=True)
class SimulationPlan:
    """A simulation whose arguments are checked, before any work."""

    # The simulation, with the engine, the method and what else was chosen.
    settings: SimulationSettings
    slicing: Slicing  # the specimen, its pixels, slices and thermal configurations
    exposure: Exposure  # the probes and the detector
    reuse: prism.PlaneWaveReuse | None  # settings of PRISM; `None` propagates every probe
    warnings: tuple[str, ...]  # about results that may mislead, which the sample has, too

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings that the sample does not have."""
        return (self.exposure.note,) if self.exposure.note else ()

    @property
    def work(self) -> prism.Work:
        """Counts of slices, probes and plane waves."""
        exposure = self.exposure
        setup = exposure.setup
        work = prism.work_of(
            self.slicing.slices,
            exposure.positions,
            len(setup.modes),
            exposure.beams,
            setup.fresnel,
            setup.binning,
        )
        interpolation = self.settings.simulation.interpolation
        return interpolated_work(work, interpolation) if interpolation > 1 else work

    @property
    def operations(self) -> float:
        """Weighted floating-point operations of all probes (`prism.operations`)."""
        reuses = self.settings.simulation.method == "prism"
        return prism.operations(self.work, reuses) * self.slicing.configurations

    @threadpool_limits.wrap(limits=1, user_api="blas")
    def time_notes(self) -> tuple[str, ...]:
        """Returns how long the simulation will take, in a line; nothing of a short one."""
        simulation = self.settings.simulation
        counts = self.slicing.counts(self.work, self.exposure.pattern_shape)
        on_host = self.slicing.xp is np
        note = time_note(counts, simulation.method, simulation.engine, on_host)
        return (note,) if note else ()

    @threadpool_limits.wrap(limits=1, user_api="blas")
    def measured(self) -> "SimulationPlan":
        """Tries the chosen pixels and slices on a few probes, if that takes little of the time of
        the simulation; returns the plan with those that hold (`namsa.sampling.measurement`).
        """
        slicing = measurement.measure(self.slicing, self.exposure.positions, self.operations)
        if slicing.measurement is None:
            return self
        return _plan_of(slicing)

    # Threads compute slices and probes. More threads inside a product of small matrices would be
    # slower, and the last bits of the product would depend on their number.
    @threadpool_limits.wrap(limits=1, user_api="blas")
    def run(
        self,
        sink: PatternSink | None = None,
        on_progress: ProgressCallback = lambda stage, done, total: None,
    ) -> Sample:
        """Simulates the sample. Arguments as for `simulate`.

        Raises:
            OutOfMemoryError: If the patterns do not fit into memory.
        """
        slicing = self.slicing
        exposure = self.exposure
        recorder = self._recorder(sink is not None)
        setup = self._setup(recorder)
        sink = sink or MemorySink()
        self._begin(sink)
        finish = partial(exposure.finish, configurations=slicing.configurations)

        def scatter(configuration: int, slices: Slices, on_part: ProgressCallback) -> None:
            is_last = configuration == slicing.configurations - 1
            dispatch.fill(
                sink,
                configuration,
                exposure.positions,
                setup,
                slices,
                self.reuse,
                finish if is_last else None,
                on_part,
            )

        fields = slicing.average(scatter, on_progress, depth_bins=self.settings.depth_bins)
        return Sample(
            sink.patterns(),
            fields.densities[-1],
            fields.projected_potentials[-1],
            self._provenance(),
            density_by_depth=fields.density_by_depth,
            waves=recorder.waves if recorder else None,
        )

    def _recorder(self, has_sink: bool) -> WaveRecorder | None:
        """Returns what keeps the exit waves; `None` if they are not asked for."""
        if not self.settings.waves:
            return None
        check_waves(self.settings.simulation, has_sink)
        slicing = self.slicing
        return WaveRecorder(
            slicing.grid,
            slicing.configurations,
            len(self.exposure.setup.modes),
            len(self.exposure.positions),
            slicing.dtype,
        )

    def _setup(self, recorder: WaveRecorder | None) -> dispatch.OpticalSetup:
        """Returns the optics, with the engine that records waves or adds up plane waves."""
        setup = self.exposure.setup
        if recorder:
            return replace(setup, implementation=recorder.implementation)
        factor = self.settings.simulation.interpolation
        if factor > 1:
            implementation = interpolated(setup.implementation, self.exposure.beams, factor)
            return replace(setup, implementation=implementation)
        return setup

    def _provenance(self) -> Provenance:
        """Returns the provenance of the sample."""
        slicing = self.slicing
        setup = self.exposure.setup
        return provenance.describe(
            self._arguments(),
            slicing.grid,
            wavelength=setup.beam.wavelength,
            atoms=slicing.atom_counts,
            positions=self.exposure.positions,
            thickness_angstrom=slicing.thickness_angstrom,
            slices=slicing.slices,
            coherent_probes=len(setup.modes),
            backend=slicing.xp.__name__,
            warnings=self.warnings,
            evidence=slicing.accuracy_evidence(),
        )

    def _begin(self, sink: PatternSink) -> None:
        """Prepares a sink for the patterns. Raises OutOfMemoryError if a batch does not fit."""
        exposure = self.exposure
        positions = exposure.positions
        real = np.dtype(self.settings.simulation.precision)
        if exposure.averaged_scan:
            multiple = len(positions)
        else:
            multiple = dispatch.batch_multiple(exposure.setup, self.reuse)
        slicing = self.slicing
        identity = provenance.fingerprint(
            self._arguments(), slicing.snapshots, positions, slicing.xp.__name__
        )
        shape = (len(positions), *exposure.pattern_shape)
        batch = sink.begin(shape, real, self.settings.scan_shape, multiple, identity)
        checks.check_memory(batch, exposure.pattern_shape, real.itemsize)

    def _arguments(self) -> dict[str, object]:
        """Returns the simulation's description by the names of its arguments."""
        return provenance.serialise(
            self.settings, self.slicing.grid, self.slicing.bonding_description
        )


@threadpool_limits.wrap(limits=1, user_api="blas")  # as `SimulationPlan.run`
def plan_simulation(atoms: Snapshots, settings: SimulationSettings) -> SimulationPlan:
    """Checks a simulation and makes its choices, without any work.

    Args:
        atoms: The specimen, as `simulate` takes it.

    Raises:
        InputError: If it cannot be simulated.
    """
    checks.check_depth_bins(settings.depth_bins)

    return _plan_of(plan_slices(atoms, settings))


def _plan_of(slicing: Slicing) -> SimulationPlan:
    """Returns the plan of a specimen that is sliced, with the choices that follow from it."""
    settings = slicing.settings
    probes = probe_positions(settings, slicing.grid.extent_angstrom)

    # ---- Optics: coherent probes, the propagator, the detector
    exposure = expose(
        settings,
        slicing.grid,
        slicing.slice_thicknesses_angstrom,
        slicing.thickness_angstrom,
        probes,
        slicing.xp,
    )
    setup = exposure.setup
    reuse = prism.choose(
        _propagated_by(settings, slicing.grid),
        slicing.slices,
        probes.positions,
        len(setup.modes),
        exposure.beams,
        setup.fresnel,
        setup.binning,
    )

    # ---- What was chosen, and what is doubtful about it
    interpolates = settings.simulation.interpolation > 1
    chosen = {
        "engine": "plain" if settings.waves else setup.implementation.name,
        "method": "prism" if reuse or interpolates else "multislice",
    }
    return SimulationPlan(
        settings=replace(
            settings,
            simulation=settings.simulation.model_copy(update=chosen),
            scan_shape=probes.scan_shape,
        ),
        slicing=slicing,
        exposure=exposure,
        reuse=reuse,
        warnings=(*slicing.warnings, *_warnings(slicing, setup.beam, probes)),
    )


def _propagated_by(settings: SimulationSettings, grid: Grid) -> str:
    """Returns the method by which waves are propagated.

    Raises:
        InputError: If waves cannot be recorded, or the interpolation does not suit the method or
            the grid.
    """
    simulation = settings.simulation
    method = simulation.method
    if settings.waves:
        check_waves(simulation, has_sink=False)
        method = "multislice"
    check_interpolation(simulation.interpolation, grid.shape, method)
    if simulation.interpolation > 1:
        return "multislice"  # of plane waves, which the interpolated engine adds up
    return method


def _warnings(slicing: Slicing, beam: BeamSettings, probes: ProbePositions) -> list[str]:
    """Returns warnings about results that may mislead, other than those of the specimen."""
    settings = slicing.settings
    simulation = settings.simulation
    thickness_angstrom = slicing.thickness_angstrom
    texts = checks.warning_texts(
        slicing.grid,
        beam,
        thickness_angstrom,
        slicing.equal_slices_angstrom,
        settings.detector,
        probes.positions,
    )
    texts += checks.fine_steps(probes.step_angstrom, beam)
    factor = simulation.interpolation
    if factor > 1:
        texts.append(window_doubt(slicing.grid, beam, thickness_angstrom, factor))
        if settings.judged:
            texts.append(approximation(slicing.grid, beam, factor, simulation.accuracy))
    if simulation.propagator == "paraxial":
        reach_mrad = requirement_of(settings, slicing.grid.extent_angstrom).reach_mrad
        texts += checks.paraxial_doubts(beam.wavelength, thickness_angstrom, reach_mrad)
    texts.append(slicing.inaccuracy() or "")
    return [text for text in texts if text]
