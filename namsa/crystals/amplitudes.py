"""Thermal amplitudes of the sites of a CIF: from U_iso, B_iso, or the equivalent of anisotropic U or B.

A value that is unknown, no number, negative or larger than `LARGEST_U` counts as not given.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from namsa.crystals.numbers import read_number

Floats = npt.NDArray[np.float64]

LARGEST_U = 100.0  # Å²; a displacement of 10 Å
_B_OF_U = 8 * np.pi**2
_PAIRS = ("11", "22", "33", "12", "13", "23")


def read_amplitudes(tags: Mapping[str, Sequence[str]], cell: Floats) -> list[float]:
    """Returns the mean square displacement of each atom site along one axis, Å²; not a number where none is given.

    Args:
        tags: The values of the CIF by tag.
        cell: Lattice vectors, rows of `(3, 3)`, Å.
    """
    rows = len(tags["_atom_site_fract_x"])
    labels = tags.get("_atom_site_label", [""] * rows)
    anisotropic = _anisotropic(tags, cell)
    found = []
    for row in range(rows):
        u = _number(tags, "_atom_site_u_iso_or_equiv", row)
        if u is None and (b := _number(tags, "_atom_site_b_iso_or_equiv", row)) is not None:
            u = b / _B_OF_U
        if u is None:
            u = anisotropic.get(labels[row])
        found.append(u if u is not None and 0 <= u <= LARGEST_U else np.nan)
    return found


def _anisotropic(tags: Mapping[str, Sequence[str]], cell: Floats) -> dict[str, float]:
    """Returns U_eq = ⅓ Σ U_ij a*_i a*_j a_i·a_j of each labelled site (Fischer & Tillmanns, Acta Cryst. C44, 775)."""
    labels = tags.get("_atom_site_aniso_label", ())
    reciprocal = np.linalg.norm(np.linalg.inv(cell), axis=0)
    weights = np.outer(reciprocal, reciprocal) * (cell @ cell.T) / 3
    found: dict[str, float] = {}
    for letter, scale in (("b", 1 / _B_OF_U), ("u", 1.0)):
        for row, label in enumerate(labels):
            elements = [_number(tags, f"_atom_site_aniso_{letter}_{pair}", row) for pair in _PAIRS]
            if all(element is not None for element in elements):
                tensor = np.zeros((3, 3))
                for pair, element in zip(_PAIRS, elements, strict=True):
                    i, j = int(pair[0]) - 1, int(pair[1]) - 1
                    tensor[i, j] = tensor[j, i] = element
                found[label] = scale * float((tensor * weights).sum())
    return found


def _number(tags: Mapping[str, Sequence[str]], key: str, row: int) -> float | None:
    """Returns a number of a loop's column, `None` if there is none."""
    column = tags.get(key, ())
    number = read_number(column[row]) if row < len(column) else None
    return number.value if number else None
