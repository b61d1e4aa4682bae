"""Atoms and the sites they share: checks of what can be simulated, and who occupies a site.

`atoms.arrays["occupancy"]`, if present, is each atom's fraction of its site. A mixed site is several atoms at one
position. `atoms.arrays["rms_displacement_angstrom"]`, if present, is the thermal amplitude of each atom along one axis;
not a number where it is unknown. `atoms.arrays["displacement_tensor_angstrom2"]`, if present, is the mean square
displacement ⟨u_i u_j⟩ of each atom, (n, 3, 3) along the axes x, y, z of the atoms; not numbers where it is unknown.
"""

from collections.abc import Iterator, Sequence

import ase
import numpy as np
from ase.data import covalent_radii
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

from namsa.arrays import Floats, Integers
from namsa.errors import InputError
from namsa.text import plural, shorten

TENSOR = "displacement_tensor_angstrom2"
SITE_ARRAYS = ("occupancy", "rms_displacement_angstrom", TENSOR)

ROUNDING = 1e-4  # occupancies and coordinates are printed with about four digits
EDGE = 1e-9  # Å; an atom this close below the cell is at its entrance face
LARGEST_OVERHANG = 1.0  # Å; that a thermal displacement reaches
SAME_SITE = 1e-3  # Å; atoms within this distance belong to one mixed site
TOO_CLOSE = 0.3  # Å; less than half the shortest bond: two whole atoms within this distance are a mistake
SHORTEST_SIDE = 0.99  # Å; the simulation needs 1 Å, and no crystal's atoms are nearer to their own copies
LONGEST_SIDE = 1000.0  # Å
SMALLEST_VOLUME = 0.5  # Å³ per atom; diamond has 5.7, and the atoms of a mixed site share theirs
MOST_ATOMS = 100_000  # in a crystal's cell
SHORTEST_CONTACT = 0.5  # of the sum of the covalent radii; real bonds have 0.66 and more
FAR_OUTSIDE = 1.0  # Å; atoms at rest are within the cell, up to rounding
MAX_ELEMENT = 103  # the form factor tables end here


def random_occupations(atoms: ase.Atoms, count: int, seed: int = 0) -> list[ase.Atoms]:
    """Draws who occupies the mixed and partly occupied sites of a specimen, several times.

    `namsa.simulate` averages over the result. Without this it takes the virtual crystal, in which every site scatters
    as the mean of its atoms: the Bragg reflections are the same, and the diffuse scattering between them is missing.

    Args:
        atoms: The specimen with its occupancies, as `make_supercell` returns it.
        count: Number of snapshots.
        seed: Seed of the draws.

    Returns:
        Snapshots in which each site holds one atom or none.

    Raises:
        InputError: If `count` is below 1, or a snapshot has no atom.
    """
    if count < 1:
        raise InputError(f"count is {count}; draw one snapshot or more")
    rng = np.random.default_rng(seed)
    return [occupy_sites(atoms, rng) for _ in range(count)]


def occupy_sites(atoms: ase.Atoms, rng: np.random.Generator) -> ase.Atoms:
    """Draws who occupies each site: one of its atoms, each with the probability of its occupancy, or none.

    Sites are independent of each other: there is no short-range order.

    Returns:
        The atoms that are there, without occupancies.

    Raises:
        InputError: If no site is occupied.
    """
    site, share = clusters(len(atoms), pairs_within(atoms, SAME_SITE)[0]), occupancies(atoms)
    order = np.argsort(site, kind="stable")
    ends, total = np.cumsum(share[order]), np.bincount(site, share)
    ends -= (np.cumsum(total) - total)[site[order]]  # within each site
    deviates = rng.random(len(total)) * np.where(total > 1 - ROUNDING, total, 1.0)  # a full site is never empty
    deviate = deviates[site[order]]
    present = np.sort(order[(ends - share[order] <= deviate) & (deviate < ends)])
    if not len(present):
        raise InputError(f"none of {len(total)} sites is occupied: use a larger cell, or another seed")
    occupied = atoms[present]
    occupied.arrays.pop("occupancy", None)
    return occupied


def wrap_along_beam(atoms: ase.Atoms) -> ase.Atoms:
    """Returns atoms whose heights lie in the cell, if it is periodic along the beam.

    Raises:
        InputError: If the cell is not periodic along the beam, and an atom lies farther than `LARGEST_OVERHANG` outside
            of it.
    """
    height, z = float(box_lengths(atoms)[2]), atoms.positions[:, 2]
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
            f"{_label(atoms, int(np.argmax(overhang)))} is {overhang.max():.3g} Å outside of its cell, {height:.4g} Å "
            "high and not periodic along the beam: make the cell higher and centre the atoms in it, as "
            "atoms.center(vacuum=1, axis=2) does, or set atoms.pbc[2] to wrap them"
        )
    return atoms


