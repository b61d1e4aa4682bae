"""Atoms of the cell from the sites of a file and its symmetry operations.

Coordinates of files are rounded. A site whose images differ by no more than the rounding lies on a
special position, and is moved onto it if they differ by more than `SAME_PLACE`. gemmi's own
expansion takes all images within 0.4 Å for one, and so would merge the halves of split sites.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import ase
import numpy as np
from pymatgen.core import Composition, Element
from pymatgen.core.sites import Site as SortedSite
from scipy.spatial import KDTree

from namsa.base.arrays import Floats, Integers
from namsa.base.errors import InputError
from namsa.base.text import shorten
from namsa.crystals.sites import MOST_ATOMS, ROUNDING, TENSOR
from namsa.crystals.space_groups import Symmetry

SAME_PLACE = 1e-4  # of a fractional coordinate: nearer images of a site are one atom
LARGEST_ROUNDING = 0.005  # of a fractional coordinate
MOST_COMPARISONS = 10**8  # of images of sites with each other


@dataclass(frozen=True)
class Site:
    """An atom site of a file."""

    label: str  # its name in the file
    number: int  # its atomic number
    place: Floats  # fractional coordinates, `(3,)`
    # how far each coordinate can be from the exact one because of its digits, `(3,)`
    rounding: Floats
    occupancy: float = 1.0  # the atom's share of the site
    occupancy_rounding: float = 0.0  # how far the share can be from the exact one
    # the mean square displacement along one axis, Å²; not a number if it is unknown
    u_angstrom2: float = np.nan
    # ⟨u_i u_j⟩ along x, y, z, `(3, 3)`, Å²; `None` if it is unknown
    tensor_angstrom2: Floats | None = None
    is_proton: bool = False  # whether it is hydrogen with a positive charge


@dataclass(frozen=True)
class Expanded:
    """The atoms of a cell."""

    # The atoms with their occupancies and amplitudes, if there are any; those of a site share a
    # position.
    atoms: ase.Atoms
    labels: tuple[str, ...]  # the site of each atom
    rounding: Floats  # how far each occupancy can be from the exact one, `(n,)`
    notes: tuple[str, ...]  # what was left out or changed


def expand(sites: Sequence[Site], symmetry: Symmetry, cell: Floats) -> Expanded:
    """Applies symmetry operations to sites of a cell.

    Args:
        cell: Lattice vectors, rows of `(3, 3)`, Å.

    Returns:
        The atoms, sorted by electronegativity, then in the order of sites and operations.

    Raises:
        InputError: If there are too many atoms, or the atoms on a place have occupancies above 1.
    """
    if len(sites) * len(symmetry.rotations) ** 2 > MOST_COMPARISONS:
        raise InputError(
            f"{len(sites)} atom sites × {len(symmetry.rotations)} symmetry operations are too "
            "many: give all atoms of the cell, with the space group P 1"
        )
    notes: list[str] = []
    orbits: list[Floats] = []
    total = 0
    for site in sites:
        orbits.append(_orbit(site, symmetry, notes))
        total += len(orbits[-1])
        if total > MOST_ATOMS:
            raise InputError(
                f"{len(symmetry.rotations)} symmetry operations make more than {MOST_ATOMS} atoms "
                f"of {len(sites)} sites; give a cell of 1 to {MOST_ATOMS} atoms"
            )
    places = {}
    for head, group in _places(sites, orbits, notes):
        places[head] = _settle([sites[member] for member in group], notes)
    rank = _ranks(list(places.values()))
    images: list[SiteImage] = []
    for head in sorted(places, key=lambda head: rank[_shares(places[head])]):
        for place in orbits[head]:
            images.extend(SiteImage(site, place) for site in places[head])
    labels = []
    roundings = []
    for image in images:
        labels.append(image.site.label)
        roundings.append(image.site.occupancy_rounding)
    atoms = _atoms(images, symmetry, cell)
    return Expanded(atoms, tuple(labels), np.array(roundings), tuple(notes))


class SiteImage(NamedTuple):
    """An atom of the cell: a site of the file at one of its places."""

    site: Site
    place: Floats  # fractional coordinates, `(3,)`


def _atoms(images: Sequence[SiteImage], symmetry: Symmetry, cell: Floats) -> ase.Atoms:
    """Returns the atoms of a cell, with occupancies and amplitudes if there are any."""
    count = len(images)
    numbers = np.empty(count, np.int64)
    places = np.empty((count, 3))
    occupancies = np.empty(count)
    mean_squares = np.empty(count)
    tensors = np.empty((count, 3, 3))
    has_tensors = False
    for index, (site, place) in enumerate(images):
        numbers[index] = site.number
        places[index] = place
        occupancies[index] = site.occupancy
        mean_squares[index] = site.u_angstrom2
        tensors[index] = _tensor(site, place, symmetry, cell)
        has_tensors |= site.tensor_angstrom2 is not None
    atoms = ase.Atoms(numbers=numbers, positions=places @ cell, cell=cell, pbc=True)
    if occupancies.min() < 1:
        atoms.set_array("occupancy", occupancies)
    if not np.isnan(mean_squares).all():
        atoms.set_array("rms_displacement_angstrom", np.sqrt(mean_squares))
    if has_tensors:
        atoms.set_array(TENSOR, tensors)
    return atoms


def _tensor(site: Site, place: Floats, symmetry: Symmetry, cell: Floats) -> Floats:
    """Returns the tensor of a site's image at a place; not numbers if it is unknown."""
    if site.tensor_angstrom2 is None:
        return np.full((3, 3), np.nan)
    offsets = symmetry.rotations @ site.place + symmetry.translations - place
    rotation = symmetry.rotations[np.argmin(abs(offsets - np.round(offsets)).max(axis=1))]
    turn = np.linalg.inv(cell) @ rotation.T @ cell  # of row vectors along x, y, z
    return np.asarray(turn.T @ site.tensor_angstrom2 @ turn)


