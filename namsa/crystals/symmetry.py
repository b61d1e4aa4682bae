"""The symmetry of a crystal's atoms by spglib: the conventional cell of its lattice, and different
zone axes.
"""

import itertools
import math

import ase
import numpy as np
import spglib

from namsa.base.arrays import Integers
from namsa.crystals.sites import SAME_SITE, SITE_ARRAYS, TENSOR, clusters, occupancies, pairs_within

LARGEST_INDEX = 4

ZoneAxis = tuple[int, int, int]
# Å; how far atoms may be from the positions of the space group, given the digits of files
SYMPREC = 0.01
ANGLE_TOLERANCE = 5.0  # degrees
# spglib's search for the symmetry of a cubic cell with one vacancy takes 2.4 s of CPU time for 511
# atoms, 13 s for 999 and minutes for 1727.
MOST_ATOMS = 600
_RIGHT = 1e-3  # degrees


def find_symmetry(atoms: ase.Atoms) -> spglib.SpglibDataset | None:
    """Returns spglib's description of a crystal.

    It is `None` for more than `MOST_ATOMS` atoms, or if spglib finds none.

    The atoms of a mixed site count as one of a kind of its own.
    """
    if len(atoms) > MOST_ATOMS:
        return None
    atom_of_site, site = _sites(atoms)
    shares = np.round(occupancies(atoms), 6).tolist()
    kinds: dict[tuple[tuple[int, float], ...], int] = {}
    types = []
    for index in range(len(atom_of_site)):
        members = np.flatnonzero(site == index)
        kind = tuple(sorted((int(atoms.numbers[member]), shares[member]) for member in members))
        types.append(kinds.setdefault(kind, len(kinds) + 1))
    positions = atoms.get_scaled_positions()[atom_of_site]
    return spglib.get_symmetry_dataset((atoms.cell[:], positions, types), SYMPREC, ANGLE_TOLERANCE)


def space_group(atoms: ase.Atoms) -> str:
    """Returns the Hermann–Mauguin symbol of a crystal's space group.

    It is P1 where no symmetry is found or searched for.
    """
    symmetry = find_symmetry(atoms)
    return "P1" if symmetry is None else str(symmetry.international)


def rotations(atoms: ase.Atoms) -> Integers:
    """Returns the rotations of a crystal's space group.

    Returns:
        Integer matrices of fractional coordinates, `(n, 3, 3)`.
    """
    symmetry = find_symmetry(atoms)
    if symmetry is None:
        return np.eye(3, dtype=np.int64)[None]
    return np.asarray(symmetry.rotations, np.int64)


def is_conventional(atoms: ase.Atoms, symmetry: spglib.SpglibDataset) -> bool:
    """Whether a cell can be called conventional.

    It is not smaller than that of the International Tables, and has its right angles.
    Other settings, other origins and multiples of the conventional cell are as good. For a
    rhombohedral lattice the conventional cell has hexagonal axes.
    """
    if symmetry.number <= 2:
        return True
    if abs(atoms.cell.volume) < 0.99 * abs(np.linalg.det(symmetry.std_lattice)):
        return False
    tolerance = np.degrees(SYMPREC / min(atoms.cell.lengths())) + _RIGHT
    right_angles = int(np.count_nonzero(abs(atoms.cell.angles() - 90) < tolerance))
    # orthorhombic and tetragonal, or cubic
    is_rectangular = 16 <= symmetry.number <= 142 or symmetry.number >= 195
    return right_angles >= (3 if is_rectangular else 2)


def conventional(atoms: ase.Atoms, symmetry: spglib.SpglibDataset) -> ase.Atoms:
    """Returns a crystal in the conventional cell of the International Tables.

    Its atoms are at the positions of its symmetry.
    """
    _, site = _sites(atoms)
    representatives: dict[int, int] = {}
    for index, primitive in enumerate(symmetry.mapping_to_primitive.tolist()):
        representatives.setdefault(primitive, index)
    sources = []
    places = []
    for primitive, place in zip(
        symmetry.std_mapping_to_primitive.tolist(), symmetry.std_positions, strict=True
    ):
        for member in np.flatnonzero(site == representatives[primitive]):
            sources.append(int(member))
            places.append(place)
    result = ase.Atoms(
        numbers=atoms.numbers[sources], scaled_positions=places, cell=symmetry.std_lattice, pbc=True
    )
    for name in SITE_ARRAYS:
        if name in atoms.arrays:
            values = atoms.arrays[name][sources]
            turn = symmetry.std_rotation_matrix
            result.set_array(name, turn @ values @ turn.T if name == TENSOR else values)
    return result


def _sites(atoms: ase.Atoms) -> tuple[Integers, Integers]:
    """Returns the first atom of each site, and the site of each atom."""
    if min(occupancies(atoms)) >= 1:
        return np.arange(len(atoms)), np.arange(len(atoms))
    site = clusters(len(atoms), pairs_within(atoms, SAME_SITE)[0])
    return np.unique(site, return_index=True)[1], site


def simplest_zone_axes(atoms: ase.Atoms, count: int) -> tuple[ZoneAxis, ...]:
    """Returns zone axes of a crystal that no symmetry of it relates, the smallest indices first.

    Equivalent axes give the same specimen, turned or mirrored: [100] and [001] of a cubic crystal,
    [011] and [111] of many hexagonal ones. An axis and its opposite count as equivalent too: both
    give the same projected density.

    Args:
        count: Number of axes, at most 20: a cubic crystal has 21 different ones with indices up to
            4. Of a crystal whose symmetry is not searched for, no axes are related but opposite
            ones.
    """
    symmetry = rotations(atoms)
    axes: list[ZoneAxis] = []
    equivalent: set[ZoneAxis] = set()
    for axis in _candidates():
        if axis not in equivalent:
            axes.append(axis)
            images = symmetry @ np.array(axis)
            equivalent.update(map(tuple, np.concatenate([images, -images]).tolist()))
        if len(axes) == count:
            break
    return tuple(axes)


def _candidates() -> list[ZoneAxis]:
    """Returns axes without common factors, the simplest first.

    Those have small indices, then few negative ones; then come [001] and [011].
    """
    indices = range(-LARGEST_INDEX, LARGEST_INDEX + 1)
    axes = []
    for u, v, w in itertools.product(indices, indices, indices):
        if math.gcd(u, v, w) == 1:
            axes.append((u, v, w))
    return sorted(axes, key=_complexity)


def _complexity(axis: ZoneAxis) -> tuple[int, int, ZoneAxis]:
    """Returns the squared length of the indices, the number of negative ones, and the indices."""
    squares = 0
    negative = 0
    for index in axis:
        squares += index * index
        negative += index < 0
    return squares, negative, axis
