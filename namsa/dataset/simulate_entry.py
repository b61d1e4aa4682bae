"""From entries of a manifest to samples: setup, simulation, density target, provenance.

The samples of a specimen have in common what `prepare_samples` computes: with the method `scatter`,
how the specimen scatters plane waves up to each of the samples' thicknesses.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from namsa.base.errors import issue_warnings
from namsa.base.names import portable_path
from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.crystals.supercell import Supercell
from namsa.dataset.entry import Entry, seed_of
from namsa.dataset.entry_density import axes_of_density, density_pixels
from namsa.dataset.labels import LABEL_NAMES, label_map
from namsa.dataset.sample_grid import layer_plan, requirement, slices_of_sample
from namsa.dataset.sample_setup import (
    SampleSetup,
    fit_supercell,
    make_sample_setup,
    settings_of_sample,
    with_varied_values,
)
from namsa.engines.interface import PatternSink, ProgressCallback
from namsa.io.charge_density import ChargeDensity
from namsa.physics import detector as detectors
from namsa.physics.grid import Grid
from namsa.physics.optics import wavelength_angstrom
from namsa.physics.slice_plan import SlicePlan
from namsa.samples.sample import Sample
from namsa.scattered_samples import Scattering
from namsa.scattering import plan_scattering
from namsa.simulation_plan import SimulationPlan, plan_simulation

SimulateSample = Callable[[Entry], Sample]


def _nothing(stage: str, done: int, total: int) -> None:
    """Reports no progress."""


def prepare_samples(
    config: SimulationConfig,
    material: Material,
    # All of the specimen's samples that can be built, also those that are not simulated: the last
    # digits of a sample depend on them.
    entries: Sequence[Entry],
    on_progress: ProgressCallback = _nothing,  # called as `on_progress(stage, done, total)`
    # That of the crystal, as `namsa.simulate` takes it.
    charge_density: ChargeDensity | None = None,
    judged: bool = False,  # whether the accuracy judges numerical settings that are given
) -> SimulateSample:
    """Returns what simulates the samples of one specimen; what they have in common is computed
    here.

    Returns:
        A function of one of `entries`.

    Raises:
        InputError: If the specimen cannot be built, or does not go with the microscope.
        OutOfMemoryError: If its scattering matrices do not fit into memory.
    """
    if config.simulation.method == "scatter":
        specimen = _scatter_specimen(config, material, entries, on_progress, charge_density, judged)
        return partial(specimen.simulate, on_progress=on_progress)
    return partial(
        simulate_entry,
        config,
        material,
        on_progress=on_progress,
        charge_density=charge_density,
        judged=judged,
    )


@threadpool_limits.wrap(limits=1, user_api="blas")  # as in `simulate`
def simulate_entry(
    config: SimulationConfig,
    material: Material,
    entry: Entry,
    on_progress: ProgressCallback = _nothing,  # called as `on_progress(stage, done, total)`
    # Takes the patterns, as in `namsa.simulate`; `None` returns them.
    sink: PatternSink | None = None,
    # That of the crystal, as `namsa.simulate` takes it.
    charge_density: ChargeDensity | None = None,
    judged: bool = False,  # whether the accuracy judges numerical settings that are given
) -> Sample:
    """Simulates the sample that `entry` describes. Its bits depend on the configuration and the
    entry alone.

    With the method `scatter` they depend on the specimen's other samples too, and equal those of a
    dataset to rounding.

    Returns:
        The sample with the density target, and provenance that names the entry.

    Raises:
        InputError: If the crystal, grid, probe and detector do not go together.
    """
    if config.simulation.method == "scatter":
        prepare = prepare_samples(config, material, [entry], on_progress, charge_density, judged)
        sample = prepare(entry)
        return _moved(sample, sink, config.scan.shape) if sink else sample
    plan = plan_entry(config, material, entry, charge_density, judged)
    if judged:
        plan = plan.measured()
    plan.issue_warnings()
    return plan.run(sink, on_progress)


@dataclass(frozen=True)
class EntryPlan:
    """The simulation of an entry, which is checked, before any work but placing the atoms."""

    setup: SampleSetup
    supercell: Supercell
    simulation: SimulationPlan
    warnings: list[str]  # about thickness and strain, which the sample has after the others
    samples_hash: str  # that of the dataset's configuration

    def issue_warnings(self) -> None:
        """Warns of what the sample's provenance will have, and of what is not known of it."""
        texts = [*self.warnings, *self.simulation.warnings]
        issue_warnings(texts, self.simulation.notes, stacklevel=3)

    def measured(self) -> "EntryPlan":
        """Returns the plan with pixels and slices that were tried on a few probes; see
        `SimulationPlan.measured`.
        """
        simulation = self.simulation.measured()
        grid = simulation.slicing.grid
        return replace(self, setup=replace(self.setup, grid=grid), simulation=simulation)

    def run(
        self, sink: PatternSink | None = None, on_progress: ProgressCallback = _nothing
    ) -> Sample:
        """Simulates the sample; arguments as for `simulate_entry`."""
        sample = self.simulation.run(sink, on_progress)
        sample.provenance["warnings"] += self.warnings
        return _complete(self.setup, self.supercell, sample, self.samples_hash)


