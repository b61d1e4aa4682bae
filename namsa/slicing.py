"""From atoms to slices, one configuration of them after the other: what `simulate` and `scatter` have in common.

The configurations are the snapshots that are given, each displaced thermally as often as is asked.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import ase
import numpy as np
import numpy.typing as npt

from namsa import checks
from namsa.config.bounds import DEFAULT_ACCURACY
from namsa.config.instrument import Detector, FrozenPhonons
from namsa.crystals.displacements import amplitudes, displace_atoms
from namsa.crystals.sites import check_atoms, wrap_along_beam
from namsa.engines import dispatch
from namsa.engines.dispatch import EngineName
from namsa.engines.interface import ProgressCallback
from namsa.errors import InputError, warn_of_sample
from namsa.io.charge_density import ChargeDensity, bonding_of
from namsa.physics import optics, sampling, slice_plan, specimen, thermal_average
from namsa.physics.backend import Backend, resolve_backend, to_host
from namsa.physics.bonding import Bonding
from namsa.physics.detector import reach_mrad
from namsa.physics.form_factors import Table
from namsa.physics.grid import CONVENTIONAL_BAND, Grid, fast_shape
from namsa.physics.potential import Slices
from namsa.physics.slice_plan import SlicePlan
from namsa.text import plural

Image = npt.NDArray[np.floating[Any]]
Snapshots = ase.Atoms | Sequence[ase.Atoms]
_SAME_CELL = 1e-4  # Å; files of trajectories have about as many digits


@dataclass(frozen=True)
class SlicingSettings:
    """What decides how atoms scatter the beam, by the names of the arguments of `namsa.simulate`."""

    energy_ev: float
    grid_shape: tuple[int, int] | None
    slice_thickness_angstrom: float | None
    accuracy: float | None
    band_fraction: float | None
    form_factors: Table
    frozen_phonons: FrozenPhonons | None
    precision: Literal["float32", "float64"]
    engine: EngineName
    specimen_tilt_mrad: tuple[float, float]
    projection: specimen.Projection
    charge_density: ChargeDensity | None = None


@dataclass(frozen=True)
class SpecimenFields:
    """The mean density and potential of a specimen's configurations, in its precision, on the host."""

    densities: Image  # projected electron density up to each depth, (depths, ny, nx), e/Å²
    projected_potentials: Image  # projected potential up to each depth, (depths, ny, nx), V·Å
    # Density of each bin along the beam, (bins, ny, nx), e/Å²; `None` if it is not divided.
    density_by_depth: Image | None


