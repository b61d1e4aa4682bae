"""Thermal amplitudes of the sites of a CIF: from U_iso, B_iso, or the equivalent of anisotropic U or B.

A value that is unknown, no number, negative or larger than `LARGEST_U` counts as not given.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import ase
import numpy as np
import numpy.typing as npt
from ase.data import atomic_numbers
from pymatgen.core import Lattice
from pymatgen.core.operations import SymmOp
from pymatgen.io.cif import str2float

Floats = npt.NDArray[np.float64]

LARGEST_U = 100.0  # Å²; a displacement of 10 Å
_SAME_PLACE = 0.01  # Å; coordinates near 1/3 may have been set to it
_B_OF_U = 8 * np.pi**2
_PAIRS = ("11", "22", "33", "12", "13", "23")


class SiteAmplitude(NamedTuple):
    """The amplitude of an atom site of a CIF.

    Attributes:
        number: Its atomic number.
        places: Fractional coordinates of all its images, `(n, 3)`.
        u_angstrom2: The mean square displacement along one axis, Å².
    """

    number: int
    places: Floats
    u_angstrom2: float


def read_amplitudes(
    block: Mapping[str, Any], operations: Sequence[SymmOp], lattice: Lattice
) -> tuple[SiteAmplitude, ...]:
    """Returns the amplitudes that a CIF gives.

    Args:
        block: The data of the CIF by key; atom sites stand in a loop.
        operations: Its symmetry operations.
        lattice: Its lattice.
    """
    matrices = np.array([operation.affine_matrix for operation in operations])
    labels = block["_atom_site_label"]
    anisotropic = _anisotropic(block, lattice)
    found = []
    for row, label in enumerate(labels):
        u = _number(block, "_atom_site_U_iso_or_equiv", row)
        if u is None and (b := _number(block, "_atom_site_B_iso_or_equiv", row)) is not None:
            u = b / _B_OF_U
        if u is None:
            u = anisotropic.get(label)
        number = _atomic_number(block.get("_atom_site_type_symbol", labels)[row])
        if number and u is not None and 0 <= u <= LARGEST_U:
            place = np.array([str2float(block[f"_atom_site_fract_{axis}"][row]) for axis in "xyz"])
            found.append(SiteAmplitude(number, matrices[:, :3, :3] @ place + matrices[:, :3, 3], u))
    return tuple(found)


def set_amplitudes(atoms: ase.Atoms, given: Sequence[SiteAmplitude]) -> None:
    """Sets `rms_displacement_angstrom` of the atoms of a crystal, if a file gives any.

    Args:
        atoms: The crystal; the array is not a number for atoms without an amplitude.
        given: The amplitudes.
    """
    if not given:
        return
    amplitudes = np.full(len(atoms), np.nan)
    places = atoms.get_scaled_positions()
    for site in given:
        own = np.flatnonzero(atoms.numbers == site.number)
        offsets = places[own][:, None] - site.places
        distances = np.linalg.norm((offsets - np.round(offsets)) @ np.asarray(atoms.cell), axis=-1)
        amplitudes[own[distances.min(axis=1, initial=np.inf) < _SAME_PLACE]] = np.sqrt(site.u_angstrom2)
    atoms.set_array("rms_displacement_angstrom", amplitudes)


def _anisotropic(block: Mapping[str, Any], lattice: Lattice) -> dict[str, float]:
    """Returns U_eq = ⅓ Σ U_ij a*_i a*_j a_i·a_j of each labelled site (Fischer & Tillmanns, Acta Cryst. C44, 775)."""
    labels = block.get("_atom_site_aniso_label")
    if not isinstance(labels, list):
        return {}
    reciprocal = np.asarray(lattice.reciprocal_lattice_crystallographic.abc)
    weights = np.outer(reciprocal, reciprocal) * (lattice.matrix @ lattice.matrix.T) / 3
    found: dict[str, float] = {}
    for letter, scale in (("B", 1 / _B_OF_U), ("U", 1.0)):
        for row, label in enumerate(labels):
            elements = [_number(block, f"_atom_site_aniso_{letter}_{pair}", row) for pair in _PAIRS]
            if all(element is not None for element in elements):
                tensor = np.zeros((3, 3))
                for pair, element in zip(_PAIRS, elements, strict=True):
                    i, j = int(pair[0]) - 1, int(pair[1]) - 1
                    tensor[i, j] = tensor[j, i] = element
                found[label] = scale * float((tensor * weights).sum())
    return found


def _number(block: Mapping[str, Any], key: str, row: int) -> float | None:
    """Returns a finite number of a loop's column, `None` if there is none."""
    column = block.get(key)
    if not (isinstance(column, list) and row < len(column)):
        return None
    try:
        value = float(str2float(column[row]))
    except (TypeError, ValueError):
        return None
    return value if np.isfinite(value) else None


def _atomic_number(symbol: str) -> int | None:
    """Returns the number of the element with which a symbol such as Sr2+ begins; deuterium is hydrogen."""
    letters = re.match("[A-Za-z]{1,2}", symbol)
    if not letters:
        return None
    for name in (letters[0].title(), letters[0][0].upper()):
        if name in atomic_numbers:
            return int(atomic_numbers[name])
        if name == "D":
            return 1
    return None