@threadpool_limits.wrap(limits=1, user_api="blas")  # as in `simulate`
def plan_entry(
    config: SimulationConfig,
    material: Material,
    entry: Entry,
    charge_density: ChargeDensity | None = None,
    judged: bool = False,
) -> EntryPlan:
    """Checks the simulation of an entry; arguments and errors as `simulate_entry`.

    The sample of a specimen that others are cut from, too, is planned as one of its own.
    """
    if config.simulation.method == "scatter":
        of_its_own = config.simulation.model_copy(update={"method": "prism"})
        config = config.model_copy(update={"simulation": of_its_own})
    setup = make_sample_setup(config, material, entry)
    supercell = setup.supercell()
    settings = settings_of_sample(setup, entry.seed, charge_density=charge_density, judged=judged)
    if judged and config.simulation.sampling_angstrom == "auto":
        # Chosen anew for this sample alone, so that the choice can be measured.
        chosen = {"grid_shape": None, "sampling_angstrom": "auto"}
        simulation = settings.simulation.model_copy(update=chosen)
        settings = replace(settings, simulation=simulation, band_fraction=None)
    return EntryPlan(
        setup=setup,
        supercell=supercell,
        simulation=plan_simulation(setup.snapshots(supercell, entry.seed), settings),
        warnings=setup.warnings(),
        samples_hash=config.samples_hash(),
    )


@dataclass(frozen=True)
class _ScatteredSpecimen:
    """A specimen from whose scattering samples are made."""

    config: SimulationConfig
    material: Material
    setup: SampleSetup  # of the first entry; the supercell is that of all
    supercell: Supercell
    scattering: Scattering
    depth_of_slices: dict[int, int]  # number of the depth, by the number of slices up to it
    plan: SlicePlan | None  # the slices, if they follow the layers of atoms
    seed: int  # of the thermal displacements
    samples_hash: str  # that of the dataset's configuration

    @threadpool_limits.wrap(limits=1, user_api="blas")
    def simulate(self, entry: Entry, on_progress: ProgressCallback = _nothing) -> Sample:
        """Returns the sample of one of the specimen's entries."""
        setup = make_sample_setup(
            self.config,
            self.material,
            entry,
            self.setup.fit,
            supercell=self.setup.filled,
            plan=self.plan,
        )
        exposure = self.scattering.plan(
            self.depth_of_slices[setup.slices], settings_of_sample(setup, entry.seed)
        )
        warnings = setup.warnings()
        issue_warnings([*exposure.warnings, *warnings], exposure.notes, stacklevel=3)
        sample = exposure.run(on_progress)
        sample.provenance["warnings"] += warnings
        described = {
            "specimen": entry.specimen,
            "thickness_angstrom": setup.fit.lengths_angstrom[2],
            "depths": list(self.depth_of_slices),
            "seed": self.seed,
        }
        return _complete(setup, self.supercell, sample, self.samples_hash, scattering=described)


def _scatter_specimen(
    config: SimulationConfig,
    material: Material,
    entries: Sequence[Entry],
    on_progress: ProgressCallback,
    charge_density: ChargeDensity | None,
    judged: bool,
) -> _ScatteredSpecimen:
    """Propagates plane waves through a specimen, up to the thickness of each of its samples.

    Arguments and errors as `prepare_samples`.
    """
    fit = fit_supercell(config, material, entries[0])
    setup = make_sample_setup(config, material, entries[0], fit)
    supercell = setup.supercell()
    seed = seed_of(config.seed, entries[0].specimen)
    snapshots = setup.snapshots(supercell, seed)
    max_angle = _largest_angle_mrad(config, entries, setup.grid)
    plan = None
    if config.simulation.follows_layers:
        plan = layer_plan(config, snapshots[0], max_angle)
    thickness_of_slices = {}
    for entry in entries:
        slices, thickness = slices_of_sample(config, fit, entry.thickness_angstrom, plan)
        thickness_of_slices[slices] = thickness
    depths = sorted(thickness_of_slices)
    settings = settings_of_sample(setup, seed, charge_density=charge_density, judged=judged)
    scattering_plan = plan_scattering(
        snapshots,
        replace(settings, reach_mrad=requirement(config, fit.lengths_angstrom).recorded_mrad),
        max_angle_mrad=max_angle,
        max_detected_mrad=_reach_mrad(setup),
        thicknesses_angstrom=[thickness_of_slices[slices] for slices in depths],
    )
    issue_warnings(scattering_plan.slicing.warnings, stacklevel=3)
    return _ScatteredSpecimen(
        config=config,
        material=material,
        setup=setup,
        supercell=supercell,
        scattering=scattering_plan.run(on_progress),
        depth_of_slices={slices: depth for depth, slices in enumerate(depths)},
        plan=plan,
        seed=seed,
        samples_hash=config.samples_hash(),
    )


