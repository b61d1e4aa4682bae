"""Amorphous films, and amorphous layers on crystals: random packings of a stated density.

Points at random are moved apart, and towards their bonds' lengths, until the shells of neighbours
are there. An atom is bonded to its nearest neighbours, up to its coordination number; other pairs
keep at least a distance of their own. This gives density, shortest distances, coordination and the
first two shells of the radial distribution. It is no network with the right angles and rings: for
that, relax atoms by molecular dynamics and give them to `namsa.simulate`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import ase
import numpy as np
from ase.data import atomic_masses, atomic_numbers
from scipy.spatial import KDTree

from namsa.base.arrays import Booleans, Floats, Integers
from namsa.base.errors import InputError
from namsa.crystals.kinds.draws import Draws
from namsa.crystals.kinds.overlaps import CLOSEST, join, pair_distances, set_of
from namsa.crystals.sites import occupancies

OWN = "own"  # composition: the elements of the crystal
# of all glasses below; of a crystal's own elements, its own density
MOST_ATOMS_PER_CUBIC_ANGSTROM = 0.12
_STEPS = 60
_SEARCHED_EVERY = 3
# part of a distance's error that one step takes from a bond, and from a contact
_STEP = 0.35
_PUSH = 0.1
_GRAMS_PER_CM3 = 1.66053907  # of 1 u/Å³


@dataclass(frozen=True)
class Glass:
    """An amorphous solid."""

    share: Mapping[str, float]  # the part of the atoms that each element has
    density: tuple[float, float]  # the range (least, most) from which the density is drawn, g/cm³
    # the number of bonds of an atom of each element; 0 where packing alone decides
    coordination: Mapping[str, int]
    bonds: Mapping[tuple[str, str], float]  # the lengths of bonds between two elements, Å
    contacts: Mapping[tuple[str, str], float]  # the shortest distances of other pairs, Å


# Bonds and contacts are near the first and second maxima of measured radial distributions: C,
# Robertson, Mater. Sci. Eng. R 37, 129 (2002); Si, Laaziri et al., Phys. Rev. B 60, 13520 (1999);
# Ge, Etherington et al., J. Non-Cryst. Solids 48, 265 (1982); SiO2, Mozzi & Warren, J. Appl. Cryst.
# 2, 164 (1969).
GLASSES: dict[str, Glass] = {
    "C": Glass({"C": 1.0}, (1.8, 2.3), {"C": 3}, {("C", "C"): 1.45}, {("C", "C"): 2.4}),
    "Si": Glass({"Si": 1.0}, (2.2, 2.3), {"Si": 4}, {("Si", "Si"): 2.35}, {("Si", "Si"): 3.7}),
    "Ge": Glass({"Ge": 1.0}, (5.0, 5.3), {"Ge": 4}, {("Ge", "Ge"): 2.46}, {("Ge", "Ge"): 3.9}),
    "SiO2": Glass(
        {"Si": 1 / 3, "O": 2 / 3},
        (2.15, 2.25),
        {"Si": 4, "O": 2},
        {("Si", "O"): 1.62},
        {("Si", "O"): 2.8, ("O", "O"): 2.6, ("Si", "Si"): 3.0},
    ),
}


def amorphous(crystal: ase.Atoms, atoms: ase.Atoms, draws: Draws) -> ase.Atoms:
    """Fills the whole cell with an amorphous solid in place of the crystal.

    Parameters: `composition` (a name of `GLASSES`, or "own" for the crystal's elements, which is
    twice as likely), `density_g_per_cm3` (drawn from the range of the glass; of own elements 0.88
    to 0.96 of the crystal's).
    """
    return _packing(crystal, np.asarray(atoms.cell.lengths()), draws)


def amorphous_layer(crystal: ase.Atoms, atoms: ase.Atoms, draws: Draws) -> ase.Atoms:
    """Replaces the crystal's first layer, where the beam enters, by an amorphous solid.

    Samples that are cut off at any depth have the layer on their entrance side.

    Parameters: `layer_angstrom` (drawn from 5 to 30 Å, at most half of the thickness), and those of
    `amorphous`.
    """
    sides = np.asarray(atoms.cell.lengths())
    most = min(30.0, 0.5 * float(sides[2]))
    layer = draws.uniform("layer_angstrom", (min(5.0, 0.5 * most), most), (0.0, float(sides[2])))
    film = _packing(crystal, np.array([sides[0], sides[1], max(layer, 1.0)]), draws)
    film.set_cell(sides)
    film = film[film.positions[:, 2] < layer]
    return join(atoms[atoms.positions[:, 2] >= layer], film, _distances(crystal, film))


def _distances(crystal: ase.Atoms, film: ase.Atoms) -> Floats:
    """Returns the shortest distances of pairs of elements in the crystal and in the glasses.

    They are as those of `pair_distances`.
    """
    distances = pair_distances([crystal])
    present = set(set_of(film)) | set(set_of(crystal))
    for glass in GLASSES.values():
        for pair, length in glass.bonds.items():
            i, j = (atomic_numbers[symbol] for symbol in pair)
            if {i, j} <= present:
                distances[i, j] = distances[j, i] = min(distances[i, j], length)
    return distances


def _packing(crystal: ase.Atoms, sides: Floats, draws: Draws) -> ase.Atoms:
    """Returns the amorphous solid in a periodic cell with the given sides, Å."""
    composition = draws.choice("composition", (OWN, OWN, *GLASSES))
    glass = _own(crystal) if composition == OWN else GLASSES[composition]
    density = draws.uniform("density_g_per_cm3", glass.density, (0.01, 30.0))
    symbols = sorted(glass.share, key=lambda symbol: atomic_numbers[symbol])
    numbers = np.empty(len(symbols), np.int64)
    shares = np.empty(len(symbols))
    bonds_per_atom = np.empty(len(symbols), np.int64)
    for index, symbol in enumerate(symbols):
        numbers[index] = atomic_numbers[symbol]
        shares[index] = glass.share[symbol]
        bonds_per_atom[index] = glass.coordination.get(symbol, 0)
    mass = _GRAMS_PER_CM3 * float(shares @ atomic_masses[numbers])
    count = round(density / mass * float(np.prod(sides)))
    if count < 1:
        size = "×".join(f"{side:.3g}" for side in sides)
        raise InputError(f"a cell of {size} Å has no atom at {density} g/cm³")
    ends = np.round(np.cumsum(shares) / shares.sum() * count).astype(np.int64)
    kinds = np.repeat(np.arange(len(symbols)), np.diff(ends, prepend=0))
    bonds = _table(symbols, glass.bonds)
    contacts = _table(symbols, glass.contacts)
    closest = CLOSEST * np.where(bonds > 0, bonds, contacts)
    positions = draws.rng.random((count, 3)) * sides
    positions = _relaxed(positions, sides, kinds, bonds, contacts, bonds_per_atom[kinds], _PUSH)
    # Bonds pull some atoms too near to others; these are moved apart without bonds.
    positions = _relaxed(positions, sides, kinds, 0 * bonds, 1.05 * closest, 0 * kinds, _STEP)
    kept = _without_overlaps(positions, sides, closest, kinds)
    return ase.Atoms(numbers=numbers[kinds[kept]], positions=positions[kept], cell=sides, pbc=True)


def _own(crystal: ase.Atoms) -> Glass:
    """Returns a dense packing of the crystal's elements, a little less dense than the crystal."""
    weights = occupancies(crystal)
    mass = float(weights @ atomic_masses[crystal.numbers])
    density = _GRAMS_PER_CM3 * mass / float(crystal.get_volume())
    distances = pair_distances([crystal])
    symbols = {atomic_number: ase.Atom(atomic_number).symbol for atomic_number in set_of(crystal)}
    share = {}
    contacts = {}
    for atomic_number, symbol in symbols.items():
        share[symbol] = float(weights[crystal.numbers == atomic_number].sum() / weights.sum())
        for other_number, other_symbol in symbols.items():
            shortest = float(distances[atomic_number, other_number])
            contacts[symbol, other_symbol] = 0.95 * shortest
    return Glass(share, (round(0.88 * density, 3), round(0.96 * density, 3)), {}, {}, contacts)


def _table(symbols: list[str], lengths: Mapping[tuple[str, str], float]) -> Floats:
    """Returns the length of each pair of elements, Å, `(e, e)`; 0 where there is none."""
    table = np.zeros((len(symbols), len(symbols)))
    for row, one in enumerate(symbols):
        for column, other in enumerate(symbols):
            length = lengths.get((one, other), lengths.get((other, one), 0.0))
            table[row, column] = length
    return table


def _relaxed(
    positions: Floats,  # the points, `(n, 3)`, Å
    sides: Floats,  # the periodic cell, Å
    kinds: Integers,  # the element of each point, `(n,)`
    bonds: Floats,  # lengths of bonds, `(e, e)`; 0 where elements do not bond
    contacts: Floats,  # shortest distances of other pairs, `(e, e)`
    bonds_per_atom: Integers,  # the largest number of bonds of each point, `(n,)`
    push: float,  # the part of a contact's error that one step takes away
) -> Floats:
    """Moves points until bonds have their lengths and other pairs are apart; see the module."""
    reach = min(1.1 * float(max(bonds.max(), contacts.max())), float(sides.min()) / 2)
    n = len(positions)
    i = np.empty(0, dtype=np.int64)
    j = np.empty(0, dtype=np.int64)
    for index in range(_STEPS):
        if index % _SEARCHED_EVERY == 0:
            tree = KDTree(
                positions % sides, boxsize=sides, balanced_tree=False, compact_nodes=False
            )
            pairs = tree.query_pairs(reach, output_type="ndarray")
            # In one order, and so with sums of the same digits, on every machine.
            i, j = np.divmod(np.sort(pairs[:, 0] * n + pairs[:, 1]), n)
        offset = positions[i] - positions[j]
        offset -= sides * np.round(offset / sides)
        distance = np.maximum(np.sqrt((offset**2).sum(axis=1)), 1e-9)
        bond = bonds[kinds[i], kinds[j]]
        contact = contacts[kinds[i], kinds[j]]
        bonded = _bonded(i, j, np.where(bond > 0, distance, np.inf), bonds_per_atom)
        of_bonds = _STEP * (bond - distance)
        of_contacts = push * np.maximum(contact - distance, 0)
        change = np.where(bonded, of_bonds, of_contacts)
        move = offset * (change / distance)[:, None]
        moves = np.empty_like(positions)
        for axis in range(3):
            moves[:, axis] = np.bincount(i, move[:, axis], n) - np.bincount(j, move[:, axis], n)
        positions = positions + moves
    return positions % sides


def _bonded(i: Integers, j: Integers, distance: Floats, bonds_per_atom: Integers) -> Booleans:
    """Returns which pairs are among the nearest of both their atoms, `(m,)`.

    An atom has as many nearest ones as bonds.
    """
    if not bonds_per_atom.any():
        return np.zeros(len(i), dtype=bool)
    atom = np.concatenate([i, j])
    pair = np.tile(np.arange(len(i)), 2)
    order = np.lexsort((pair, distance[pair], atom))
    sorted_atom = atom[order]
    rank = np.arange(len(atom)) - np.searchsorted(sorted_atom, sorted_atom)
    within = np.zeros(len(i), dtype=np.int64)
    np.add.at(within, pair[order], rank < bonds_per_atom[sorted_atom])
    return (within == 2) & np.isfinite(distance)


def _without_overlaps(
    positions: Floats, sides: Floats, closest: Floats, kinds: Integers
) -> Integers:
    """Returns the points that stay if of each overlapping pair the second is left out."""
    tree = KDTree(positions % sides, boxsize=sides)
    i, j = tree.query_pairs(
        min(float(closest.max()), float(sides.min()) / 2), output_type="ndarray"
    ).T
    offset = positions[i] - positions[j]
    offset -= sides * np.round(offset / sides)
    overlap = np.sqrt((offset**2).sum(axis=1)) < closest[kinds[i], kinds[j]]
    return np.setdiff1d(np.arange(len(positions)), j[overlap])
