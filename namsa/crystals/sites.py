"""Atoms and the sites they share: checks of specimens, and draws of who occupies a site.

`atoms.arrays["occupancy"]`, if present, is each atom's fraction of its site. A mixed site is
several atoms at one position. `atoms.arrays["rms_displacement_angstrom"]`, if present, is the
thermal amplitude of each atom along one axis; not a number where it is unknown.
`atoms.arrays["displacement_tensor_angstrom2"]`, if present, is the mean square displacement ⟨u_i
u_j⟩ of each atom, (n, 3, 3) along the axes x, y, z of the atoms; not numbers where it is unknown.
"""

from collections.abc import Iterator, Sequence

import ase
import numpy as np
from ase.data import covalent_radii
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

from namsa.base.arrays import Floats, Integers
from namsa.base.errors import InputError
from namsa.base.text import plural, shorten

TENSOR = "displacement_tensor_angstrom2"
SITE_ARRAYS = ("occupancy", "rms_displacement_angstrom", TENSOR)

ROUNDING = 1e-4  # occupancies and coordinates are printed with about four digits
EDGE = 1e-9  # Å; an atom this close below the cell is at its entrance face
LARGEST_OVERHANG = 1.0  # Å; that a thermal displacement reaches
SAME_SITE = 1e-3  # Å; atoms within this distance belong to one mixed site
# Å; less than half the shortest bond: two whole atoms within this distance are a mistake
TOO_CLOSE = 0.3
# Å; the simulation needs 1 Å, and no crystal's atoms are nearer to their own copies
SHORTEST_SIDE = 0.99
LONGEST_SIDE = 1000.0  # Å
SMALLEST_VOLUME = 0.5  # Å³ per atom; diamond has 5.7, and the atoms of a mixed site share theirs
MOST_ATOMS = 100_000  # in a crystal's cell
SHORTEST_CONTACT = 0.5  # of the sum of the covalent radii; real bonds have 0.66 and more
FAR_OUTSIDE = 1.0  # Å; atoms at rest are within the cell, up to rounding
MAX_ELEMENT = 103  # the form factor tables end here


def random_occupations(atoms: ase.Atoms, count: int, seed: int = 0) -> list[ase.Atoms]:
    """Draws who occupies the mixed and partly occupied sites of a specimen, several times.

    `namsa.simulate` averages over the result. Without this it takes the virtual crystal, in which
    every site scatters as the mean of its atoms: the Bragg reflections are the same, and the
    diffuse scattering between them is missing.

    Args:
        atoms: The specimen with its occupancies, as `make_supercell` returns it.
        count: Number of snapshots.
        seed: Seed of the draws.

    Returns:
        Snapshots in which each site holds one atom or none.

    Raises:
        InputError: If `count` is below 1, or a snapshot has no atom.

    Example:
        >>> alloy = bulk("Si", cubic=True) + bulk("Si", cubic=True)
        >>> alloy.symbols[8:] = "Ge"
        >>> alloy.arrays["occupancy"] = np.full(16, 0.5)
        >>> first, second = namsa.random_occupations(alloy, 2, seed=1)
        >>> len(first), len(second)
        (8, 8)
    """
    if count < 1:
        raise InputError(f"count is {count}; draw one snapshot or more")
    rng = np.random.default_rng(seed)
    return [occupy_sites(atoms, rng) for _ in range(count)]


def occupy_sites(atoms: ase.Atoms, rng: np.random.Generator) -> ase.Atoms:
    """Draws who occupies each site: one of its atoms or none, by their occupancies.

    Sites are independent of each other: there is no short-range order.

    Returns:
        The atoms that are there, without occupancies.

    Raises:
        InputError: If no site is occupied.
    """
    site = clusters(len(atoms), pairs_within(atoms, SAME_SITE)[0])
    share = occupancies(atoms)
    order = np.argsort(site, kind="stable")
    ends = np.cumsum(share[order])
    total = np.bincount(site, share)
    ends -= (np.cumsum(total) - total)[site[order]]  # within each site
    # a full site is never empty
    deviates = rng.random(len(total)) * np.where(total > 1 - ROUNDING, total, 1.0)
    deviate = deviates[site[order]]
    present = np.sort(order[(ends - share[order] <= deviate) & (deviate < ends)])
    if not len(present):
        raise InputError(
            f"none of {len(total)} sites is occupied: use a larger cell, or another seed"
        )
    occupied = atoms[present]
    occupied.arrays.pop("occupancy", None)
    return occupied