def _orbit(site: Site, symmetry: Symmetry, notes: list[str]) -> Floats:
    """Returns the fractional coordinates of a site's images in the cell, `(n, 3)`.

    They are in the order of the operations.
    """
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
            f"atom site {shorten(site.label, 20)} is moved to ({shown}), its special position "
            "within its digits"
        )
    images = images - np.floor(images)
    offsets = images[:, None] - images
    same = (abs(offsets - np.round(offsets)) < SAME_PLACE).all(axis=-1)
    return images[same.argmax(axis=1) == np.arange(len(images))]


def _places(
    sites: Sequence[Site], orbits: Sequence[Floats], notes: list[str]
) -> list[tuple[int, list[int]]]:
    """Returns the first site of each place, and all sites of it.

    Sites that are listed twice count once.
    """
    near = _near_sites(sites, orbits)
    head = np.arange(len(sites))  # the first site of the place of each; -1 of those left out
    for first, second in near.at_one_place:
        if head[second] == second and head[first] == first:
            head[second] = first
    for first, second in near.within_digits:
        is_listed_twice = _alike(sites[first], sites[second])
        if is_listed_twice and head[second] == second and head[first] == first:
            head[second] = -1
            notes.append(
                f"atom sites {sites[first].label} and {sites[second].label} are the same within "
                "their digits: one is taken"
            )
    members: dict[int, list[int]] = {}
    for index, first in enumerate(head.tolist()):
        members.setdefault(first, []).append(index)
    return [(first, group) for first, group in members.items() if first >= 0]


class NearSites(NamedTuple):
    """Pairs of sites that have images near to each other, each sorted."""

    at_one_place: list[tuple[int, int]]
    within_digits: list[tuple[int, int]]


def _near_sites(sites: Sequence[Site], orbits: Sequence[Floats]) -> NearSites:
    """Returns the pairs of sites whose images are at one place, also within their digits."""
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
    return NearSites(
        _distinct(links[(offsets < SAME_PLACE).all(axis=1)]),
        _distinct(links[(offsets <= bound + 1e-9).all(axis=1)]),
    )


def _distinct(links: Integers) -> list[tuple[int, int]]:
    """Returns the different rows of pairs, `(m, 2)`, sorted."""
    return sorted({(first, second) for first, second in links.tolist()})


def _alike(one: Site, other: Site) -> bool:
    """Whether two sites are one that is listed twice: both cannot be on one place."""
    same = one.number == other.number and one.occupancy == other.occupancy
    return same and 2 * one.occupancy > 1 + ROUNDING


