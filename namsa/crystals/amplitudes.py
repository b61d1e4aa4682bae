"""Thermal displacements of the sites of a CIF.

They are U_iso or B_iso, and tensors from anisotropic U, B or β.

A value that is unknown, no number, negative or larger than `LARGEST_U` counts as not given.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from namsa.base.arrays import Floats
from namsa.crystals.elements import read_number

LARGEST_U = 100.0  # Å²; a displacement of 10 Å
_ROUNDING_U = 1e-4  # Å²; of the digits of a tensor
_B_OF_U = 8 * np.pi**2
_PAIRS = ("11", "22", "33", "12", "13", "23")


def read_amplitudes(
    tags: Mapping[str, Sequence[str]], cell: Floats
) -> list[tuple[float, Floats | None]]:
    """Returns the thermal displacements of each atom site.

    Args:
        cell: Lattice vectors, rows of `(3, 3)`, Å.

    Returns:
        For each site the mean square displacement along one axis, Å², not a number where none is
        given, and the tensor ⟨u_i u_j⟩ along x, y, z, (3, 3), Å², `None` where none is given.
    """
    rows = len(tags["_atom_site_fract_x"])
    labels = tags.get("_atom_site_label", [""] * rows)
    tensors = _tensors(tags, cell)
    amplitudes = []
    for row in range(rows):
        tensor = tensors.get(labels[row])
        u = _mean_square(tags, row, tensor)
        is_valid = u is not None and 0 <= u <= LARGEST_U
        amplitudes.append((u if u is not None and is_valid else np.nan, tensor))
    return amplitudes


def _mean_square(
    tags: Mapping[str, Sequence[str]], row: int, tensor: Floats | None
) -> float | None:
    """Returns the mean square displacement of a site along one axis, Å²; `None` if unknown."""
    u = _number(tags, "_atom_site_u_iso_or_equiv", row)
    if u is not None:
        return u
    b = _number(tags, "_atom_site_b_iso_or_equiv", row)
    if b is not None:
        return b / _B_OF_U
    if tensor is not None:
        return float(np.trace(tensor)) / 3  # Fischer & Tillmanns, Acta Cryst. C44 (1988) 775
    return None


def _tensors(tags: Mapping[str, Sequence[str]], cell: Floats) -> dict[str, Floats]:
    """Returns ⟨u_i u_j⟩ along x, y, z of each labelled site, Å².

    The Debye–Waller factor exp(−2π² Σ U_ij a*_i a*_j h_i h_j) = exp(−¼ Σ B_ij a*_i a*_j h_i h_j) =
    exp(−Σ β_ij h_i h_j) has the mean square displacements U_ij a*_i a*_j = β_ij/2π² of the
    fractional coordinates (Trueblood et al., Acta Cryst. A52 (1996) 770). A tensor that is no mean
    square, with an eigenvalue below 0, counts as not given.
    """
    labels = tags.get("_atom_site_aniso_label", ())
    lengths = np.linalg.norm(np.linalg.inv(cell), axis=0)  # of the reciprocal axes
    reciprocal = np.outer(lengths, lengths)
    tensors: dict[str, Floats] = {}
    for name, fractional in (
        ("beta", 1 / (2 * np.pi**2)),
        ("b", reciprocal / _B_OF_U),
        ("u", reciprocal),
    ):
        for row, label in enumerate(labels):
            elements = [_number(tags, f"_atom_site_aniso_{name}_{pair}", row) for pair in _PAIRS]
            if any(element is None for element in elements):
                continue
            tensor = np.zeros((3, 3))
            for pair, element in zip(_PAIRS, elements, strict=True):
                i = int(pair[0]) - 1
                j = int(pair[1]) - 1
                tensor[i, j] = tensor[j, i] = element
            tensor = cell.T @ (tensor * fractional) @ cell
            least, *_, most = np.linalg.eigvalsh(tensor)
            if least >= -_ROUNDING_U and most <= LARGEST_U:
                tensors[label] = tensor
    return tensors


def _number(tags: Mapping[str, Sequence[str]], key: str, row: int) -> float | None:
    """Returns a number of a loop's column, `None` if there is none."""
    column = tags.get(key, ())
    number = read_number(column[row]) if row < len(column) else None
    return number.value if number else None