def wrap_along_beam(atoms: ase.Atoms) -> ase.Atoms:
    """Returns atoms whose heights lie in the cell, if it is periodic along the beam.

    Raises:
        InputError: If the cell is not periodic along the beam, and an atom lies farther than
            `LARGEST_OVERHANG` outside of it.
    """
    height = float(box_lengths(atoms)[2])
    z = atoms.positions[:, 2]
    if not len(atoms):
        return atoms
    outside = (z < -EDGE) | (z >= height - EDGE)
    if atoms.pbc[2] and outside.any():
        wrapped = atoms.copy()
        wrapped.positions[outside, 2] = (z[outside] + EDGE) % height - EDGE
        return wrapped
    overhang = np.maximum(-z, z - height)
    if overhang.max() > LARGEST_OVERHANG:
        raise InputError(
            f"{_label(atoms, int(np.argmax(overhang)))} is {overhang.max():.3g} Å outside of its "
            f"cell, {height:.4g} Å high and not periodic along the beam: make the cell higher and "
            "centre the atoms in it, as atoms.center(vacuum=1, axis=2) does, or set atoms.pbc[2] "
            "to wrap them"
        )
    return atoms


def check_atoms(atoms: ase.Atoms) -> list[str]:
    """Checks that a specimen can be simulated.

    The simulation repeats the cell, so atoms are wrapped into it before they are compared: atoms
    that overlap across the cell's faces are found wherever they lie.

    Returns:
        What is doubtful: whole atoms that are nearer to each other than any bond is long, or lie
        outside the cell.

    Raises:
        InputError: If the cell is not right-angled, positions are not finite, elements have no form
            factors, occupancies are outside (0, 1], or atoms overlap. It names the atom, the limit
            and the remedy.
    """
    box = box_lengths(atoms)
    if not len(atoms):
        return []  # vacuum
    if not np.all(np.isfinite(atoms.positions)):
        index = int(np.argmin(np.isfinite(atoms.positions).all(axis=1)))
        raise InputError(f"{_label(atoms, index)}: positions must be finite")
    pairs, distances = pairs_within(atoms, max(TOO_CLOSE, _longest_contact(atoms)))
    _check_sites(atoms, pairs[distances <= TOO_CLOSE])
    return [*_contacts(atoms, pairs, distances), *_outside(atoms, atoms.positions / box, box)]


def check_crystal(atoms: ase.Atoms, labels: Sequence[str] = ()) -> None:
    """Checks the atoms of a crystal, in a periodic cell of any shape.

    Args:
        labels: Names of the atoms in their file, for messages.

    Raises:
        InputError: If the cell is too small, too large or too full, elements have no form factors,
            occupancies are outside (0, 1], or atoms overlap.
    """
    check_cell(np.asarray(atoms.cell, dtype=np.float64), len(atoms))
    _check_sites(atoms, pairs_within(atoms, TOO_CLOSE)[0], labels)


def structure_notes(atoms: ase.Atoms) -> list[str]:
    """Returns warnings of atoms that are nearer than bonds, or that lie outside the cell."""
    sides = np.asarray(atoms.cell.lengths())
    return [
        *_contacts(atoms, *pairs_within(atoms, _longest_contact(atoms))),
        *_outside(atoms, atoms.cell.scaled_positions(atoms.positions), sides),
    ]


def scale_occupancies(atoms: ase.Atoms, rounding: Floats) -> list[str]:
    """Scales the occupancies of a site that sum to more than 1 because of their digits.

    Args:
        atoms: The crystal, which is changed.
        rounding: How far each occupancy can be from the exact one, `(n,)`.

    Returns:
        Notes about changes by more than `ROUNDING`.
    """
    if "occupancy" not in atoms.arrays:
        return []
    occupancy = occupancies(atoms)
    site = clusters(len(atoms), pairs_within(atoms, TOO_CLOSE)[0])
    total = np.bincount(site, occupancy)
    within_digits = total <= 1 + ROUNDING + np.bincount(site, rounding)
    scaled = (total > 1) & within_digits & (np.bincount(site) > 1)
    atoms.arrays["occupancy"] = np.where(scaled[site], occupancy / total[site], occupancy)
    most = total[scaled].max(initial=1.0)
    if most <= 1 + ROUNDING:
        return []
    return [f"occupancies of one site sum to {most:g} because of their digits, and are scaled to 1"]


