"""Specimens from what a caller has: atoms, snapshots, a material, or the file of a crystal."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import ase

from namsa.base.errors import InputError, SimulationWarning
from namsa.base.names import portable_path
from namsa.base.text import shorten
from namsa.crystals.crystal_source import SpecimenSource, material_of
from namsa.crystals.material import Material
from namsa.crystals.mixed_sites import with_occupancies
from namsa.crystals.orient import fit_cell
from namsa.crystals.supercell import Supercell, fill_cell


class SpecimenOrientation(NamedTuple):
    """Settings by which a crystal becomes a specimen."""

    zone_axis: tuple[int, int, int]  # direction [uvw] along the beam
    thickness_angstrom: float  # rounded to whole periods of the crystal, Å
    lateral_angstrom: tuple[float, float]  # smallest extent (y, x), Å
    max_strain: float = 0.02  # that making the cell right-angled may take
    max_atoms: int = 200_000


class SpecimenAtoms(NamedTuple):
    """The atoms of a specimen, and where they come from."""

    atoms: ase.Atoms | list[ase.Atoms]  # once, or snapshots
    described: dict[str, object]  # crystal, zone axis and strain, as a sample's provenance has them


def specimen_of(source: SpecimenSource) -> SpecimenAtoms:
    """Returns the atoms of a specimen, in the cell that they have.

    Raises:
        InputError: If the file cannot be read, or the source is none.
    """
    material = material_of(source, as_is=True)
    if material is not None:
        snapshots = list(material.snapshots) or [material.atoms]
        return SpecimenAtoms(_single(snapshots), _described(material))
    if isinstance(source, ase.Atoms):
        return SpecimenAtoms(with_occupancies(source), {})
    snapshots = []
    for index, snapshot in enumerate(_sequence(source)):
        if not isinstance(snapshot, ase.Atoms):
            raise InputError(f"snapshot {index} is {type(snapshot).__name__}, not ase.Atoms")
        snapshots.append(with_occupancies(snapshot))
    return SpecimenAtoms(snapshots, {})


def oriented_specimen(source: SpecimenSource, orientation: SpecimenOrientation) -> SpecimenAtoms:
    """Returns a specimen of a crystal along a zone axis; `namsa.make_supercell` says how.

    Of a trajectory, all snapshots are repeated as the first one.

    Raises:
        InputError: If the crystal cannot be read, or no cell keeps to the limits.

    Warns:
        SimulationWarning: As `namsa.make_supercell`.
    """
    material = material_of(source, as_is=False)
    if isinstance(source, ase.Atoms):
        crystals = [with_occupancies(source)]
    elif material is None:
        crystals = [with_occupancies(snapshot) for snapshot in _sequence(source)]
    else:
        crystals = list(material.snapshots) or [with_occupancies(material.atoms)]
    if not crystals:
        raise InputError("there are no snapshots to average: give one or more")
    cells = _fill(crystals, orientation)
    described = _described(material) if material else {}
    described |= {
        "zone_axis": [int(index) for index in orientation.zone_axis],
        "wanted_thickness_angstrom": orientation.thickness_angstrom,
        "strain": cells[0].strain,
    }
    return SpecimenAtoms(_single([cell.atoms for cell in cells]), described)


def _fill(crystals: Sequence[ase.Atoms], orientation: SpecimenOrientation) -> list[Supercell]:
    """Returns the supercells of the states of a crystal, all repeated as the first one."""
    fit = fit_cell(crystals[0], **orientation._asdict())
    for text in fit.warnings(orientation.thickness_angstrom):
        warnings.warn(text, SimulationWarning, stacklevel=5)  # at the caller of `namsa.simulate`
    return [fill_cell(crystal, fit) for crystal in crystals]


def _described(material: Material) -> dict[str, object]:
    """Returns what the provenance of a sample says of its crystal."""
    return {
        "material": material.name,
        "formula": material.formula,
        "space_group": material.space_group,
        "source": portable_path(material.source),
        "source_kind": material.kind,
    }


def _single(snapshots: list[ase.Atoms]) -> ase.Atoms | list[ase.Atoms]:
    """Returns the one snapshot, or all of several."""
    return snapshots[0] if len(snapshots) == 1 else snapshots


def _sequence(source: Any) -> Sequence[ase.Atoms]:
    """Returns a sequence. Raises InputError if a source is none."""
    if isinstance(source, Sequence):
        return source
    try:
        return list(source)
    except TypeError:
        raise InputError(
            "a specimen must be ase.Atoms, a sequence of them, a namsa.Material or the path of a "
            f"crystal's file, not {type(source).__name__} ({shorten(source)})"
        ) from None