@dataclass(frozen=True)
class Slicing:
    """A specimen and how it is sliced."""

    # The specimen without thermal displacements, once or in several states of the same cell.
    snapshots: tuple[ase.Atoms, ...]
    settings: SlicingSettings  # how it is sliced, with the number of thermal configurations that was chosen
    seed: int  # seed of the thermal displacements
    grid: Grid  # the sampling of the waves
    plan: SlicePlan  # where the specimen is cut, for the atoms of all snapshots one after the other
    # Whether slices begin at layers of atoms. If not, they are equally thick, and an atom is in the slice that thermal
    # displacement takes it to.
    follows_layers: bool
    expected_error: float  # relative L2 error that patterns are expected to have; see `namsa.physics.sampling`
    statistical_error: float  # that of their mean over thermal configurations; see `namsa.physics.thermal_average`
    xp: Any  # the array module, numpy or cupy
    warnings: list[str]  # what is doubtful about the atoms
    bonding: Bonding | None = None  # what bonds change, if a charge density was given

    @property
    def slices(self) -> int:
        """Number of slices."""
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
        """Distinct thicknesses of slices, Å."""
        return self.plan.distinct_thicknesses()[0].tolist()

    @property
    def described_settings(self) -> dict[str, Any]:
        """The settings for the provenance, which tells what was chosen, and is as it was where nothing was."""
        settings = vars(self.settings) | {"grid_shape": self.grid.shape, "band_fraction": self.grid.band}
        settings["charge_density"] = self.bonding and dict(self.bonding.description)
        if self.settings.grid_shape is not None:
            del settings["accuracy"]
        if self.grid.band == CONVENTIONAL_BAND:
            del settings["band_fraction"]
        return settings

    @property
    def equal_slices_angstrom(self) -> float | None:
        """Thickness of equal slices, Å; `None` if slices follow the layers of atoms."""
        return None if self.follows_layers else self.slice_thickness_angstrom

    @property
    def fault(self) -> str | None:
        """What is wrong with pixels and thermal configurations that were given, for the accuracy.

        `None` if it is met or none was asked for.
        """
        accuracy, error, random = self.settings.accuracy, self.expected_error, self.statistical_error
        if accuracy is None:
            return None
        faults = []
        if self.settings.grid_shape is not None and error > accuracy:
            pixel = max(self.grid.sampling_angstrom) * (accuracy / error) ** 0.5
            faults.append(
                f"pixels of {max(self.grid.sampling_angstrom):.3f} Å give patterns a relative error of about "
                f"{error:.1%}, and accuracy is {accuracy:.1%}: leave grid_shape (sampling_angstrom) out, or use about "
                f"{pixel:.3f} Å"
            )
        if random > accuracy:
            needed = math.ceil(self.configurations * (random / accuracy) ** 2 / len(self.snapshots))
            faults.append(
                f"patterns have, of {plural(self.configurations, 'thermal configuration')}, a statistical error of "
                f"about {random:.1%}, and accuracy is {accuracy:.1%}: set frozen_phonons.configurations to "
                f"'auto', or to about {needed}"
            )
        return "; ".join(faults) or None

    def _plan(self, snapshot: int) -> SlicePlan | float:
        """Returns where a snapshot is cut."""
        if not self.follows_layers:
            return self.settings.slice_thickness_angstrom or self.slice_thickness_angstrom
        start = sum(map(len, self.snapshots[:snapshot]))
        return replace(self.plan, slice_of_atom=self.plan.slice_of_atom[start:][: len(self.snapshots[snapshot])])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Complex type of the waves."""
        return np.result_type(self.settings.precision, np.complex64)

    @property
    def configurations(self) -> int:
        """Number of configurations of the atoms."""
        return len(self.snapshots) * number_of_configurations(self.settings.frozen_phonons)

    @property
    def description(self) -> dict[str, Any]:
        """What the provenance says of the atoms: how many they are, and of how many snapshots, if of several."""
        several = {"snapshots": len(self.snapshots)} if len(self.snapshots) > 1 else {}
        return {"atoms": len(self.snapshots[0]), **several}

    def average(
        self,
        # Called as `scatter(configuration, slices, on_progress)`, with the number of the configuration.
        scatter: Callable[[int, Slices, ProgressCallback], None],
        on_progress: ProgressCallback,  # called as `on_progress(stage, done, total)`
        *,
        # Numbers of slices up to which density and potential are projected; by default all slices.
        depths: Sequence[int] | None = None,
        depth_bins: int = 1,  # number of bins along the beam
    ) -> SpecimenFields:
        """Slices one configuration after the other; returns the mean of their densities and potentials."""
        settings, count, phonons = self.settings, self.configurations, self.settings.frozen_phonons
        rng, sigma = np.random.default_rng(self.seed), optics.interaction_constant(settings.energy_ev)
        shape = (len(depths) if depths else 1, *self.grid.shape)
        densities, potentials, by_depth = np.zeros(shape), np.zeros(shape), np.zeros((depth_bins, *self.grid.shape))
        for configuration in range(count):
            snapshot = configuration * len(self.snapshots) // count
            atoms = self.snapshots[snapshot]
            if phonons:
                atoms = displace_atoms(atoms, phonons.displacement_angstrom(), rng)
            on_part = dispatch.part_of(on_progress, configuration, count)
            sliced = specimen.build(
                atoms,
                self.grid,
                self._plan(snapshot),
                sigma,
                settings.form_factors,
                self.dtype,
                self.xp,
                projection=settings.projection,
                depths=depths,
                depth_bins=depth_bins,
                bonding=self.bonding,
                on_slice=partial(on_part, "slices"),
            )
            scatter(configuration, sliced.slices, on_part)
            densities += [to_host(density) for density in sliced.densities]
            potentials += [to_host(projected) for projected in sliced.projected_potentials]
            if sliced.density_by_depth is not None:
                by_depth += to_host(sliced.density_by_depth) / count
        real = np.dtype(settings.precision)
        return SpecimenFields(
            (densities / count).astype(real),
            (potentials / count).astype(real),
            by_depth.astype(real) if depth_bins > 1 else None,
        )


def plan_slices(
    atoms: Snapshots,  # the specimen; as the other arguments, that of `namsa.simulate`
    settings: SlicingSettings,
    seed: int,  # seed of the thermal displacements
    backend: Backend,  # where the simulation runs
    method: str,  # "auto", "multislice" or "prism"
    *,
    semiangle_mrad: float,  # largest semi-angle of convergence, mrad
    # Largest angle along y and x that is recorded, mrad; `None`: `sampling.DEFAULT_REACH_MRAD`.
    reach_mrad: float | None,
    overlaps: bool = False,  # whether atoms may be anywhere, as those of a model are; then they are not checked
) -> Slicing:
    """Checks a specimen and how it is sliced, and finds its grid. Raises InputError if it cannot be simulated so."""
    snapshots, doubts = _snapshots(atoms, overlaps)
    for text in doubts:
        warn_of_sample(text, stacklevel=4)  # points at the caller of `simulate`, which is wrapped
    if settings.frozen_phonons:
        for snapshot in snapshots:
            amplitudes(snapshot, settings.frozen_phonons.displacement_angstrom())
    accuracy, energy_ev = settings.accuracy or DEFAULT_ACCURACY, settings.energy_ev
    reach = sampling.reach_of_interest(reach_mrad, semiangle_mrad)
    checks.check_ranges(accuracy=accuracy)
    lx, ly, lz = (float(length) for length in snapshots[0].cell.lengths())
    atom_lists = [specimen.atom_list(snapshot) for snapshot in snapshots]
    columns = sampling.measure_columns(atom_lists[0], (ly, lx))
    shape, band = settings.grid_shape, settings.band_fraction
    if shape is None:
        shape = fast_shape((ly, lx), sampling.largest_pixel(columns, energy_ev, reach, accuracy))
        band = band or 1.0
    extent = sampling.layer_extent(energy_ev, reach)
    # The finite projection divides atoms among slices that are equally thick.
    follows_layers = settings.slice_thickness_angstrom is None and settings.projection == "infinite"
    thickness = settings.slice_thickness_angstrom or extent
    checks.check_choices(shape, thickness, settings.precision, settings.projection, settings.engine, method)
    checks.check_ranges(slice_thickness_angstrom=thickness, band_fraction=band or CONVENTIONAL_BAND)
    grid = Grid((int(shape[0]), int(shape[1])), (ly, lx), band or CONVENTIONAL_BAND)
    z = np.concatenate([atoms.z for atoms in atom_lists])
    plan = slice_plan.layer_slices(z, lz, extent) if follows_layers else slice_plan.equal_slices(z, lz, thickness)
    error = sampling.expected_error(columns, energy_ev, grid)
    phonons, random = settings.frozen_phonons, 0.0
    if phonons:
        deviation = thermal_deviation(snapshots[0], phonons, energy_ev, semiangle_mrad)
        phonons = with_number(phonons, deviation, accuracy, len(snapshots))
        random = deviation / (number_of_configurations(phonons) * len(snapshots)) ** 0.5
        settings = replace(settings, frozen_phonons=phonons)
    density = settings.charge_density
    bonding = bonding_of(density, snapshots, settings.form_factors) if density else None
    xp = resolve_backend(backend)
    return Slicing(snapshots, settings, seed, grid, plan, follows_layers, error, random, xp, doubts, bonding)


def thermal_deviation(atoms: ase.Atoms, phonons: FrozenPhonons, energy_ev: float, semiangle_mrad: float) -> float:
    """Returns the relative rms deviation of one configuration's patterns. Raises InputError without displacements."""
    rms = amplitudes(atoms, phonons.displacement_angstrom())
    lx, ly, _ = (float(length) for length in atoms.cell.lengths())
    return thermal_average.relative_deviation(specimen.atom_list(atoms), rms, (ly, lx), energy_ev, semiangle_mrad)


