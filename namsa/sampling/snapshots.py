"""The snapshots of a specimen and the settings of its slices, checked before a simulation."""

from collections.abc import Sequence
from dataclasses import dataclass

import ase

from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.crystals.displacements import amplitudes
from namsa.crystals.mixed_sites import with_occupancies
from namsa.crystals.sites import check_atoms, wrap_along_beam
from namsa.physics import optics
from namsa.setup import checks
from namsa.setup.settings import SimulationSettings

Snapshots = ase.Atoms | Sequence[ase.Atoms]
_SAME_CELL = 1e-4  # Å; files of trajectories have about as many digits


@dataclass(frozen=True)
class CheckedSnapshots:
    """Snapshots that can be simulated."""

    snapshots: tuple[ase.Atoms, ...]  # wrapped along the beam
    warnings: tuple[str, ...]  # about the first of which there are any


def check_snapshots(atoms: Snapshots, overlaps: bool) -> CheckedSnapshots:
    """Checks the snapshots of a specimen.

    Raises:
        InputError: If there is none, one cannot be simulated, or their cells differ. It says which.
    """
    if isinstance(atoms, ase.Atoms):
        atoms = with_occupancies(atoms)
        warnings = () if overlaps else tuple(check_atoms(atoms))
        return CheckedSnapshots((wrap_along_beam(atoms),), warnings)
    snapshots: list[ase.Atoms] = []
    warnings = ()
    for index, given in enumerate(atoms):
        try:
            snapshot = with_occupancies(given)
            texts = [] if overlaps else check_atoms(snapshot)
            snapshots.append(wrap_along_beam(snapshot))
        except InputError as error:
            raise InputError(f"snapshot {index}: {error}") from None
        if not warnings:
            warnings = tuple(f"snapshot {index}: {text}" for text in texts)
        _check_same_cell(index, snapshot.cell.lengths(), snapshots[0].cell.lengths())
    if not snapshots:
        raise InputError("there are no snapshots to average: give one or more")
    return CheckedSnapshots(tuple(snapshots), warnings)


def check_settings(settings: SimulationSettings, snapshots: Sequence[ase.Atoms]) -> None:
    """Raises InputError for settings that these snapshots cannot be sliced with."""
    if settings.frozen_phonons:
        for snapshot in snapshots:
            amplitudes(snapshot, settings.frozen_phonons.displacement_angstrom())
    checks.check_ranges(accuracy=settings.simulation.accuracy)
    checks.check_choices(settings.simulation)
    optics.check_specimen_tilt(settings.microscope.specimen_tilt_mrad)
    if settings.band_fraction is not None:
        checks.check_ranges(band_fraction=settings.band_fraction)


def _check_same_cell(index: int, sides: Floats, sides_of_first: Floats) -> None:
    """Raises InputError if a snapshot's sides, Å, differ from those of the first."""
    if abs(sides - sides_of_first).max() > _SAME_CELL:
        raise InputError(
            f"snapshot {index} has a cell of {sides.round(4).tolist()} Å, the first "
            f"{sides_of_first.round(4).tolist()} Å: patterns of different cells have no common "
            "pixels; take snapshots at constant volume, or scale their cells to the mean"
        )
