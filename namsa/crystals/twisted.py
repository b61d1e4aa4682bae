"""Twisted bilayers: two films on each other, one turned, in the smallest right-angled cell that
both nearly fit.

In the plane, a vector of the bottom lattice and one of the turned top lattice coincide if they
differ by little. Two coincidences at nearly right angles span a cell. Each film is strained so that
its two vectors become the cell's sides exactly, half of the misfit each. The strain of a film is
the largest |principal stretch − 1|. The deformations also turn the films a little, so the angle
between them may differ from the one asked for.
"""

from dataclasses import dataclass
from typing import NamedTuple

import ase
import numpy as np
from ase.build import make_supercell
from scipy.spatial import KDTree

from namsa.base.arrays import Floats, Integers
from namsa.base.errors import InputError
from namsa.crystals.crystal_source import CrystalSource, crystal_of

FLAT = 1e-6  # Å
MOST_COINCIDENCES = 1000  # the shortest; all pairs of them are compared


@dataclass(frozen=True)
class TwistedBilayer:
    """Two films on each other in a right-angled periodic cell.

    Attributes:
        atoms: The atoms, Å, the bottom film first in the beam. `tags` are 0 in the bottom and 1 in
            the top film.
        angle_deg: Angle by which the top film is turned against the bottom one, degrees.
        strain: The larger of the strains of the two films.
    """

    atoms: ase.Atoms
    angle_deg: float
    strain: float


def make_twisted_bilayer(
    top: CrystalSource,
    bottom: CrystalSource,
    angle_deg: float,
    *,
    max_strain: float = 0.02,
    max_angle_error_deg: float = 0.2,
    lateral_angstrom: tuple[float, float] = (0.0, 0.0),
    longest_angstrom: float = 60.0,
    max_atoms: int = 20_000,
) -> TwistedBilayer:
    """Puts one film on another, turned about the beam.

    Args:
        top: The film that the beam leaves, with its layers across z and its third cell vector along
            z, as `layer_materials` gives it. Half of the height of the cell that is free of atoms
            is its half of the gap.
        bottom: The film that the beam enters, of the same or another material.
        angle_deg: Angle by which the top film is turned, degrees.
        max_strain: Largest strain of each film.
        max_angle_error_deg: Largest difference of the bilayer's angle from `angle_deg`, degrees.
        lateral_angstrom: Smallest extent (y, x), Å.
        longest_angstrom: Largest side of the cell, Å. The search takes in lattice vectors up to
            this length.
        max_atoms: Largest number of atoms.

    Returns:
        The bilayer in the cell of the smallest area, of less strain among equals.

    Raises:
        InputError: If an argument is meaningless, or no cell keeps to the limits.

    Example:
        >>> from ase.build import mx2
        >>> layer = mx2("MoS2", a=3.18, thickness=3.19, vacuum=1.5)
        >>> bilayer = namsa.make_twisted_bilayer(layer, layer, angle_deg=13.17)
        >>> len(bilayer.atoms) % 6
        0
    """
    top = crystal_of(top)
    bottom = crystal_of(bottom)
    _check(top, bottom, max_strain, longest_angstrom)
    turn = np.deg2rad(angle_deg)
    # of rows, counter-clockwise
    rotation = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    bottom_cell = np.asarray(bottom.cell)[:2, :2]
    top_cell = np.asarray(top.cell)[:2, :2] @ rotation
    coincidences = _coincidences(bottom_cell, top_cell, longest_angstrom, max_strain)
    x, y = _right_angled_pairs(coincidences, max_strain, lateral_angstrom, longest_angstrom)
    fit = _fit_cells(coincidences, x, y)
    atoms_per_area = len(bottom) / abs(np.linalg.det(bottom_cell))
    atoms_per_area += len(top) / abs(np.linalg.det(top_cell))
    kept = (
        (fit.strain <= max_strain)
        & (np.abs(fit.error_deg) <= max_angle_error_deg)
        & (fit.area * atoms_per_area <= 1.01 * max_atoms)
    )
    indices = np.flatnonzero(kept)
    if not len(indices):
        raise InputError(
            f"no right-angled cell of a bilayer turned by {angle_deg:g}° (± "
            f"{max_angle_error_deg:g}°) keeps to max_strain {max_strain:g}, sides of "
            f"{longest_angstrom:g} Å and {max_atoms} atoms: raise one of these, or choose another "
            "angle"
        )
    by_strain = np.round(fit.strain[indices], 9)
    by_area = np.round(fit.area[indices], 3)
    best = indices[np.lexsort([by_strain, by_area])[0]]
    pair = [x[best], y[best]]
    sides = (coincidences.lengths[x[best]], coincidences.lengths[y[best]])
    stacked = _stack(
        _fill(bottom, coincidences.lower[pair], sides), _fill(top, coincidences.upper[pair], sides)
    )
    return TwistedBilayer(stacked, angle_deg + float(fit.error_deg[best]), float(fit.strain[best]))


class _Coincidences(NamedTuple):
    """Vectors of the bottom and of the turned top lattice that differ by little, shortest first.

    Lattice vectors are integers, the others Å, all `(n, 2)`.
    """

    lower: Integers  # of the bottom lattice
    upper: Integers  # of the top lattice
    below: Floats  # the vectors of `lower`
    above: Floats  # the vectors of `upper`
    sides: Floats  # their means
    lengths: Floats  # of the means, `(n,)`


