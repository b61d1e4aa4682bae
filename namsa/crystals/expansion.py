"""Atoms of the cell from the sites of a file and its symmetry operations.

Coordinates of files are rounded. A site whose images differ by no more than the rounding lies on a special position,
and is moved onto it if they differ by more than `SAME_PLACE`.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import ase
import numpy as np
from pymatgen.core import Composition, Element
from pymatgen.core.sites import Site as SortedSite
from scipy.spatial import KDTree

from namsa.arrays import Floats
from namsa.crystals.sites import MOST_ATOMS, ROUNDING, TENSOR
from namsa.crystals.space_groups import Symmetry
from namsa.errors import InputError
from namsa.text import shorten

SAME_PLACE = 1e-4  # of a fractional coordinate: nearer images of a site are one atom
LARGEST_ROUNDING = 0.005  # of a fractional coordinate
MOST_COMPARISONS = 10**8  # of images of sites with each other


@dataclass(frozen=True)
class Site:
    """An atom site of a file."""

    label: str  # its name in the file
    number: int  # its atomic number
    place: Floats  # fractional coordinates, `(3,)`
    rounding: Floats  # how far each coordinate can be from the exact one because of its digits, `(3,)`
    occupancy: float = 1.0  # the atom's share of the site
    occupancy_rounding: float = 0.0  # how far the share can be from the exact one
    u_angstrom2: float = np.nan  # the mean square displacement along one axis, Å²; not a number if it is unknown
    tensor_angstrom2: Floats | None = None  # ⟨u_i u_j⟩ along x, y, z, `(3, 3)`, Å²; `None` if it is unknown


@dataclass(frozen=True)
class Expanded:
    """The atoms of a cell."""

    # The atoms with their occupancies and amplitudes, if there are any; those of a site share a position.
    atoms: ase.Atoms
    labels: tuple[str, ...]  # the site of each atom
    rounding: Floats  # how far each occupancy can be from the exact one, `(n,)`
    notes: tuple[str, ...]  # what was left out or changed


def expand(sites: Sequence[Site], symmetry: Symmetry, cell: Floats) -> Expanded:
    """Applies symmetry operations to sites of a cell, whose lattice vectors are the rows of `(3, 3)`, Å.

    Returns:
        The atoms, sorted by electronegativity, then in the order of sites and operations.

    Raises:
        InputError: If there are too many atoms, or the atoms on a place have occupancies above 1.
    """
    if len(sites) * len(symmetry.rotations) ** 2 > MOST_COMPARISONS:
        raise InputError(
            f"{len(sites)} atom sites × {len(symmetry.rotations)} symmetry operations are too many: give all atoms of "
            "the cell, with the space group P 1"
        )
    notes: list[str] = []
    orbits: list[Floats] = []
    total = 0
    for site in sites:
        orbits.append(_orbit(site, symmetry, notes))
        total += len(orbits[-1])
        if total > MOST_ATOMS:
            raise InputError(
                f"{len(symmetry.rotations)} symmetry operations make more than {MOST_ATOMS} atoms of {len(sites)} "
                f"sites; give a cell of 1 to {MOST_ATOMS} atoms"
            )
    places = {
        head: _settle([sites[member] for member in group], notes) for head, group in _places(sites, orbits, notes)
    }
    rank = _ranks(list(places.values()))
    members: list[Site] = []
    positions: list[Floats] = []
    for head in sorted(places, key=lambda head: rank[_shares(places[head])]):
        for place in orbits[head]:
            members += places[head]
            positions += [place] * len(places[head])
    atoms = ase.Atoms(
        numbers=[each.number for each in members], positions=np.array(positions) @ cell, cell=cell, pbc=True
    )
    shares = np.array([each.occupancy for each in members])
    if shares.min() < 1:
        atoms.set_array("occupancy", shares)
    mean_squares = np.array([each.u_angstrom2 for each in members])
    if not np.isnan(mean_squares).all():
        atoms.set_array("rms_displacement_angstrom", np.sqrt(mean_squares))
    if any(each.tensor_angstrom2 is not None for each in members):
        tensors = [_tensor(each, place, symmetry, cell) for each, place in zip(members, positions, strict=True)]
        atoms.set_array(TENSOR, np.array(tensors))
    roundings = np.array([each.occupancy_rounding for each in members])
    return Expanded(atoms, tuple(each.label for each in members), roundings, tuple(notes))


def _tensor(site: Site, place: Floats, symmetry: Symmetry, cell: Floats) -> Floats:
    """Returns the tensor of a site's image at a place; not numbers if it is unknown."""
    if site.tensor_angstrom2 is None:
        return np.full((3, 3), np.nan)
    offsets = symmetry.rotations @ site.place + symmetry.translations - place
    rotation = symmetry.rotations[np.argmin(abs(offsets - np.round(offsets)).max(axis=1))]
    turn = np.linalg.inv(cell) @ rotation.T @ cell  # of row vectors along x, y, z
    return np.asarray(turn.T @ site.tensor_angstrom2 @ turn)


