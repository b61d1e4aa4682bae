"""The cell and the atom sites of a CIF."""

from collections.abc import Sequence

import numpy as np
from pymatgen.core import Lattice

from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.base.text import shorten
from namsa.crystals.amplitudes import read_amplitudes
from namsa.crystals.cif_tags import PLACE_KEYS, UNKNOWN, Tags
from namsa.crystals.elements import Number, element_of_label, element_of_type, read_number
from namsa.crystals.expansion import LARGEST_ROUNDING, Site
from namsa.crystals.sites import LONGEST_SIDE, SHORTEST_SIDE, check_cell
from namsa.crystals.stoichiometry import Stated

CELL_KEYS = (
    "_cell_length_a",
    "_cell_length_b",
    "_cell_length_c",
    "_cell_angle_alpha",
    "_cell_angle_beta",
    "_cell_angle_gamma",
)
_IDEAL_TOLERANCE = 1e-4  # relative
# fractions whose digits never end
_IDEALS = (1 / 12, 2 / 12, 4 / 12, 5 / 12, 7 / 12, 8 / 12, 10 / 12, 11 / 12)
_SIGNIFICANT = 2  # decimals: a number with fewer is taken as exact


def read_cell(tags: Tags) -> Floats:
    """Returns the lattice vectors, rows of `(3, 3)`, Å."""
    values = []
    for key in CELL_KEYS:
        if not tags.get(key):
            raise InputError(f"{key} is missing")
        number = read_number(tags[key][0])
        if number is None:
            raise InputError(f"{key} {shorten(tags[key][0])} is no number")
        values.append(number.value)
    if not all(0 < angle < 180 for angle in values[3:]):
        raise InputError(f"the cell's angles {values[3:]}° must lie between 0° and 180°")
    if not all(SHORTEST_SIDE <= side <= LONGEST_SIDE for side in values[:3]):
        raise InputError(
            f"the cell's sides {values[:3]} Å must lie within {SHORTEST_SIDE:g} to "
            f"{LONGEST_SIDE:g} Å"
        )
    cell = np.asarray(Lattice.from_parameters(*values).matrix, dtype=np.float64)
    check_cell(cell, 1)
    return cell


def read_sites(tags: Tags, stated: Stated, cell: Floats) -> list[Site]:
    """Returns the atom sites. Raises InputError, which names the site, for unknown values."""
    columns = [tags.get(key, []) for key in PLACE_KEYS]
    missing = [key for key in PLACE_KEYS if not tags.get(key)]
    if missing:
        raise InputError(f"{', '.join(missing)} missing")
    labels = tags.get("_atom_site_label", tags.get("_atom_site_type_symbol", []))
    check_cell(cell, len(columns[0]))
    if not len(columns[0]) == len(columns[1]) == len(columns[2]) == len(labels):
        raise InputError("labels and coordinates of the atom sites must be in one loop_")
    amplitudes = read_amplitudes(tags, cell)
    decimals = _most_decimals(columns)
    sites = []
    for row, label in enumerate(labels):
        name = f"atom site {shorten(label)}"
        element = _element(tags, row, label, stated)
        _check_hydrogens(tags, row, name)
        texts = [column[row] for column in columns]
        place, rounding = _place(texts, decimals, name)
        share = _share(_cell_of(tags, "_atom_site_occupancy", row) or ".", name)
        u_angstrom2, tensor_angstrom2 = amplitudes[row]
        sites.append(
            Site(
                label,
                element,
                place,
                rounding,
                share.value,
                _share_rounding(share),
                u_angstrom2,
                tensor_angstrom2,
                is_proton=element == 1 and "+" in _cell_of(tags, "_atom_site_type_symbol", row),
            )
        )
    return sites


def _cell_of(tags: Tags, key: str, row: int) -> str:
    """Returns a value of a loop's column; nothing if the column has no such row."""
    column = tags.get(key, [])
    return column[row] if row < len(column) else ""


def _most_decimals(columns: Sequence[Sequence[str]]) -> int:
    """Returns the largest number of digits after the point of all coordinates."""
    most = 0
    for column in columns:
        for text in column:
            number = read_number(text)
            if number is not None:
                most = max(most, number.decimals)
    return most


def _element(tags: Tags, row: int, label: str, stated: Stated) -> int:
    """Returns the atomic number of a site, by its type or its label."""
    symbol = _cell_of(tags, "_atom_site_type_symbol", row)
    if symbol in UNKNOWN:
        symbol = ""
    element = element_of_type(symbol) if symbol else element_of_label(label, stated.formula)
    if element is None:
        raise InputError(
            f"atom site {shorten(label)}: '{shorten(symbol or label)}' names no element, or could "
            "mean several: give its element in _atom_site_type_symbol, or remove a site that is "
            "no atom"
        )
    return element


def _check_hydrogens(tags: Tags, row: int, name: str) -> None:
    """Raises InputError for a site with attached hydrogen, which has no positions."""
    attached = read_number(_cell_of(tags, "_atom_site_attached_hydrogens", row))
    if attached and attached.value > 0:
        raise InputError(
            f"{name}: {attached.value:g} hydrogen atoms are attached without positions: give them"
        )


def _place(texts: Sequence[str], decimals: int, name: str) -> tuple[Floats, Floats]:
    """Returns fractional coordinates, and how far each can be from the exact one."""
    place = []
    rounding = []
    for axis, text in zip("xyz", texts, strict=True):
        number = read_number(text)
        if number is None:
            raise InputError(f"{name}: coordinate {axis} is unknown, {shorten(text)}")
        value, error = _coordinate(number, decimals)
        place.append(value)
        rounding.append(error)
    return np.array(place), np.array(rounding)


def _coordinate(number: Number, decimals: int) -> tuple[float, float]:
    """Returns a coordinate, and how far it can be from the exact one.

    Args:
        decimals: The largest number of digits of all coordinates.
    """
    value = number.value
    for third in (1 / 3, 2 / 3):
        if abs(value / third - 1) <= _IDEAL_TOLERANCE:
            value = third
    rounding = min(0.5 * 10.0**-decimals, LARGEST_ROUNDING)
    if number.decimals < _SIGNIFICANT:
        return value, rounding
    for ideal in _IDEALS:
        distance = abs(value % 1 - ideal)
        if distance < 10.0**-number.decimals:  # rounded, or cut off
            rounding = max(rounding, distance)
    return value, rounding


def _share(text: str, name: str) -> Number:
    """Returns an occupancy; "." is CIF's word for the default, 1."""
    number = Number(1.0, 0, 0.0) if text == "." else read_number(text)
    if number is None or not number.value > 0:
        raise InputError(
            f"{name}: occupancy {shorten(text)} must be a number above 0 and at most 1"
        )
    return number


def _share_rounding(share: Number) -> float:
    """Returns how far an occupancy can be from the exact one.

    With fewer than two digits it counts as exact.
    """
    if share.decimals < _SIGNIFICANT or share.value == 1:
        return 0.0
    return max(share.rounding, share.uncertainty)