def _coincidences(
    bottom_cell: Floats, top_cell: Floats, longest_angstrom: float, max_strain: float
) -> _Coincidences:
    """Returns the shortest coincidences of two lattices, whose cells are rows `(2, 2)`, Å."""
    lower = _vectors(bottom_cell, longest_angstrom)
    upper = _vectors(top_cell, longest_angstrom)
    below = lower @ bottom_cell
    above = upper @ top_cell
    reach = 2 * max_strain * np.linalg.norm(below, axis=1)
    near = KDTree(above).query_ball_point(below, reach, return_sorted=True)
    i = np.repeat(np.arange(len(near)), [len(neighbours) for neighbours in near])
    j = np.concatenate(near).astype(np.int64)
    lengths_below = np.round(np.linalg.norm(below[i], axis=1), 6)
    order = np.argsort(lengths_below, kind="stable")[:MOST_COINCIDENCES]
    i = i[order]
    j = j[order]
    sides = (below[i] + above[j]) / 2
    lengths = np.linalg.norm(sides, axis=1)
    return _Coincidences(lower[i], upper[j], below[i], above[j], sides, lengths)


def _right_angled_pairs(
    coincidences: _Coincidences,
    max_strain: float,
    lateral_angstrom: tuple[float, float],
    longest_angstrom: float,
) -> tuple[Integers, Integers]:
    """Returns the pairs (x, y) of coincidences at nearly right angles, of allowed lengths."""
    lengths = coincidences.lengths
    units = coincidences.sides / np.maximum(lengths, 1e-9)[:, None]
    handed = np.outer(units[:, 0], units[:, 1]) - np.outer(units[:, 1], units[:, 0])
    x, y = np.nonzero((np.abs(units @ units.T) <= 3 * max_strain) & (handed > 0))
    fits = np.maximum(lengths[x], lengths[y]) <= longest_angstrom
    fits &= (lengths[x] >= lateral_angstrom[1]) & (lengths[y] >= lateral_angstrom[0])
    return x[fits], y[fits]


class _CellFit(NamedTuple):
    """What the two films take to fit each of n right-angled cells, arrays `(n,)`."""

    area: Floats  # Å²
    strain: Floats  # the larger one of the two films
    error_deg: Floats  # what the angle between the films changes by


def _fit_cells(coincidences: _Coincidences, x: Integers, y: Integers) -> _CellFit:
    """Deforms both films to the cells that pairs of coincidences span."""
    lengths = coincidences.lengths
    box = np.zeros((len(x), 2, 2))
    box[:, 0, 0] = lengths[x]
    box[:, 1, 1] = lengths[y]
    strain_below, turn_below = _deformation(_rows(coincidences.below, x, y), box)
    strain_above, turn_above = _deformation(_rows(coincidences.above, x, y), box)
    return _CellFit(
        area=lengths[x] * lengths[y],
        strain=np.maximum(strain_below, strain_above),
        error_deg=np.rad2deg(turn_above - turn_below),
    )


def _check(top: ase.Atoms, bottom: ase.Atoms, max_strain: float, longest_angstrom: float) -> None:
    for name, film in (("top", top), ("bottom", bottom)):
        cell = np.asarray(film.cell)
        if not (len(film) and max(np.abs(cell[2, :2]).max(), np.abs(cell[:2, 2]).max()) < FLAT):
            raise InputError(
                f"the {name} film must have atoms, and a third cell vector across the other two, "
                "along z"
            )
        if not abs(np.linalg.det(cell)) > 0:
            raise InputError(
                f"the {name} film has no height or no area: its cell is {cell.tolist()} Å"
            )
    if not 0 < max_strain <= 0.2:
        raise InputError(f"max_strain is {max_strain:g}; it must be more than 0 and at most 0.2")
    if not 0 < longest_angstrom <= 300:
        raise InputError(
            f"longest_angstrom is {longest_angstrom:g}; it must be more than 0 and at most 300 Å"
        )


def _vectors(cell: Floats, longest: float) -> Integers:
    """The lattice vectors up to a length, `(n, 2)` integers, shortest first, without 0."""
    reach = np.ceil(longest * np.linalg.norm(np.linalg.inv(cell), axis=0)).astype(np.int64)
    vectors = np.moveaxis(np.indices(2 * reach + 1), 0, -1).reshape(-1, 2) - reach
    lengths = np.linalg.norm(vectors @ cell, axis=1)
    order = np.lexsort((*vectors.T, np.round(lengths, 6)))
    return vectors[order][(lengths[order] > 0) & (lengths[order] <= longest)]


def _rows(vectors: Floats, x: Integers, y: Integers) -> Floats:
    """Pairs of vectors as the rows of matrices, `(n, 2, 2)`."""
    return np.stack([vectors[x], vectors[y]], axis=1)


def _deformation(old: Floats, new: Floats) -> tuple[Floats, Floats]:
    """Strain and angle (counter-clockwise, rad) of the maps from rows of `old` to rows of `new`,
    shapes (n,).
    """
    u, stretches, v = np.linalg.svd(np.linalg.solve(old, new))
    rotation = u @ v  # of rows
    return np.abs(stretches - 1).max(axis=1), np.arctan2(rotation[:, 0, 1], rotation[:, 0, 0])


def _fill(film: ase.Atoms, sides: Integers, lengths: tuple[float, float]) -> ase.Atoms:
    """The film in a right-angled cell whose sides are integer combinations of its own."""
    matrix = np.eye(3, dtype=int)
    matrix[:2, :2] = sides
    filled = make_supercell(film, matrix)
    filled.set_cell([*lengths, film.cell[2, 2]], scale_atoms=True)
    filled.wrap()
    return filled


def _stack(bottom: ase.Atoms, top: ase.Atoms) -> ase.Atoms:
    height = bottom.cell[2, 2]
    top.positions[:, 2] += height
    bottom.set_tags(0)
    top.set_tags(1)
    both = bottom + top
    both.set_cell([*bottom.cell.lengths()[:2], height + top.cell[2, 2]])
    both.pbc = True
    return both