def check_atoms(atoms: ase.Atoms) -> list[str]:
    """Checks that a specimen can be simulated.

    The simulation repeats the cell, so atoms are wrapped into it before they are compared: atoms that overlap across
    the cell's faces are found wherever they lie.

    Returns:
        What is doubtful: whole atoms that are nearer to each other than any bond is long, or lie outside the cell.

    Raises:
        InputError: If the cell is not right-angled, positions are not finite, elements have no
            form factors, occupancies are outside (0, 1], or atoms overlap. It names the atom, the limit and the
            remedy.
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
        InputError: If the cell is too small, too large or too full, elements have no form factors, occupancies are
            outside (0, 1], or atoms overlap.
    """
    check_cell(np.asarray(atoms.cell, dtype=np.float64), len(atoms))
    _check_sites(atoms, pairs_within(atoms, TOO_CLOSE)[0], labels)


def doubts(atoms: ase.Atoms) -> list[str]:
    """Returns what no crystal has: whole atoms that are nearer than any bond is long, or that lie outside the cell."""
    sides = np.asarray(atoms.cell.lengths())
    return [
        *_contacts(atoms, *pairs_within(atoms, _longest_contact(atoms))),
        *_outside(atoms, atoms.cell.scaled_positions(atoms.positions), sides),
    ]


def scale_occupancies(atoms: ase.Atoms, rounding: Floats) -> list[str]:
    """Scales the occupancies of atoms within `TOO_CLOSE` that sum to more than 1 because of their digits.

    Args:
        atoms: The crystal, which is changed.
        rounding: How far each occupancy can be from the exact one, `(n,)`.

    Returns:
        What was changed by more than `ROUNDING`.
    """
    if "occupancy" not in atoms.arrays:
        return []
    occupancy = occupancies(atoms)
    site = clusters(len(atoms), pairs_within(atoms, TOO_CLOSE)[0])
    total = np.bincount(site, occupancy)
    scaled = (total > 1) & (total <= 1 + ROUNDING + np.bincount(site, rounding)) & (np.bincount(site) > 1)
    atoms.arrays["occupancy"] = np.where(scaled[site], occupancy / total[site], occupancy)
    most = total[scaled].max(initial=1.0)
    return [f"occupancies of one site sum to {most:g} because of their digits, and are scaled to 1"] * int(
        most > 1 + ROUNDING
    )


def check_cell(cell: Floats, atoms: int) -> None:
    """Checks a crystal's cell before anything searches for neighbours in it, which never ends in a tiny cell.

    Args:
        cell: Lattice vectors, rows of `(3, 3)`, Å.

    Raises:
        InputError: If the cell's sides are too short or too long for a crystal, its faces too near to each other, or it
            has too many atoms.
    """
    if not 1 <= atoms <= MOST_ATOMS:
        raise InputError(
            f"the crystal's cell has {atoms} atoms; give a cell of 1 to {MOST_ATOMS} atoms, which the specimen repeats "
            "(namsa.simulate takes larger specimens as ase.Atoms)"
        )
    sides = np.linalg.norm(cell, axis=1)
    shown = "×".join(f"{side:.4g}" for side in sides)
    if not np.all((sides >= SHORTEST_SIDE) & (sides <= LONGEST_SIDE)):
        raise InputError(
            f"the crystal's cell is {shown} Å; its sides must lie within {SHORTEST_SIDE:g} to {LONGEST_SIDE:g} Å"
        )
    volume = abs(np.linalg.det(cell))
    faces = np.linalg.norm(np.cross(cell[[1, 2, 0]], cell[[2, 0, 1]]), axis=1)
    if not np.all(volume >= SHORTEST_SIDE * faces):
        raise InputError(
            f"the crystal's cell of {shown} Å is too flat: opposite faces must be {SHORTEST_SIDE:g} Å apart or more; "
            "check its angles"
        )
    if volume < SMALLEST_VOLUME * atoms:
        raise InputError(
            f"the crystal's cell of {volume:.4g} Å³ has {atoms} atoms, which leaves less than {SMALLEST_VOLUME:g} Å³ "
            "for each: check its sides"
        )


def occupancies(atoms: ase.Atoms) -> Floats:
    """Returns each atom's fraction of its site, `(n,)`; 1 where none is given."""
    return np.asarray(atoms.arrays.get("occupancy", np.ones(len(atoms))), dtype=np.float64)


def _longest_contact(atoms: ase.Atoms) -> float:
    """Returns the largest distance of two atoms that is too short for a bond, Å."""
    return 2 * SHORTEST_CONTACT * float(covalent_radii[atoms.numbers.clip(0, MAX_ELEMENT)].max())


def _contacts(atoms: ase.Atoms, pairs: Integers, distances: Floats) -> Iterator[str]:
    """Yields a warning of whole atoms that are nearer to each other than any bond is long."""
    radii, occupancy = covalent_radii[atoms.numbers], occupancies(atoms)
    first, second = pairs[:, 0], pairs[:, 1]
    short = (distances < SHORTEST_CONTACT * (radii[first] + radii[second])) & (
        occupancy[first] + occupancy[second] > 1 + ROUNDING
    )
    if short.any():
        nearest = int(np.argmin(np.where(short, distances, np.inf)))
        one, other = (_label(atoms, int(index)) for index in pairs[nearest])
        yield (
            f"{one} and {other} are {distances[nearest]:.2f} Å apart, less than half the sum of their covalent radii; "
            f"so near are {len(np.unique(pairs[short]))} atoms in all: check positions and cell"
        )


