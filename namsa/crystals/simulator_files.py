"""Structures as other programs of simulation write them: Prismatic's xyz, and muSTEM's xtl.

Prismatic (and computem): a comment, the sides of the cell, a line `Z x y z occupancy u` per atom,
and -1. Lengths are in Å; u is the rms displacement along one axis.

muSTEM: a comment, sides and angles of the cell, the voltage in kV, and the number of kinds of
atoms. Per kind its name, `count Z occupancy u²`, and fractional coordinates, a line per atom. Sides
are in Å; u² is the mean square displacement along one axis, Å².
"""

from collections.abc import Sequence
from typing import NamedTuple

import ase
import numpy as np
from pymatgen.core import Lattice

from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.base.text import shorten
from namsa.crystals.sites import MAX_ELEMENT, MOST_ATOMS

_PRISMATIC_COLUMNS = 6
_PRISMATIC_END = "-1"
_MUSTEM_HEAD = 4  # lines


class Rows(NamedTuple):
    """The atoms of a file."""

    numbers: list[int]  # atomic numbers
    places: list[list[float]]  # x, y, z
    occupancies: list[float]
    mean_squares: list[float]  # mean square displacements along one axis, Å²


def is_prismatic(text: str) -> bool:
    """Whether a text is a structure of Prismatic: its second line has the sides of the cell.

    Other xyz files begin with their number of atoms.
    """
    lines = text.splitlines()
    return len(lines) > 2 and not lines[0].strip().isdecimal() and len(_numbers(lines[1])) == 3


def is_mustem(text: str) -> bool:
    """Whether a text is a structure of muSTEM."""
    lines = text.splitlines()
    return (
        len(lines) > _MUSTEM_HEAD + 1
        and len(_numbers(lines[1])) == 6
        and len(_numbers(lines[2])) == 1
        and lines[3].strip().isdecimal()
    )


def parse_prismatic(text: str) -> ase.Atoms:
    """Returns the structure in a text of Prismatic, in its cell.

    Raises:
        InputError: If a line is none of an atom, or the end is missing.
    """
    lines = [line.strip() for line in text.splitlines()]
    ends = [index for index, line in enumerate(lines) if line.split()[:1] == [_PRISMATIC_END]]
    if not ends:
        raise InputError("it does not end with -1, as files of Prismatic do: it may be cut off")
    rows = Rows([], [], [], [])
    for index in range(2, ends[0]):
        values = _numbers(lines[index])
        if len(values) != _PRISMATIC_COLUMNS:
            raise InputError(
                f"line {index + 1}, {shorten(lines[index], 40)}, must be an atomic number, x, y, "
                "z, an occupancy and an rms displacement"
            )
        rows.numbers.append(_atomic_number(values[0], index))
        rows.places.append(values[1:4])
        rows.occupancies.append(values[4])
        rows.mean_squares.append(values[5] ** 2)
    cell = np.diag(_numbers(lines[1]))
    return _atoms(rows, cell, np.eye(3))


def parse_mustem(text: str) -> ase.Atoms:
    """Returns the structure in a text of muSTEM, in its cell.

    Raises:
        InputError: If a kind of atoms is none, or has fewer lines than it announces.
    """
    lines = text.splitlines()
    cell = np.asarray(Lattice.from_parameters(*_numbers(lines[1])).matrix, np.float64)
    rows = Rows([], [], [], [])
    line = _MUSTEM_HEAD
    for kind in range(int(lines[3].strip()[:6])):
        header = _numbers(_line(lines, line + 1))
        if len(header) != 4 or not 1 <= header[0] <= len(lines) - line - 2:
            raise InputError(
                f"line {line + 2}, {shorten(_line(lines, line + 1), 40)}, must be the number of "
                "atoms of a kind, as many lines as follow or fewer, an atomic number, an occupancy "
                "and a mean square displacement"
            )
        count = int(header[0])
        for place in lines[line + 2 : line + 2 + count]:
            values = _numbers(place)
            if len(values) != 3:
                raise InputError(
                    f"kind {kind + 1} of atoms: {shorten(place, 40)} must be three coordinates"
                )
            rows.places.append(values)
        rows.numbers.extend([_atomic_number(header[1], line + 1)] * count)
        rows.occupancies.extend([header[2]] * count)
        rows.mean_squares.extend([header[3]] * count)
        line += 2 + count
    return _atoms(rows, cell, cell)


def _atoms(rows: Rows, cell: Floats, axes: Floats) -> ase.Atoms:
    """Returns atoms with occupancies and thermal amplitudes, where they differ from 1 and from 0.

    Args:
        axes: Unit vectors of the coordinates, rows of (3, 3), Å.
    """
    if not 1 <= len(rows.numbers) <= MOST_ATOMS:
        raise InputError(f"it has {len(rows.numbers)} atoms; 1 to {MOST_ATOMS} are read")
    mean_squares = np.array(rows.mean_squares)
    if mean_squares.min() < 0:
        raise InputError(f"a mean square displacement of it is {mean_squares.min():g} Å², below 0")
    positions = np.array(rows.places) @ axes
    atoms = ase.Atoms(numbers=rows.numbers, positions=positions, cell=cell, pbc=True)
    if min(rows.occupancies) != 1 or max(rows.occupancies) != 1:
        atoms.set_array("occupancy", np.array(rows.occupancies))
    if mean_squares.max() > 0:
        atoms.set_array("rms_displacement_angstrom", np.sqrt(mean_squares))
    return atoms


def _atomic_number(value: float, line: int) -> int:
    """Returns an atomic number. Raises InputError, which names the line, if it is none."""
    if value not in range(1, MAX_ELEMENT + 1):
        raise InputError(f"line {line + 1}: {value:g} is no atomic number of 1 to {MAX_ELEMENT}")
    return int(value)


def _line(lines: Sequence[str], index: int) -> str:
    """Returns a line; nothing if there are fewer."""
    return lines[index] if index < len(lines) else ""


def _numbers(line: str) -> list[float]:
    """Returns the finite numbers of a line; none if there is anything else."""
    try:
        values = [float(word) for word in line.split()]
    except ValueError:
        return []
    return values if np.isfinite(values).all() else []
