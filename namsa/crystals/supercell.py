"""Crystals as specimens: checked, turned to the beam and cut to size, and displaced by heat.

A specimen is an `ase.Atoms` in a right-angled periodic cell, Å, x first, the beam along +z from z = 0.
`atoms.arrays["occupancy"]`, where there, is each atom's share of its site; a mixed site is several atoms at one place.
"""

from dataclasses import dataclass

import ase
import numpy as np
import numpy.typing as npt
from ase.build.supercells import lattice_points_in_supercell

from namsa.crystals.orient import Fit, fit_cell

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Supercell:
    """atoms: right-angled cell, zone axis along +z; strain: the largest principal one; matrix: see `orient.Fit`."""

    atoms: ase.Atoms
    strain: float
    matrix: Integers


def supercell(
    atoms: ase.Atoms,
    zone_axis: tuple[int, int, int],
    lateral_angstrom: tuple[float, float],
    thickness_angstrom: float,
    max_strain: float,
    max_atoms: int,
) -> Supercell:
    """The crystal along [uvw] as `orient.fit_cell` chooses it, filled with atoms; same arguments, same errors."""
    return filled(atoms, fit_cell(atoms, zone_axis, lateral_angstrom, thickness_angstrom, max_strain, max_atoms))


def filled(atoms: ase.Atoms, fit: Fit) -> Supercell:
    """The supercell that was chosen, with its atoms.

    Fractional coordinates do not change under a homogeneous strain, so that atoms need neither turning nor bending.
    """
    lattice_points = lattice_points_in_supercell(fit.matrix)
    basis = atoms.get_scaled_positions(wrap=False) @ np.linalg.inv(fit.matrix)
    fractional = (lattice_points[:, None] + basis).reshape(-1, 3)
    # Rounded, so that a layer's atoms have one and the same height and none at a face falls on either side by chance.
    fractional = np.round(fractional % 1, 12) % 1
    filled = ase.Atoms(
        numbers=np.tile(atoms.numbers, len(lattice_points)),
        positions=fractional * fit.lengths_angstrom,
        cell=fit.lengths_angstrom,
        pbc=True,
    )
    if "occupancy" in atoms.arrays:
        filled.set_array("occupancy", np.tile(atoms.arrays["occupancy"], len(lattice_points)))
    return Supercell(filled, fit.strain, fit.matrix)