def _outside(atoms: ase.Atoms, scaled: Floats, sides: Floats) -> Iterator[str]:
    """Yields a warning of atoms outside the cell, which wrap into it."""
    beyond = (np.maximum(-scaled, scaled - 1) * sides).max(axis=1)
    outside = int(np.count_nonzero(beyond > FAR_OUTSIDE))
    if outside:
        farthest = int(np.argmax(beyond))
        yield (
            f"{plural(outside, 'atom')} of {len(atoms)} lie outside the cell, {_label(atoms, farthest)} by "
            f"{beyond[farthest]:.1f} Å: they wrap into it; check positions and cell"
        )


def _check_sites(atoms: ase.Atoms, close_pairs: Integers, labels: Sequence[str] = ()) -> None:
    """Raises InputError for wrong elements, occupancies and overlaps; `close_pairs`, (m, 2), are within `TOO_CLOSE`."""
    unknown = np.flatnonzero((atoms.numbers < 1) | (atoms.numbers > MAX_ELEMENT))
    if len(unknown):
        raise InputError(
            f"{_label(atoms, unknown[0])}: atomic number {atoms.numbers[unknown[0]]} is not in 1 to {MAX_ELEMENT}"
        )
    occupancy = occupancies(atoms)
    wrong = np.flatnonzero(~((occupancy > 0) & (occupancy <= 1 + ROUNDING)))
    if len(wrong):
        raise InputError(f"{_label(atoms, wrong[0])}: occupancy {occupancy[wrong[0]]:g} must be above 0 and at most 1")
    site = clusters(len(atoms), close_pairs)
    total = np.bincount(site, occupancy)
    crowded = np.flatnonzero((total > 1 + ROUNDING) & (np.bincount(site) > 1))
    if len(crowded):
        first, second = np.flatnonzero(site == crowded[0])[:2]
        raise InputError(
            f"{_label(atoms, first, labels)} and {_label(atoms, second, labels)} overlap: atoms within {TOO_CLOSE} Å "
            "of each other, also across the cell's faces, must share a site, with occupancies that sum to at most 1, "
            f"not {total[crowded[0]]:g}: remove one of them, set their occupancies, or make the cell a whole number of "
            "the crystal's periods"
        )


def pairs_within(atoms: ase.Atoms, distance_angstrom: float) -> tuple[Integers, Floats]:
    """Finds the atoms that are near to each other in a cell of any shape.

    Args:
        atoms: The atoms, in a cell that is periodic along a and b, and along c unless `atoms.pbc` says otherwise.

    Returns:
        Pairs of atoms, `(m, 2)`, and their distances, `(m,)`, Å. A pair is there once for each image that is near.
    """
    cell = np.asarray(atoms.cell, dtype=np.float64)
    inverse = np.linalg.inv(cell)
    scaled = atoms.positions @ inverse
    periodic = [0, 1, 2] if atoms.pbc[2] else [0, 1]
    scaled[:, periodic] -= np.floor(scaled[:, periodic])
    margin = distance_angstrom * np.linalg.norm(inverse, axis=0) + 1e-9  # of the distance of opposite faces
    images, source = scaled, np.arange(len(atoms))
    for axis in periodic:  # images of the images along the axes before
        shifts = range(-int(np.ceil(margin[axis])), int(np.ceil(margin[axis])) + 1)
        unit = np.eye(3)[axis]
        copies = [images + shift * unit for shift in sorted(shifts, key=abs)]  # the atoms themselves come first
        near = [(copy[:, axis] >= -margin[axis]) & (copy[:, axis] <= 1 + margin[axis]) for copy in copies]
        source = np.concatenate([source[chosen] for chosen in near])
        images = np.concatenate([copy[chosen] for copy, chosen in zip(copies, near, strict=True)])
    points = images @ cell
    # Atoms are evenly distributed, so an unbalanced tree is as good, and is built and searched faster.
    tree = KDTree(points, balanced_tree=False, compact_nodes=False)
    pairs = tree.query_pairs(distance_angstrom, output_type="ndarray")
    pairs = pairs[pairs.min(axis=1) < len(atoms)]
    distances = np.linalg.norm(points[pairs[:, 0]] - points[pairs[:, 1]], axis=1)
    return source[pairs], distances


def clusters(n: int, pairs: Integers) -> Integers:
    """Returns the cluster of each of n atoms that `pairs` connect, (n,), numbered in the order of their first atoms."""
    graph = coo_array((np.ones(len(pairs), dtype=bool), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    return connected_components(graph, directed=False)[1].astype(np.int64)


def box_lengths(atoms: ase.Atoms) -> Floats:
    """The cell's sides (x, y, z), Å. Raises InputError unless they are right-angled along the axes."""
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
