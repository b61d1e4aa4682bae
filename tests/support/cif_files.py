"""Texts of CIF files: cells, symmetry and rows of sites; the density of what is read."""

import ase
import numpy as np

HM = "_space_group_name_H-M_alt"
HALL = "_space_group_name_Hall"
NUMBER = "_space_group_IT_number"
CELL_KEYS = ("length_a", "length_b", "length_c", "angle_alpha", "angle_beta", "angle_gamma")
KEYS = ("label", "type_symbol", "fract_x", "fract_y", "fract_z", "occupancy")
UNTYPED = (KEYS[0], *KEYS[2:])


def density(atoms: ase.Atoms) -> float:
    """Returns g/cm³."""
    shares = atoms.arrays.get("occupancy", np.ones(len(atoms)))
    return float(atoms.get_masses() @ shares) * 1.66053907 / atoms.cell.volume


def cubic(a: float) -> tuple[float, ...]:
    return (a, a, a, 90, 90, 90)


def tetragonal(a: float, c: float) -> tuple[float, ...]:
    return (a, a, c, 90, 90, 90)


def hexagonal(a: float, c: float) -> tuple[float, ...]:
    return (a, a, c, 90, 90, 120)


def rhombohedral(a: float, alpha: float) -> tuple[float, ...]:
    return (a, a, a, alpha, alpha, alpha)


def cif(cell: tuple[float, ...], symmetry: str, sites: str, keys: tuple[str, ...] = KEYS) -> str:
    """Returns the text of a CIF; the rows of sites are as long as each other, and `keys` are as
    many or more.
    """
    lengths = [f"_cell_{key} {value}" for key, value in zip(CELL_KEYS, cell, strict=True)]
    columns = [f"_atom_site_{key}" for key in keys[: len(sites.partition("\n")[0].split())]]
    return "\n".join(["data_made", *lengths, symmetry, "loop_", *columns, sites, ""])


def anisotropic(name: str, row: str) -> str:
    """Returns a loop of one row of anisotropic displacements of a kind, U, B or beta."""
    keys = ("label", *(f"{name}_{axes}" for axes in (11, 22, 33, 12, 13, 23)))
    return "\n".join(["loop_", *(f"_atom_site_aniso_{key}" for key in keys), row, ""])
