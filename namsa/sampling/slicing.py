"""One specimen, sliced one configuration of its atoms after the other.

`simulate` and `scatter` have this in common. The configurations are the snapshots that are given,
each displaced thermally as often as is asked.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType

import ase
import numpy as np
import numpy.typing as npt

from namsa.base.text import plural
from namsa.crystals.displacements import displace_atoms
from namsa.engines import dispatch, prism
from namsa.engines.counts import SimulationCounts
from namsa.engines.interface import ProgressCallback
from namsa.io.charge_density import bonding_of
from namsa.physics import optics, potential, specimen
from namsa.physics.backend import resolve_backend, to_host
from namsa.physics.bonding import Bonding
from namsa.physics.grid import Grid
from namsa.physics.potential import AtomList, Slices
from namsa.physics.slice_plan import SlicePlan
from namsa.sampling import choice
from namsa.sampling.choice import Requirement
from namsa.sampling.evidence import Measurement
from namsa.sampling.resolution import ColumnStrength
from namsa.sampling.snapshots import Snapshots, check_settings, check_snapshots
from namsa.setup.settings import SimulationSettings

Image = npt.NDArray[np.floating]
_MEASURED_SNAPSHOTS = 4  # whose columns decide about the pixels


@dataclass(frozen=True)
class SpecimenFields:
    """The mean density and potential of a specimen's configurations, on the host.

    They have the precision of the simulation.
    """

    densities: Image  # projected electron density up to each depth, (depths, ny, nx), e/Å²
    projected_potentials: Image  # projected potential up to each depth, (depths, ny, nx), V·Å
    # Density of each bin along the beam, (bins, ny, nx), e/Å²; `None` if it is not divided.
    density_by_depth: Image | None


@dataclass(frozen=True)
class Slicing:
    """A specimen and how it is sliced."""

    # The specimen without thermal displacements, once or in several states of the same cell.
    snapshots: tuple[ase.Atoms, ...]
    # The simulation, with the number of thermal configurations that was chosen.
    settings: SimulationSettings
    grid: Grid  # the sampling of the waves
    plans: tuple[SlicePlan, ...]  # where each snapshot is cut
    # Relative L2 error that patterns are expected to have; see `namsa.sampling.resolution`.
    expected_error: float
    # That of their mean over thermal configurations; see `namsa.sampling.thermal_average`.
    statistical_error: float
    xp: ModuleType  # the array module, numpy or cupy
    warnings: tuple[str, ...]  # what is doubtful about the atoms
    bonding: Bonding | None  # what bonds change, if a charge density was given
    required: Requirement  # what pixels, slices and configurations were chosen for
    # What was found of pixels and slices on probes; `None` if the model stands for it.
    measurement: Measurement | None = None

    @property
    def plan(self) -> SlicePlan:
        """Cuts of the first snapshot."""
        return self.plans[0]

    @property
    def extent_angstrom(self) -> tuple[float, float]:
        """Sides (y, x) of the cell, Å."""
        return self.grid.extent_angstrom

    @property
    def slices(self) -> int:
        """Number of slices of the first snapshot."""
        return self.plan.count

    @property
    def thickness_angstrom(self) -> float:
        """Thickness of the specimen, Å."""
        return float(self.snapshots[0].cell.lengths()[2])

    @property
    def slice_thickness_angstrom(self) -> float:
        """Mean thickness of a slice, Å."""
        return self.thickness_angstrom / self.slices

    @property
    def slice_thicknesses_angstrom(self) -> list[float]:
        """Distinct thicknesses of the slices of all snapshots, ascending, Å."""
        distinct = [plan.distinct_thicknesses()[0] for plan in self.plans]
        return np.unique(np.concatenate(distinct)).tolist()

    @property
    def equal_slices_angstrom(self) -> float | None:
        """Thickness of equal slices, Å; `None` if slices follow the layers of atoms."""
        if self.settings.simulation.follows_layers:
            return None
        return self.slice_thickness_angstrom

    @property
    def dtype(self) -> np.dtype[np.complexfloating]:
        """Complex type of the waves."""
        return np.result_type(self.settings.simulation.precision, np.complex64)

    @property
    def configurations(self) -> int:
        """Number of configurations of the atoms."""
        each_snapshot = choice.number_of_configurations(self.settings.frozen_phonons)
        return len(self.snapshots) * each_snapshot

    @property
    def atom_counts(self) -> dict[str, int]:
        """The number of atoms, and of snapshots if there are several, as the provenance names
        them.
        """
        counts = {"atoms": len(self.snapshots[0])}
        if len(self.snapshots) > 1:
            counts["snapshots"] = len(self.snapshots)
        return counts

    @property
    def bonding_description(self) -> dict[str, object] | None:
        """The charge density as the provenance describes it; `None` without one."""
        return dict(self.bonding.description) if self.bonding else None

    def snapshot_of(self, configuration: int) -> int:
        """Returns the number of the snapshot that a configuration is of."""
        return configuration * len(self.snapshots) // self.configurations

    def depths(self, thicknesses_angstrom: Sequence[float] | None) -> tuple[tuple[int, ...], ...]:
        """Returns the number of slices up to each thickness, Å, of each snapshot.

        Raises:
            InputError: As `SlicePlan.depths`.
        """
        return tuple(plan.depths(thicknesses_angstrom) for plan in self.plans)

    @property
    def chooses_pixels(self) -> bool:
        """Whether the pixels are left to the accuracy."""
        simulation = self.settings.simulation
        return simulation.grid_shape is None and simulation.sampling_angstrom == "auto"

    def finer_plan(self, times: float, snapshot: int = 0) -> SlicePlan:
        """Returns the slices of a snapshot, of which the layers of one are at most a part as far
        apart as is chosen; those that are given as they are.
        """
        z = specimen.atom_list(self.snapshots[snapshot]).z
        simulation = self.settings.simulation
        if simulation.slice_thickness_angstrom != "auto":
            return self.plans[snapshot]
        return choice.choose_slices(self.required, simulation, z, self.thickness_angstrom, times)

    def counts(self, work: prism.Work, pattern_shape: tuple[int, int]) -> SimulationCounts:
        """Returns what the time of a simulation follows from.

        Args:
            work: Counts of probes and plane waves.
            pattern_shape: Pixels (dy, dx) of a pattern.
        """
        simulation = self.settings.simulation
        numbers = set(self.snapshots[0].numbers.tolist())
        return SimulationCounts(
            grid=self.grid,
            work=work,
            configurations=self.configurations,
            distinct_slices=self._distinct_slices(),
            atoms=len(self.snapshots[0]),
            elements=len(numbers),
            heaviest=max(numbers, default=0),
            precision=simulation.precision,
            backend="cpu" if self.xp is np else "cupy",
            pattern_shape=pattern_shape,
        )

    def _distinct_slices(self) -> int:
        """Returns the number of slices whose transmission is computed."""
        if self.settings.frozen_phonons or len(self.snapshots) > 1:
            return self.slices
        listed = specimen.atom_list(self.snapshots[0])
        return len(potential.distinct_slices(listed, self.plan)[0])

    def following_layers(self) -> "Slicing":
        """Returns the specimen with slices that follow its layers, whatever slices are given."""
        chosen = {"slice_thickness_angstrom": "auto"}
        simulation = self.settings.simulation.model_copy(update=chosen)
        return replace(self, settings=replace(self.settings, simulation=simulation))

    def accuracy_evidence(self) -> dict[str, object] | None:
        """Returns what the provenance says of the error of chosen pixels; `None` of given ones."""
        if not self.chooses_pixels:
            return None
        if self.measurement:
            return self.measurement.as_dict()
        return {"basis": "model", "error": self.expected_error}

    def inaccuracy(self) -> str | None:
        """Returns how far pixels and thermal configurations that were given miss the accuracy.

        It is a sentence with the remedy; `None` if the accuracy is met, or judges nothing.
        """
        if not self.settings.judged:
            return None
        accuracy = self.settings.simulation.accuracy
        sentences = []
        measured = self.measurement
        if measured and not measured.holds(accuracy):
            sentences.append(
                f"the finest of {measured.raised + 1} choices that were tried, pixels of "
                f"{measured.pixel_angstrom:.3f} Å and {measured.slices} slices, give "
                f"{plural(measured.probes, 'pattern')} a relative error of {measured.error:.1%}, "
                f"the worst one {measured.worst_pattern:.1%}, and accuracy is {accuracy:.1%}: give "
                "smaller pixels (sampling)"
            )
        pixels_are_given = self.settings.simulation.sampling_angstrom != "auto"
        if pixels_are_given and self.expected_error > accuracy:
            pixel = max(self.grid.sampling_angstrom)
            better = pixel * (accuracy / self.expected_error) ** 0.5
            sentences.append(
                f"pixels of {pixel:.3f} Å give patterns a relative "
                f"error of about {self.expected_error:.1%}, and accuracy is {accuracy:.1%}: leave "
                f"grid_shape (sampling_angstrom) out, or use about {better:.3f} Å"
            )
        if self.statistical_error > accuracy:
            times = (self.statistical_error / accuracy) ** 2
            needed = math.ceil(self.configurations * times / len(self.snapshots))
            sentences.append(
                f"patterns have, of {plural(self.configurations, 'thermal configuration')}, a "
                f"statistical error of about {self.statistical_error:.1%}, and accuracy is "
                f"{accuracy:.1%}: set frozen_phonons.configurations to 'auto', or to about {needed}"
            )
        return "; ".join(sentences) or None

    def average(
        self,
        # Called as `scatter(configuration, slices, on_progress)`, with the number of the
        # configuration.
        scatter: Callable[[int, Slices, ProgressCallback], None],
        on_progress: ProgressCallback,  # called as `on_progress(stage, done, total)`
        *,
        # Numbers of slices of each snapshot up to which density and potential are projected; by
        # default all slices.
        depths: Sequence[Sequence[int]] | None = None,
        depth_bins: int = 1,  # number of bins along the beam
    ) -> SpecimenFields:
        """Slices one configuration after the other; returns the mean of their densities and
        potentials.
        """
        simulation = self.settings.simulation
        phonons = self.settings.frozen_phonons
        count = self.configurations
        rng = np.random.default_rng(self.settings.seed)
        sigma = optics.interaction_constant(self.settings.microscope.energy_ev)
        shape = (len(depths[0]) if depths else 1, *self.grid.shape)
        thicknesses = np.array(self.slice_thicknesses_angstrom)
        densities = np.zeros(shape)
        potentials = np.zeros(shape)
        by_depth = np.zeros((depth_bins, *self.grid.shape))
        for configuration in range(count):
            snapshot = self.snapshot_of(configuration)
            atoms = self.snapshots[snapshot]
            if phonons:
                atoms = displace_atoms(atoms, phonons.displacement_angstrom(), rng)
            depths_of_snapshot = depths[snapshot] if depths else None
            on_part = dispatch.part_of(on_progress, configuration, count)
            sliced = specimen.build(
                atoms,
                self.grid,
                self.cuts(self.plans[snapshot]),
                sigma,
                simulation.form_factors,
                self.dtype,
                self.xp,
                projection=simulation.projection,
                depths=depths_of_snapshot,
                depth_bins=depth_bins,
                bonding=self.bonding,
                on_slice=partial(on_part, "slices"),
            )
            scatter(configuration, sliced.slices.among(thicknesses), on_part)
            for index in range(len(densities)):
                densities[index] += to_host(sliced.densities[index])
                potentials[index] += to_host(sliced.projected_potentials[index])
            if sliced.density_by_depth is not None:
                by_depth += to_host(sliced.density_by_depth) / count
        real = np.dtype(simulation.precision)
        return SpecimenFields(
            (densities / count).astype(real),
            (potentials / count).astype(real),
            by_depth.astype(real) if depth_bins > 1 else None,
        )

    def cuts(self, plan: SlicePlan) -> SlicePlan | float:
        """Returns where a snapshot is cut, or the thickness of its equal slices, Å.

        An atom is in the equal slice that thermal displacement takes it to. With slices that follow
        layers it stays in its own.
        """
        simulation = self.settings.simulation
        if simulation.slice_thickness_angstrom == "auto":
            return plan
        return simulation.slice_thickness_angstrom


def plan_slices(
    atoms: Snapshots, settings: SimulationSettings, *, overlaps: bool = False
) -> Slicing:
    """Checks a specimen and how it is sliced, and finds its pixels, slices and configurations.

    Args:
        atoms: The specimen, as `namsa.simulate` takes it.
        overlaps: Whether atoms may be anywhere, as those of a model are; then they are not checked.

    Raises:
        InputError: If the specimen cannot be simulated so.
    """
    checked = check_snapshots(atoms, overlaps)
    snapshots = checked.snapshots
    check_settings(settings, snapshots)
    simulation = settings.simulation
    lx, ly, lz = snapshots[0].cell.lengths().tolist()
    required = requirement_of(settings, (ly, lx))
    atom_lists = [specimen.atom_list(snapshot) for snapshot in snapshots]
    columns = _strongest(required, atom_lists, (ly, lx))
    grid = choice.choose_grid(required, simulation, (ly, lx), columns, settings.band_fraction)
    plans = [choice.choose_slices(required, simulation, listed.z, lz) for listed in atom_lists]
    thermal = choice.choose_configurations(
        required, settings.frozen_phonons, snapshots[0], len(snapshots)
    )
    xp = resolve_backend(simulation.backend)
    bonding = None
    if settings.charge_density:
        bonding = bonding_of(settings.charge_density, snapshots, simulation.form_factors)
    return Slicing(
        snapshots=snapshots,
        settings=replace(settings, frozen_phonons=thermal.frozen_phonons),
        grid=grid,
        plans=tuple(plans),
        expected_error=required.expected_error(columns, grid),
        statistical_error=thermal.statistical_error,
        xp=xp,
        warnings=checked.warnings,
        bonding=bonding,
        required=required,
    )


def requirement_of(
    settings: SimulationSettings, extent_angstrom: tuple[float, float]
) -> Requirement:
    """Returns what pixels, slices and configurations of a simulation are chosen for.

    Args:
        extent_angstrom: Sides (y, x) of the cell, Å.
    """
    microscope = settings.microscope
    simulation = settings.simulation
    recorded = settings.reach_mrad or choice.recorded_mrad(
        settings.detector, extent_angstrom, microscope.energy_ev
    )
    beam_tilt_mrad = float(np.hypot(*microscope.beam_tilt_mrad))
    return Requirement(
        microscope.energy_ev,
        microscope.semiangle_mrad + beam_tilt_mrad,
        recorded,
        simulation.accuracy,
        beam_tilt_mrad,
        microscope.specimen_tilt_mrad,
        simulation.divides_atoms,
    )


def _strongest(
    required: Requirement,
    atom_lists: Sequence[AtomList],
    extent_angstrom: tuple[float, float],
) -> ColumnStrength:
    """Returns the strongest columns of a few snapshots, which are alike otherwise."""
    step = max(1, len(atom_lists) // _MEASURED_SNAPSHOTS)
    listed_columns = [required.columns(listed, extent_angstrom) for listed in atom_lists[::step]]
    return min(listed_columns, key=required.pixel_angstrom)