def check_entry(
    config: SimulationConfig,
    material: Material,
    entry: Entry,
    charge_density: ChargeDensity | None = None,
    judged: bool = False,
) -> None:
    """Raises what `simulate_entry` would raise before it begins to work, and warns as it does.
    Atoms are placed.
    """
    plan_entry(config, material, entry, charge_density, judged).issue_warnings()


def _complete(
    setup: SampleSetup, supercell: Supercell, sample: Sample, samples_hash: str, **described: object
) -> Sample:
    """Returns a sample with its density target, and provenance that names the entry.

    Args:
        samples_hash: That of the dataset's configuration.
        described: Values that the provenance has besides.
    """
    material = setup.material
    entry = setup.entry
    target = density_pixels(setup)
    density = target.of(sample.density)
    by_depth = None
    if sample.density_by_depth is not None:
        by_depth = np.stack([target.of(of_bin) for of_bin in sample.density_by_depth])
    provenance = sample.provenance | {
        "id": entry.id,
        "material": entry.material,
        "formula": entry.formula,
        "space_group": entry.space_group,
        "source": portable_path(material.source),
        "source_kind": material.kind,
        "zone_axis": list(entry.zone_axis),
        "wanted_thickness_angstrom": entry.thickness_angstrom,
        "thickness_angstrom": setup.thickness_angstrom,
        "strain": supercell.strain,
        "split": entry.split,
        "config_hash": samples_hash,
        **described,
        "density_sampling_angstrom": target.step_angstrom,
        "density_origin_angstrom": target.origin_angstrom,
        "density_max_q_per_angstrom": target.max_q_per_angstrom,
    }
    if setup.config.simulation.sampling_angstrom == "auto":
        provenance["accuracy"] = setup.config.simulation.accuracy
    if entry.varied:
        provenance["varied"] = entry.varied
    if entry.kind != "crystal":
        provenance |= {
            "kind": entry.kind,
            "kind_parameters": supercell.parameters,
            "atoms": len(supercell.atoms),
        }
    if material.partner:
        provenance |= {
            "partner": material.partner.name,
            "partner_source": portable_path(material.partner.source),
        }
    labels = None
    if entry.kind in LABEL_NAMES:
        labels = label_map(supercell.atoms, setup.grid, *axes_of_density(setup))
        provenance["label_names"] = list(LABEL_NAMES[entry.kind])
    return replace(
        sample, density=density, provenance=provenance, labels=labels, density_by_depth=by_depth
    )


def _largest_angle_mrad(config: SimulationConfig, entries: Sequence[Entry], grid: Grid) -> float:
    """Returns the largest angle of a plane wave of the samples with the axis, mrad."""
    # The aperture's soft edge is a reciprocal pixel wide along its own radius, and a tilt moves it
    # to other directions.
    wavelength = wavelength_angstrom(config.microscope.energy_ev)
    pitch = [1e3 * wavelength / extent for extent in grid.extent_angstrom]
    edge = 0.5 * (max(pitch) - min(pitch))
    largest = 0.0
    for entry in entries:
        microscope = with_varied_values(config, entry).microscope
        tilt = float(np.hypot(*microscope.beam_tilt_mrad))
        tilted_by = tilt + edge if tilt else 0.0
        largest = max(largest, microscope.semiangle_mrad + tilted_by)
    return largest


def _reach_mrad(setup: SampleSetup) -> float | None:
    """Returns the largest angle along y or x at which a reciprocal pixel lies on the detector;
    `None` without one.
    """
    if setup.config.detector is None:
        return None
    wavelength = wavelength_angstrom(setup.config.microscope.energy_ev)
    rows = detectors.pixels(setup.grid, wavelength, setup.config.detector)
    reach = max(max(-row.edge, row.edge + row.count) * row.size_mrad for row in rows)
    return reach + 0.5e3 * wavelength / min(setup.grid.extent_angstrom)


def _moved(sample: Sample, sink: PatternSink, scan_shape: tuple[int, int] | None) -> Sample:
    """Gives the patterns of a sample to a sink, and returns the rest."""
    patterns = sample.cbed
    identity = hashlib.sha256(patterns.tobytes()).hexdigest()
    count, rows_of_pattern, columns = patterns.shape
    sink.begin((count, rows_of_pattern, columns), patterns.dtype, scan_shape, count, identity)
    for rows in sink.pending(0):
        sink.write(rows, patterns[rows], 1)
    return replace(sample, cbed=sink.patterns())
