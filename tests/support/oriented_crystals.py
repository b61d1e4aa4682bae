"""Crystals and supercells of them for the tests of supercells and displacements."""

from typing import Any

import ase

from namsa.crystals.supercell import Supercell, make_supercell

LATERAL = (14.0, 23.0)  # (y, x): not square, so that a swapped axis shows


def perovskite() -> ase.Atoms:
    positions = [(0, 0, 0), (0.5, 0.5, 0.5), (0.5, 0.5, 0), (0.5, 0, 0.5), (0, 0.5, 0.5)]
    return ase.Atoms("SrTiO3", scaled_positions=positions, cell=[3.905] * 3, pbc=True)


def orient(atoms: ase.Atoms, zone_axis: tuple[int, int, int], **settings: Any) -> Supercell:
    defaults: dict[str, Any] = {
        "lateral_angstrom": LATERAL,
        "thickness_angstrom": 20,
        "max_strain": 0.03,
        "max_atoms": 100_000,
    }
    return make_supercell(atoms, zone_axis=zone_axis, **defaults | settings)
