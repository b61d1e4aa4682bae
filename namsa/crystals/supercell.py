"""Supercells: crystals that are oriented along a zone axis and cut to size.

A specimen is an `ase.Atoms` in a right-angled periodic cell, in Å with x first. The beam travels
along +z from z = 0.
"""

import warnings
from dataclasses import dataclass, field

import ase
import numpy as np
from ase.build.supercells import lattice_points_in_supercell

from namsa.base.arrays import Integers
from namsa.base.errors import SimulationWarning
from namsa.base.memory import check_memory_for
from namsa.crystals.crystal_source import CrystalSource, crystal_of
from namsa.crystals.orient import CellFit, fit_cell
from namsa.crystals.sites import SITE_ARRAYS, TENSOR

# of a lattice point or an atom: coordinates, and copies that are made on the way
_BYTES_PER_POINT = 150


@dataclass(frozen=True)
class Supercell:
    """A crystal in a right-angled periodic cell, with its zone axis along +z."""

    atoms: ase.Atoms  # the atoms in the right-angled cell, Å
    strain: float  # the largest |principal stretch − 1| that making the cell right-angled takes
    # Integers, `(3, 3)`; row i is the supercell's side along x, y or z in units of the crystal's a,
    # b, c.
    matrix: Integers
    # What was drawn or given for a specimen that is no perfect crystal (`namsa.crystals.kinds`), by
    # name.
    parameters: dict[str, object] = field(default_factory=dict)


def make_supercell(
    atoms: CrystalSource,
    *,
    zone_axis: tuple[int, int, int],
    lateral_angstrom: tuple[float, float],
    thickness_angstrom: float,
    max_strain: float = 0.02,
    max_atoms: int = 200_000,
) -> Supercell:
    """Orients a crystal along a zone axis and fills a right-angled periodic cell with it.

    `namsa.crystals.orient.fit_cell` describes how the cell is chosen.

    Args:
        atoms: The crystal, in a periodic cell of any shape; a material, or the path of a file that
            `namsa.read_crystal` reads, stands for its conventional cell.
        zone_axis: Direction [uvw] of the crystal that lies along the beam.
        lateral_angstrom: Smallest extent (y, x), Å.
        thickness_angstrom: Thickness along the beam, Å, rounded to whole periods of the crystal,
            one at least.
        max_strain: Largest strain that making the cell right-angled may take.
        max_atoms: Largest number of atoms.

    Returns:
        The supercell with its atoms.

    Raises:
        InputError: If an argument is meaningless, or no cell keeps to `max_strain` and `max_atoms`.

    Warns:
        SimulationWarning: If the thickness differs by more than 10 % from what was asked, or the
            strain is above 1 %.

    Example:
        >>> cell = namsa.make_supercell(
        ...     bulk("Si", cubic=True),
        ...     zone_axis=(0, 0, 1),
        ...     lateral_angstrom=(10, 10),
        ...     thickness_angstrom=10,
        ... )
        >>> len(cell.atoms), float(cell.strain)
        (64, 0.0)
        >>> cell.atoms.cell.lengths().round(2).tolist()
        [10.86, 10.86, 10.86]
    """
    crystal = crystal_of(atoms)
    fit = fit_cell(
        crystal,
        zone_axis=zone_axis,
        lateral_angstrom=lateral_angstrom,
        thickness_angstrom=thickness_angstrom,
        max_strain=max_strain,
        max_atoms=max_atoms,
    )
    for text in fit.warnings(thickness_angstrom):
        warnings.warn(text, SimulationWarning, stacklevel=2)
    return fill_cell(crystal, fit)


def fill_cell(atoms: ase.Atoms, fit: CellFit) -> Supercell:
    """Fills a chosen cell with the crystal's atoms.

    A homogeneous strain does not change fractional coordinates, so the atoms need neither rotation
    nor straining.

    Raises:
        OutOfMemoryError: If the atoms, or the search for them, need more memory than is available.
    """
    _check_memory(fit)
    lattice_points = lattice_points_in_supercell(fit.matrix)
    basis = atoms.get_scaled_positions(wrap=False) @ np.linalg.inv(fit.matrix)
    fractional = (lattice_points[:, None] + basis).reshape(-1, 3)
    # Rounding gives the atoms of one layer exactly the same height, and puts every atom at a face
    # on the same side.
    fractional = np.round(fractional % 1, 12) % 1
    filled = ase.Atoms(
        numbers=np.tile(atoms.numbers, len(lattice_points)),
        positions=fractional * fit.lengths_angstrom,
        cell=fit.lengths_angstrom,
        pbc=True,
    )
    for name in SITE_ARRAYS:
        if name in atoms.arrays:
            values = atoms.arrays[name]
            if name == TENSOR:
                sides = fit.matrix @ np.asarray(atoms.cell)
                left, _, right = np.linalg.svd(np.linalg.inv(sides) @ np.diag(fit.lengths_angstrom))
                turn = left @ right  # of row vectors; the strain is left out
                values = turn.T @ values @ turn
            filled.set_array(name, np.concatenate([values] * len(lattice_points)))
    return Supercell(filled, fit.strain, fit.matrix)


def _check_memory(fit: CellFit) -> None:
    """Raises OutOfMemoryError if the atoms do not fit, or the box of lattice points that ASE
    searches for them.
    """
    box = np.prod(np.abs(fit.matrix).sum(axis=0) + 1.0)
    check_memory_for(
        _BYTES_PER_POINT * max(box, fit.atoms),
        f"a supercell of {fit.atoms} atoms",
        "use a smaller lateral_angstrom or thickness, or a zone axis with smaller indices",
    )
