"""Atoms on their sites: what can be simulated, and displacements by heat."""

import ase
import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

from namsa.errors import InputError

Integers = npt.NDArray[np.int64]

ROUNDING = 1e-4  # occupancies and coordinates are printed to about four digits
SAME_SITE = 1e-3  # Å; atoms no further apart are of one mixed site
TOO_CLOSE = 0.3  # Å; less than half the shortest bond: two whole atoms no further apart are a mistake
MAX_ELEMENT = 103  # form factors are tabulated so far


def displaced(atoms: ase.Atoms, rms_angstrom: float | dict[str, float], rng: np.random.Generator) -> ase.Atoms:
    """`atoms` displaced as in Einstein's model, by independent normal deviates; wrapped into the cell.

    rms_angstrom: root mean square along one axis, for all or by element. The atoms of a mixed site move together, by
    the occupancy-weighted mean square of its elements.

    Raises InputError for an element without a value and a value that is no length.
    """
    symbols = atoms.get_chemical_symbols()
    if isinstance(rms_angstrom, dict):
        missing = sorted(set(symbols) - set(rms_angstrom))
        if missing:
            raise InputError(f"no displacement is given for {', '.join(missing)}, only for {', '.join(rms_angstrom)}")
        rms = np.array([rms_angstrom[symbol] for symbol in symbols])
    else:
        rms = np.full(len(atoms), rms_angstrom)
    if not np.all((rms >= 0) & np.isfinite(rms)):
        raise InputError(f"rms_angstrom is {rms_angstrom}; displacements are lengths of 0 Å or more")
    site = _linked(len(atoms), _near(atoms, SAME_SITE))
    weight = _occupancies(atoms)
    mean_square = np.bincount(site, weight * rms**2) / np.bincount(site, weight)
    moves = rng.standard_normal((len(mean_square), 3)) * np.sqrt(mean_square)[:, None]
    moved = atoms.copy()
    moved.positions = _wrapped(atoms.positions + moves[site], _box(atoms))
    return moved


def check_atoms(atoms: ase.Atoms) -> None:
    """Raises InputError for what cannot be simulated; it names the atom, the limit and the remedy.

    No atoms, a cell that is not right-angled, positions that are not finite, elements without form factors,
    occupancies outside (0, 1], atoms that overlap. The simulation repeats the cell, so atoms are wrapped into it before
    they are compared: atoms that overlap across the cell's faces are found wherever they lie.
    """
    if not len(atoms):
        raise InputError("the specimen has no atoms")
    _box(atoms)
    if not np.all(np.isfinite(atoms.positions)):
        index = int(np.argmin(np.isfinite(atoms.positions).all(axis=1)))
        raise InputError(f"{_label(atoms, index)}: positions must be finite")
    check_sites(atoms, _near(atoms, TOO_CLOSE))


def check_sites(atoms: ase.Atoms, near: Integers) -> None:
    """Raises InputError for elements without form factors, occupancies outside (0, 1] and atoms that overlap.

    near: (m, 2) pairs of atoms within `TOO_CLOSE` of each other, in whatever cell.
    """
    unknown = np.flatnonzero((atoms.numbers < 1) | (atoms.numbers > MAX_ELEMENT))
    if len(unknown):
        raise InputError(
            f"{_label(atoms, unknown[0])}: atomic number {atoms.numbers[unknown[0]]} is not in 1 to {MAX_ELEMENT}"
        )
    occupancy = _occupancies(atoms)
    wrong = np.flatnonzero(~((occupancy > 0) & (occupancy <= 1 + ROUNDING)))
    if len(wrong):
        raise InputError(f"{_label(atoms, wrong[0])}: occupancy {occupancy[wrong[0]]:g} must be above 0 and at most 1")
    site = _linked(len(atoms), near)
    total = np.bincount(site, occupancy)
    crowded = np.flatnonzero((total > 1 + ROUNDING) & (np.bincount(site) > 1))
    if len(crowded):
        first, second = np.flatnonzero(site == crowded[0])[:2]
        raise InputError(
            f"{_label(atoms, first)} and {_label(atoms, second)} overlap: atoms within {TOO_CLOSE} Å of each other, "
            "also across the cell's faces, must share a site, with occupancies that sum to at most 1, not "
            f"{total[crowded[0]]:g}: remove one of them, set their occupancies, or make the cell a whole number of the "
            "crystal's periods"
        )


def _near(atoms: ase.Atoms, within_angstrom: float) -> Integers:
    """Pairs of atoms, (m, 2), at most so far apart in the periodic right-angled cell."""
    box = _box(atoms)
    # Atoms lie evenly: a tree that does not weigh them is built and searched faster.
    tree = KDTree(_wrapped(atoms.positions, box), boxsize=box, balanced_tree=False, compact_nodes=False)
    return tree.query_pairs(within_angstrom, output_type="ndarray")


def _linked(n: int, pairs: Integers) -> Integers:
    """For each of n atoms the index of the cluster that `pairs` link it to, numbered by their first atoms; (n,)."""
    graph = coo_array((np.ones(len(pairs), dtype=bool), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    return connected_components(graph, directed=False)[1].astype(np.int64)


def _occupancies(atoms: ase.Atoms) -> npt.NDArray[np.float64]:
    return np.asarray(atoms.arrays.get("occupancy", np.ones(len(atoms))), dtype=np.float64)


def _box(atoms: ase.Atoms) -> npt.NDArray[np.float64]:
    """The cell's sides (x, y, z), Å. Raises InputError where they are not right-angled along the axes."""
    cell = np.asarray(atoms.cell)
    sides = np.diag(cell)
    if not np.all(np.abs(cell - np.diag(sides)) < 1e-6):
        raise InputError(
            f"the cell {cell.round(3).tolist()} Å is not right-angled along x, y, z: "
            "orient the crystal with namsa.crystals.supercell.supercell"
        )
    if not np.all(sides >= 1):
        raise InputError(f"the cell's sides {sides.round(3).tolist()} Å must be at least 1 Å")
    return sides


def _wrapped(positions: npt.NDArray[np.float64], box: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Positions in [0, side): a remainder can round up to the side itself."""
    inside = positions % box
    return np.where(inside < box, inside, 0.0)


def _label(atoms: ase.Atoms, index: int) -> str:
    x, y, z = atoms.positions[index]
    return f"atom {index} ({atoms.symbols[index]}) at ({x:.3f}, {y:.3f}, {z:.3f}) Å"
