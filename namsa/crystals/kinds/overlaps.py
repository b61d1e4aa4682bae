"""Distances at which atoms of two parts of a specimen overlap, and the joining of the parts.

Two atoms of different parts overlap if they are nearer than `CLOSEST` times the shortest distance
of their pair of elements in the crystals of the specimen. For a pair that no crystal has within
`REACH` it is the sum of the covalent radii in place of that distance. Distances within one part are
left as they are.
"""

from collections.abc import Sequence

import ase
import numpy as np
from ase.data import covalent_radii
from ase.neighborlist import neighbor_list
from scipy.spatial import KDTree

from namsa.base.arrays import Booleans, Floats, Integers
from namsa.crystals.sites import SAME_SITE, TOO_CLOSE

CLOSEST = 0.8
REACH = 4.5  # Å
_ROUNDING = 1e-6  # Å: atoms at the limit are on the same side of it on every machine


def pair_distances(crystals: Sequence[ase.Atoms]) -> Floats:
    """Returns the shortest distance of each pair of elements, Å, by both atomic numbers.

    Args:
        crystals: Crystals in periodic cells.

    Returns:
        A symmetric array, `(119, 119)`.
    """
    radii = covalent_radii[:119]
    shortest = np.full((119, 119), np.inf)
    for crystal in crystals:
        one_atom, second, distance = neighbor_list("ijd", crystal, REACH)
        apart = distance > TOO_CLOSE  # atoms of one mixed site are no pair
        pair = crystal.numbers[one_atom[apart]], crystal.numbers[second[apart]]
        np.minimum.at(shortest, pair, distance[apart])
    return np.where(np.isfinite(shortest), shortest, radii[:, None] + radii)


def cross_pairs(
    one: ase.Atoms, other: ase.Atoms, reach: float
) -> tuple[Integers, Integers, Floats]:
    """Returns the pairs of an atom of `one` and an atom of `other` within a distance, across the
    cell's faces too.

    Args:
        one: Atoms in a right-angled periodic cell.
        reach: The distance, Å.

    Returns:
        Indices into `one`, indices into `other`, distances in Å; `(n,)` each, in the order of the
        indices.
    """
    if not (len(one) and len(other)):
        none = np.empty(0, dtype=np.int64)
        return none, none, np.empty(0)
    sides = np.asarray(one.cell.lengths())
    # A tree counts each neighbour once, however small the cell; so must the reach be below half of
    # each side.
    trees = [KDTree(wrapped(crystal.positions, sides), boxsize=sides) for crystal in (one, other)]
    neighbours = trees[0].sparse_distance_matrix(
        trees[1], min(reach, sides.min() / 2), output_type="ndarray"
    )
    neighbours.sort(order=["i", "j"])
    return (
        neighbours["i"].astype(np.int64),
        neighbours["j"].astype(np.int64),
        neighbours["v"].astype(np.float64),
    )


def wrapped(positions: Floats, sides: Floats) -> Floats:
    """Returns positions in [0, side): rounded, so that atoms at a face are on the same side on
    every machine.
    """
    inside = np.round(positions % sides, 9) % sides
    return np.where(inside < sides, inside, 0.0)


def join(kept: ase.Atoms, added: ase.Atoms, distances: Floats) -> ase.Atoms:
    """Returns the atoms of two parts without those of the second that overlap with the first.

    All atoms of a mixed site are left out together.

    Args:
        distances: The shortest distances of pairs of elements, as `pair_distances` returns them.
    """
    i, j, distance = cross_pairs(
        kept, added, float(CLOSEST * distances[np.ix_(set_of(kept), set_of(added))].max())
    )
    overlap = distance < CLOSEST * distances[kept.numbers[i], added.numbers[j]] - _ROUNDING
    removed = np.zeros(len(added), dtype=bool)
    removed[j[overlap]] = True
    return combined(kept, added[~_with_site_mates(added, removed)])


def set_of(atoms: ase.Atoms) -> list[int]:
    """Returns the atomic numbers that occur, in order; [1] if there are no atoms."""
    return sorted(set(atoms.numbers.tolist())) or [1]


def worst_contact(one: ase.Atoms, other: ase.Atoms, distances: Floats) -> float:
    """Returns how near the parts come to each other: the smallest distance of a pair over that of
    `distances`.

    Atoms of the same element at the same place are one atom and no contact.
    """
    i, j, distance = cross_pairs(
        one, other, float(distances[np.ix_(set_of(one), set_of(other))].max())
    )
    contact = ~((distance < TOO_CLOSE) & (one.numbers[i] == other.numbers[j]))
    ratios = distance[contact] / distances[one.numbers[i], other.numbers[j]][contact]
    return round(float(min(ratios.min(initial=1.0), 1.0)), 6)


def combined(kept: ase.Atoms, added: ase.Atoms) -> ase.Atoms:
    """Returns the atoms of both parts; occupancies that one part lacks are 1, amplitudes are
    unknown (NaN).
    """
    parts = [kept.copy(), added.copy()]
    for name, missing in (("occupancy", 1.0), ("rms_displacement_angstrom", np.nan)):
        if any(name in half.arrays for half in parts):
            for half in parts:
                if name not in half.arrays:
                    half.set_array(name, np.full(len(half), missing))
    return parts[0] + parts[1]


def _with_site_mates(atoms: ase.Atoms, chosen: Booleans) -> Booleans:
    """Returns the chosen atoms and those that share a site with them, `(n,)`."""
    if "occupancy" not in atoms.arrays or not chosen.any():
        return chosen
    mates = chosen.copy()
    mates[cross_pairs(atoms, atoms[chosen], SAME_SITE)[0]] = True
    return mates