def check_cell(cell: Floats, atoms: int) -> None:
    """Checks a crystal's cell. A search for neighbours in a tiny one would never end.

    Args:
        cell: Lattice vectors, rows of `(3, 3)`, Å.

    Raises:
        InputError: If the cell's sides are too short or too long for a crystal, its faces too near
            to each other, or it has too many atoms.
    """
    if not 1 <= atoms <= MOST_ATOMS:
        raise InputError(
            f"the crystal's cell has {atoms} atoms; give a cell of 1 to {MOST_ATOMS} atoms, which "
            "the specimen repeats (namsa.simulate takes larger specimens as ase.Atoms)"
        )
    sides = np.linalg.norm(cell, axis=1)
    shown = "×".join(f"{side:.4g}" for side in sides)
    if not np.all((sides >= SHORTEST_SIDE) & (sides <= LONGEST_SIDE)):
        raise InputError(
            f"the crystal's cell is {shown} Å; its sides must lie within {SHORTEST_SIDE:g} to "
            f"{LONGEST_SIDE:g} Å"
        )
    volume = abs(np.linalg.det(cell))
    faces = np.linalg.norm(np.cross(cell[[1, 2, 0]], cell[[2, 0, 1]]), axis=1)
    if not np.all(volume >= SHORTEST_SIDE * faces):
        raise InputError(
            f"the crystal's cell of {shown} Å is too flat: opposite faces must be "
            f"{SHORTEST_SIDE:g} Å apart or more; check its angles"
        )
    if volume < SMALLEST_VOLUME * atoms:
        raise InputError(
            f"the crystal's cell of {volume:.4g} Å³ has {atoms} atoms, which leaves less than "
            f"{SMALLEST_VOLUME:g} Å³ for each: check its sides"
        )


def occupancies(atoms: ase.Atoms) -> Floats:
    """Returns each atom's fraction of its site, `(n,)`; 1 where none is given."""
    return np.asarray(atoms.arrays.get("occupancy", np.ones(len(atoms))), dtype=np.float64)


def _longest_contact(atoms: ase.Atoms) -> float:
    """Returns the largest distance of two atoms that is too short for a bond, Å."""
    return 2 * SHORTEST_CONTACT * float(covalent_radii[atoms.numbers.clip(0, MAX_ELEMENT)].max())


def _contacts(atoms: ase.Atoms, pairs: Integers, distances: Floats) -> Iterator[str]:
    """Yields a warning of whole atoms that are nearer to each other than any bond is long."""
    radii = covalent_radii[atoms.numbers]
    occupancy = occupancies(atoms)
    one = pairs[:, 0]
    second = pairs[:, 1]
    are_near = distances < SHORTEST_CONTACT * (radii[one] + radii[second])
    are_both_there = occupancy[one] + occupancy[second] > 1 + ROUNDING
    short = are_near & are_both_there
    if short.any():
        nearest = int(np.argmin(np.where(short, distances, np.inf)))
        first_label = _label(atoms, int(one[nearest]))
        second_label = _label(atoms, int(second[nearest]))
        yield (
            f"{first_label} and {second_label} are {distances[nearest]:.2f} Å apart, less than "
            f"half the sum of their covalent radii; so near are {len(np.unique(pairs[short]))} "
            "atoms in all: check positions and cell"
        )


def _outside(atoms: ase.Atoms, scaled: Floats, sides: Floats) -> Iterator[str]:
    """Yields a warning of atoms outside the cell, which wrap into it."""
    beyond = (np.maximum(-scaled, scaled - 1) * sides).max(axis=1)
    outside = int(np.count_nonzero(beyond > FAR_OUTSIDE))
    if outside:
        farthest = int(np.argmax(beyond))
        yield (
            f"{plural(outside, 'atom')} of {len(atoms)} lie outside the cell, "
            f"{_label(atoms, farthest)} by {beyond[farthest]:.1f} Å: they wrap into it; check "
            "positions and cell"
        )


def _check_sites(atoms: ase.Atoms, close_pairs: Integers, labels: Sequence[str] = ()) -> None:
    """Raises InputError for wrong elements, occupancies and overlaps.

    Args:
        close_pairs: Atoms within `TOO_CLOSE` of each other, `(m, 2)`.
        labels: Names of the atoms in their file.
    """
    unknown = np.flatnonzero((atoms.numbers < 1) | (atoms.numbers > MAX_ELEMENT))
    if len(unknown):
        raise InputError(
            f"{_label(atoms, unknown[0])}: atomic number {atoms.numbers[unknown[0]]} is not in 1 "
            f"to {MAX_ELEMENT}"
        )
    occupancy = occupancies(atoms)
    wrong = np.flatnonzero(~((occupancy > 0) & (occupancy <= 1 + ROUNDING)))
    if len(wrong):
        raise InputError(
            f"{_label(atoms, wrong[0])}: occupancy {occupancy[wrong[0]]:g} must be above 0 and at "
            "most 1"
        )
    site = clusters(len(atoms), close_pairs)
    total = np.bincount(site, occupancy)
    crowded = np.flatnonzero((total > 1 + ROUNDING) & (np.bincount(site) > 1))
    if len(crowded):
        one, other = np.flatnonzero(site == crowded[0])[:2]
        raise InputError(
            f"{_label(atoms, one, labels)} and {_label(atoms, other, labels)} overlap: atoms "
            f"within {TOO_CLOSE} Å of each other, also across the cell's faces, must share a site, "
            f"with occupancies that sum to at most 1, not {total[crowded[0]]:g}: remove one of "
            "them, set their occupancies, or make the cell a whole number of the crystal's periods"
        )