def _settle(group: Sequence[Site], notes: list[str]) -> list[Site]:
    """Returns the elements on one place, with their shares.

    Raises:
        InputError: If they sum to more than 1.
    """
    group = _within_one_place(group, notes)
    total = max(_occupancy(group), 1.0)  # the digits may leave a little more than 1
    elements = {site.number for site in group}
    if elements >= {1, 8}:
        _check_hydrogens_of_oxygen(group, notes)
    merged: dict[int, Site] = {}
    for site in group:  # by element: Fe2+ and Fe3+ scatter alike
        scaled = replace(site, occupancy=site.occupancy / total)
        earlier = merged.get(site.number)
        merged[site.number] = scaled if earlier is None else _merged(earlier, scaled)
    return list(merged.values())


def _occupancy(group: Sequence[Site]) -> float:
    """Returns the sum of the sites' occupancies."""
    return sum(site.occupancy for site in group)


def _within_one_place(group: Sequence[Site], notes: list[str]) -> Sequence[Site]:
    """Returns the sites of a place, without those that are listed twice if they are too many.

    Raises:
        InputError: If their occupancies sum to more than 1.
    """
    allowed = 1 + ROUNDING + sum(site.occupancy_rounding for site in group)
    if _occupancy(group) <= allowed:
        return group
    distinct = _listed_once(group)
    names = ", ".join(shorten(site.label, 20) for site in group[:8])
    total = _occupancy(distinct)
    if total > allowed:
        raise InputError(
            f"atom sites {names} share one place with an occupancy {total:g} in all: remove one of "
            "them, or set occupancies that sum to at most 1"
        )
    notes.append(f"atom sites {names} are on one place more than once: each element is taken once")
    return distinct


def _check_hydrogens_of_oxygen(group: Sequence[Site], notes: list[str]) -> None:
    """Adds a note of a site that oxygen and hydrogen share, as in oxyhydrides.

    Raises:
        InputError: If the hydrogen has a positive charge: it belongs to a hydroxyl group or to
            water, and is about 1 Å from the oxygen.
    """
    for site in group:
        if site.is_proton:
            raise InputError(
                f"atom site {shorten(site.label)}: positive hydrogen on an oxygen's site: "
                "give its own position"
            )
    shares = ", ".join(f"{shorten(site.label, 20)} {site.occupancy:g}" for site in group)
    notes.append(
        f"oxygen and hydrogen share a site ({shares}), as in an oxyhydride; hydrogen of a hydroxyl "
        "group needs its own position"
    )


def _listed_once(group: Sequence[Site]) -> list[Site]:
    """Returns the first of the sites with one element and one occupancy, from the last on."""
    distinct: dict[tuple[int, float], Site] = {}
    for site in reversed(group):
        distinct[site.number, site.occupancy] = site
    return list(reversed(distinct.values()))


def _merged(one: Site, other: Site) -> Site:
    """Returns two sites of an element on one place as one."""
    return replace(
        one,
        occupancy=one.occupancy + other.occupancy,
        occupancy_rounding=one.occupancy_rounding + other.occupancy_rounding,
        u_angstrom2=one.u_angstrom2 if np.isnan(other.u_angstrom2) else other.u_angstrom2,
    )


# that is sorted by: a composition drops what is below 1e-8, and a site of nothing has no order
LEAST_SHARE = 1e-6


def _shares(group: Sequence[Site]) -> tuple[tuple[int, float], ...]:
    return tuple((site.number, site.occupancy) for site in group)


def _ranks(places: Sequence[Sequence[Site]]) -> dict[tuple[tuple[int, float], ...], int]:
    """Returns the order of what is on places.

    It is that of electronegativity, as pymatgen sorts the sites of a structure.
    """
    compositions = {}
    for group in places:
        amounts = {}
        for site in group:
            amounts[Element.from_Z(site.number)] = max(site.occupancy, LEAST_SHARE)
        compositions[_shares(group)] = Composition(amounts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # noble gases have no electronegativity to sort by
        by_amount = sorted(compositions, key=lambda shares: compositions[shares])
        ordered = sorted(by_amount, key=lambda shares: SortedSite(compositions[shares], [0, 0, 0]))
    return {shares: index for index, shares in enumerate(ordered)}
