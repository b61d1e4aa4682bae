"""Crystals from what a caller has: atoms, a material, or the path of a file."""

from collections.abc import Sequence
from pathlib import Path

import ase

from namsa.base.errors import InputError
from namsa.crystals.material import Material
from namsa.crystals.mixed_sites import with_occupancies
from namsa.crystals.structure_files import read_crystal

# Atoms, snapshots of one specimen, a material, or a file that `namsa.read_crystal` reads.
SpecimenSource = ase.Atoms | Sequence[ase.Atoms] | Material | Path | str
CrystalSource = ase.Atoms | Material | Path | str


def crystal_of(source: CrystalSource) -> ase.Atoms:
    """Returns the atoms of a crystal, in the conventional cell if it comes from a file.

    Args:
        source: Atoms, a material, or a file; of several snapshots there is no crystal.

    Raises:
        InputError: If the file cannot be read, or the source is none.
    """
    material = material_of(source, as_is=False)
    if material is not None:
        return with_occupancies(material.atoms)
    if isinstance(source, ase.Atoms):
        return with_occupancies(source)
    raise InputError(
        f"a crystal must be ase.Atoms, a namsa.Material or the path of a file, not "
        f"{type(source).__name__}"
    )


def material_of(source: SpecimenSource, *, as_is: bool) -> Material | None:
    """Returns the material of a source, which a file is read for; `None` of atoms."""
    if isinstance(source, str | Path):
        return read_crystal(source, as_is=as_is)
    return source if isinstance(source, Material) else None