def pairs_within(atoms: ase.Atoms, distance_angstrom: float) -> tuple[Integers, Floats]:
    """Finds the atoms that are near to each other in a cell of any shape.

    Args:
        atoms: The atoms, in a cell that is periodic along a and b, and along c unless `atoms.pbc`
            says otherwise.

    Returns:
        Pairs of atoms, `(m, 2)`, and their distances, `(m,)`, Å. A pair is there once for each
        image that is near.
    """
    cell = np.asarray(atoms.cell, dtype=np.float64)
    inverse = np.linalg.inv(cell)
    images = atoms.positions @ inverse
    periodic = [0, 1, 2] if atoms.pbc[2] else [0, 1]
    images[:, periodic] -= np.floor(images[:, periodic])
    # of the distance of opposite faces
    margin = distance_angstrom * np.linalg.norm(inverse, axis=0) + 1e-9
    source = np.arange(len(atoms))
    for axis in periodic:  # images of the images along the axes before
        images, source = _with_images(images, source, axis, float(margin[axis]))
    points = images @ cell
    # Atoms are evenly distributed, so an unbalanced tree is as good, and is built and searched
    # faster.
    tree = KDTree(points, balanced_tree=False, compact_nodes=False)
    pairs = tree.query_pairs(distance_angstrom, output_type="ndarray")
    pairs = pairs[pairs.min(axis=1) < len(atoms)]
    distances = np.linalg.norm(points[pairs[:, 0]] - points[pairs[:, 1]], axis=1)
    return source[pairs], distances


def _with_images(
    scaled: Floats, source: Integers, axis: int, margin: float
) -> tuple[Floats, Integers]:
    """Returns points and their periodic images along an axis, within a margin of the cell.

    Args:
        scaled: Points, `(n, 3)`, in units of the cell's sides.
        source: The atom of each, `(n,)`.
        margin: In units of the side.
    """
    farthest = int(np.ceil(margin))
    # the atoms themselves come first
    shifts = sorted(range(-farthest, farthest + 1), key=abs)
    kept_points = []
    kept_sources = []
    for shift in shifts:
        moved = scaled + shift * np.eye(3)[axis]
        near = (moved[:, axis] >= -margin) & (moved[:, axis] <= 1 + margin)
        kept_points.append(moved[near])
        kept_sources.append(source[near])
    return np.concatenate(kept_points), np.concatenate(kept_sources)


def clusters(n: int, pairs: Integers) -> Integers:
    """Returns the cluster of each of n atoms that `pairs` connect, `(n,)`.

    Clusters are numbered in the order of their first atoms.
    """
    graph = coo_array((np.ones(len(pairs), dtype=bool), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    return connected_components(graph, directed=False)[1].astype(np.int64)


def box_lengths(atoms: ase.Atoms) -> Floats:
    """Returns the cell's sides (x, y, z), Å.

    Raises:
        InputError: If they are not right-angled along the axes, or too short.
    """
    cell = np.asarray(atoms.cell)
    sides = np.diag(cell)
    if not np.all(np.abs(cell - np.diag(sides)) < 1e-6):
        raise InputError(
            f"the cell {cell.round(3).tolist()} Å is not right-angled along x, y, z: "
            "orient the crystal with namsa.crystals.supercell.make_supercell"
        )
    if not np.all(sides >= 1):
        raise InputError(f"the cell's sides {sides.round(3).tolist()} Å must be at least 1 Å")
    return sides


def _label(atoms: ase.Atoms, index: int, labels: Sequence[str] = ()) -> str:
    x, y, z = atoms.positions[index]
    name = f"atom site {shorten(labels[index], 20)}" if labels else f"atom {index}"
    return f"{name} ({atoms.symbols[index]}) at ({x:.3f}, {y:.3f}, {z:.3f}) Å"