def _orbit(site: Site, symmetry: Symmetry, notes: list[str]) -> Floats:
    """Returns the fractional coordinates of a site's images in the cell, `(n, 3)`, in the order of the operations."""
    place = site.place
    if len(symmetry.rotations) == 1:
        return (place - np.floor(place))[None]
    images = symmetry.rotations @ place + symmetry.translations
    offsets = images - place
    shifts = np.round(offsets)
    bound = np.maximum(abs(symmetry.rotations) @ site.rounding + site.rounding, SAME_PLACE) + 1e-9
    fixed = (abs(offsets - shifts) <= bound).all(axis=1)
    if (abs(offsets - shifts)[fixed] >= SAME_PLACE).any():
        place = (images - shifts)[fixed].mean(axis=0)
        images = symmetry.rotations @ place + symmetry.translations
        shown = ", ".join(f"{value:.5f}" for value in place)
        notes.append(
            f"atom site {shorten(site.label, 20)} is moved to ({shown}), its special position within its digits"
        )
    images = images - np.floor(images)
    offsets = images[:, None] - images
    same = (abs(offsets - np.round(offsets)) < SAME_PLACE).all(axis=-1)
    return images[same.argmax(axis=1) == np.arange(len(images))]


def _places(sites: Sequence[Site], orbits: Sequence[Floats], notes: list[str]) -> Iterator[tuple[int, list[int]]]:
    """Yields the first site of each place, and all sites of it. Sites that are listed twice count once."""
    owner = np.repeat(np.arange(len(sites)), [len(orbit) for orbit in orbits])
    images: Floats = np.concatenate(orbits)
    roundings = np.array([site.rounding for site in sites])
    tree = KDTree(np.where(images < 1, images, 0.0), boxsize=np.ones(3))
    pairs = tree.query_pairs(max(2 * roundings.max(), SAME_PLACE), p=np.inf, output_type="ndarray")
    pairs = pairs[owner[pairs[:, 0]] != owner[pairs[:, 1]]]
    offsets = images[pairs[:, 0]] - images[pairs[:, 1]]
    offsets = abs(offsets - np.round(offsets))
    links = np.sort(owner[pairs], axis=1)
    bound = roundings[links[:, 0]] + roundings[links[:, 1]]
    head = np.arange(len(sites))
    for first, second in sorted(set(map(tuple, links[(offsets < SAME_PLACE).all(axis=1)].tolist()))):
        if head[second] == second and head[first] == first:
            head[second] = first
    for first, second in sorted(set(map(tuple, links[(offsets <= bound + 1e-9).all(axis=1)].tolist()))):
        one, other = sites[first], sites[second]
        alike = (one.number, one.occupancy) == (other.number, other.occupancy) and 2 * one.occupancy > 1 + ROUNDING
        if alike and head[second] == second and head[first] == first:
            head[second] = -1
            notes.append(f"atom sites {one.label} and {other.label} are the same within their digits: one is taken")
    members: dict[int, list[int]] = {}
    for index, first in enumerate(head.tolist()):
        members.setdefault(first, []).append(index)
    yield from ((first, group) for first, group in members.items() if first >= 0)


def _settle(group: Sequence[Site], notes: list[str]) -> list[Site]:
    """Returns the elements on one place, with their shares. Raises InputError if they sum to more than 1."""
    total = sum(site.occupancy for site in group)
    allowed = 1 + ROUNDING + sum(site.occupancy_rounding for site in group)
    if total > allowed:
        distinct = list({(site.number, site.occupancy): site for site in reversed(group)}.values())[::-1]
        names = ", ".join(shorten(site.label, 20) for site in group[:8])
        total = sum(site.occupancy for site in distinct)
        if total > allowed:
            raise InputError(
                f"atom sites {names} share one place with an occupancy {total:g} in all: remove one of them, or set "
                "occupancies that sum to at most 1"
            )
        notes.append(f"atom sites {names} are on one place more than once: each element is taken once")
        group = distinct
    if {site.number for site in group} == {1, 8}:
        raise InputError(f"atom site {shorten(group[0].label)}: hydrogen on an oxygen's site; give its own position")
    merged: dict[int, Site] = {}
    for site in group:  # by element: Fe2+ and Fe3+ scatter alike
        share = site.occupancy / max(total, 1.0)
        if earlier := merged.get(site.number):
            u = earlier.u_angstrom2 if np.isnan(site.u_angstrom2) else site.u_angstrom2
            rounding = earlier.occupancy_rounding + site.occupancy_rounding
            merged[site.number] = replace(
                earlier, occupancy=earlier.occupancy + share, occupancy_rounding=rounding, u_angstrom2=u
            )
        else:
            merged[site.number] = replace(site, occupancy=share)
    return list(merged.values())


LEAST_SHARE = 1e-6  # that is sorted by: a composition drops what is below 1e-8, and a site of nothing has no order


def _shares(group: Sequence[Site]) -> tuple[tuple[int, float], ...]:
    return tuple((site.number, site.occupancy) for site in group)


def _ranks(places: Sequence[Sequence[Site]]) -> dict[tuple[tuple[int, float], ...], int]:
    """Returns the order of what is on places: by electronegativity, as pymatgen sorts the sites of a structure."""
    distinct = {
        shares: Composition({Element.from_Z(number): max(share, LEAST_SHARE) for number, share in shares})
        for shares in dict.fromkeys(map(_shares, places))
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # noble gases have no electronegativity to sort by
        by_amount = sorted(distinct, key=distinct.__getitem__)
        ordered = sorted(by_amount, key=lambda shares: SortedSite(distinct[shares], [0, 0, 0]))
    return {shares: index for index, shares in enumerate(ordered)}