def with_number(phonons: FrozenPhonons, deviation: float, accuracy: float, snapshots: int) -> FrozenPhonons:
    """Returns displacements with the number of configurations of each snapshot that an accuracy needs, if it is "auto".

    Args:
        snapshots: Number of snapshots, each of which is displaced as often.

    Raises:
        InputError: If the accuracy needs too many.
    """
    if phonons.configurations != "auto":
        return phonons
    count = -(-thermal_average.configurations_for(deviation, accuracy) // snapshots)
    return phonons.model_copy(update={"configurations": count})


def number_of_configurations(phonons: FrozenPhonons | None) -> int:
    """Returns the number of thermal configurations of each snapshot, which is chosen already."""
    count = phonons.configurations if phonons else 1
    assert count != "auto"
    return count


def _sides(atoms: Snapshots) -> tuple[float, float] | None:
    """Returns the sides (y, x) of the cell, Å; `None` if there is none."""
    first = atoms if isinstance(atoms, ase.Atoms) else next(iter(atoms), None)
    lx, ly, _ = (0.0, 0.0, 0.0) if first is None else (float(length) for length in first.cell.lengths())
    return (ly, lx) if min(lx, ly) > 0 else None


def reach_of(atoms: Snapshots, detector: Detector | None, energy_ev: float) -> float | None:
    """Returns the largest angle along y and x that a detector records, mrad; `None` if nothing limits it."""
    sides = _sides(atoms)
    return reach_mrad(detector, sides, optics.wavelength_angstrom(energy_ev)) if detector and sides else None


def given_shape(
    atoms: Snapshots, grid_shape: tuple[int, int] | None, sampling_angstrom: float | None
) -> tuple[int, int] | None:
    """Returns the pixels (ny, nx) asked for, by number or by size; `None` for neither. Raises InputError for both."""
    if sampling_angstrom is None:
        return grid_shape
    if grid_shape is not None:
        raise InputError("grid_shape and sampling each say the pixels: give one of them")
    checks.check_ranges(sampling=sampling_angstrom)
    sides = _sides(atoms)
    return sides and fast_shape(sides, sampling_angstrom)


def _snapshots(atoms: Snapshots, overlaps: bool) -> tuple[tuple[ase.Atoms, ...], list[str]]:
    """Returns the snapshots of a specimen, checked, and what is doubtful about the first of which something is.

    Raises:
        InputError: If there is none, one cannot be simulated, or their cells differ. It says which.
    """
    if isinstance(atoms, ase.Atoms):
        doubts = [] if overlaps else check_atoms(atoms)
        return (wrap_along_beam(atoms),), doubts
    snapshots, doubts = [], []
    for number, snapshot in enumerate(atoms):
        try:
            texts = [] if overlaps else check_atoms(snapshot)
            doubts = doubts or [f"snapshot {number}: {text}" for text in texts]
            snapshots.append(wrap_along_beam(snapshot))
        except InputError as error:
            raise InputError(f"snapshot {number}: {error}") from None
        own, first = snapshot.cell.lengths(), snapshots[0].cell.lengths()
        if abs(own - first).max() > _SAME_CELL:
            raise InputError(
                f"snapshot {number} has a cell of {own.round(4).tolist()} Å, the first {first.round(4).tolist()} Å: "
                "patterns of different cells have no common pixels; take snapshots at constant volume, or scale their "
                "cells to the mean"
            )
    if not snapshots:
        raise InputError("there are no snapshots to average: give one or more")
    return tuple(snapshots), doubts
