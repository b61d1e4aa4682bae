"""Hypothetical crystals: known ones in which similar ions or atoms replace some. They need not exist.

An ion may replace another under three conditions:

- Both have the same charge, so that the crystal stays neutral.
- Their radii (Shannon, Acta Cryst. A32, 751 (1976)) differ by at most 15% of their mean, and their electronegativities
  by at most 0.5, after the rules of Goldschmidt, Hume-Rothery and Ringwood.
- Known crystals show such pairs, and no less often than by chance (Hautier et al., Inorg. Chem. 50, 656 (2011), whose
  statistics pymatgen contains).

In crystals without known ions, such as alloys, an atom may replace another of the same valence: of the same group for
s and p elements, of the same or the next group for d elements, or both rare earths. The limits of radius, here the
covalent one, and of electronegativity are the same.

The new species takes all of the old one's sites, or shares them in a solid solution. The lattice is scaled by the sum
of the radii (Vegard's law), and the atoms keep their fractional coordinates. No bond may then be longer or shorter, in
comparison with the known crystal, than the radii of its ions or atoms ask for by more than `MAX_STRAIN`.
"""

import hashlib
import itertools
import math
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import ase
import numpy as np
import numpy.typing as npt
from ase.data import atomic_numbers, covalent_radii
from ase.neighborlist import neighbor_list
from pymatgen.core import Composition

from namsa.config.materials import Substitution
from namsa.crystals.builtin import SHORTEST_BOND
from namsa.crystals.material import Material
from namsa.crystals.similar_species import Constituent, Similar, similar_atoms, similar_ions

VERSION = 2  # of the rules: changes when the same configuration gives other crystals
MAX_FORMULA = 24  # atoms; for larger formulas, finding the oxidation states takes seconds
MAX_STRAIN = 0.1
CONTACT = 1.3  # times the sum of the covalent radii: the distances that are checked
FROM = "-from-"  # between the formula and the prototype's name

Counts = tuple[tuple[str, int], ...]  # smallest whole numbers by element, sorted


class Replacement(NamedTuple):
    """A species that takes sites of another."""

    old: Constituent  # the species of the known crystal
    new: Constituent  # the similar species
    share: float  # the part of the sites that it takes, in (0, 1]


class Derivation(NamedTuple):
    """How a hypothetical crystal follows from a known one."""

    prototype: Material  # the known crystal
    replacements: tuple[Replacement, ...]  # the species that are replaced
    counts: Counts  # the new formula
    lattice_scale: float  # new over old lattice parameter

    @property
    def mixed_sites(self) -> int:
        """The number of species that share their sites with another."""
        return sum(each.share < 1 for each in self.replacements)

    @property
    def digest(self) -> bytes:
        """A number that puts derivations into a random order that is always the same."""
        return hashlib.sha256(f"{self.prototype.name} {self.counts}".encode()).digest()


def substitute_ions(
    config: Substitution, prototypes: Sequence[Material], max_atomic_number: int, names: Collection[str] | None = None
) -> list[Material]:
    """Derives hypothetical crystals from known ones by replacing ions or atoms with similar ones.

    Only ordered crystals are prototypes, and unless `config.alloys` only those whose oxidation states follow from the
    formula. All prototypes give equally many crystals, as long as they have some: first those without mixed sites, then
    in the order of a hash. No two have the same formula and space group, and none has those of a prototype.

    Args:
        names: Names of crystals that an earlier call has given. Only these are derived, without any of the others.

    Returns:
        At most `config.limit` crystals.
    """
    return substitute_few(config, prototypes, max_atomic_number, None, names)[0]


def substitute_few(
    config: Substitution,
    prototypes: Sequence[Material],
    max_atomic_number: int,
    few: int | None,
    names: Collection[str] | None = None,
) -> tuple[list[Material], int]:
    """Returns `few` of the crystals of `substitute_ions`, evenly spread, and the number of all. `None`: all of them.

    To make a crystal takes ten times as long as to find that there is one.
    """
    ions, atoms = similar_ions(max_atomic_number), similar_atoms(max_atomic_number)

    def derivations(prototype: Material) -> Iterator[Derivation]:
        if species := _ions(prototype, ions):
            yield from _derivations(config, prototype, species, ions)
        elif config.alloys and (species := _atoms(prototype, atoms)):
            yield from _derivations(config, prototype, species, atoms)

    if names is not None:
        named = _named(names, {prototype.name: prototype for prototype in prototypes}, derivations)
        return named, len(named)
    chosen: dict[tuple[Counts, str], Derivation | None] = {
        (_counts(Composition(material.formula)), material.space_group): None for material in prototypes
    }
    for prototype in prototypes:
        for derivation in derivations(prototype):
            chosen.setdefault((derivation.counts, prototype.space_group), derivation)
    by_prototype: dict[str, list[Derivation]] = defaultdict(list)
    for found in chosen.values():
        if found:
            by_prototype[found.prototype.name].append(found)
    ordered = [
        (rank, derivation.digest, derivation)
        for group in by_prototype.values()
        for rank, derivation in enumerate(sorted(group, key=lambda each: (each.mixed_sites, each.digest)))
    ]
    ordered.sort(key=lambda each: each[:2])
    limited = [derivation for _, _, derivation in ordered[: config.limit]]
    number = min(few or len(limited), len(limited))
    spread = [limited[index * len(limited) // number] for index in range(number)]
    return [_crystal(derivation) for derivation in spread], len(limited)


def _named(
    names: Collection[str],
    prototypes: Mapping[str, Material],
    derivations: Callable[[Material], Iterator[Derivation]],
) -> list[Material]:
    """Derives the crystals of these names. Names that no prototype gives are left out."""
    elements_of: dict[str, dict[frozenset[str], set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in names:
        formula, _, prototype_name = name.partition(FROM)
        if prototype_name in prototypes:
            elements_of[prototype_name][frozenset(re.findall("[A-Z][a-z]?", formula))].add(name)
    found: dict[str, Material] = {}
    for prototype_name, by_elements in elements_of.items():
        for derivation in derivations(prototypes[prototype_name]):
            requested = by_elements.get(frozenset(symbol for symbol, _ in derivation.counts))
            # The first derivation of a formula is the one that a selection of all crystals takes.
            if requested and (name := _name(derivation)) in requested:
                found.setdefault(name, _crystal(derivation))
    return list(found.values())


def _derivations(
    config: Substitution, prototype: Material, species: Mapping[Constituent, int], similar: Similar
) -> Iterator[Derivation]:
    """Yields all plausible crystals that follow from a prototype, those with the fewest changes first."""
    present = {each.symbol for each in species}
    contacts = _contacts(prototype, species)
    shares = [step / config.mixing_steps for step in range(config.mixing_steps, 0, -1)]
    options = {
        old: [Replacement(old, new, share) for share in shares for new in similar[old] if new.symbol not in present]
        for old in species
    }
    radius_sum = sum(count * each.radius for each, count in species.items())
    for replaced in range(1, min(config.max_ions, len(species)) + 1):
        for chosen in itertools.combinations(species, replaced):
            for replacements in itertools.product(*(options[old] for old in chosen)):
                if len({each.new.symbol for each in replacements}) < replaced:
                    continue
                radii = {each: each.radius for each in species}
                for old, new, share in replacements:
                    radii[old] += share * (new.radius - old.radius)
                scale = sum(count * radii[each] for each, count in species.items()) / radius_sum
                if _distances_are_plausible(contacts, replacements, radii, scale):
                    counts = _new_counts(species, replacements, config.mixing_steps)
                    yield Derivation(prototype, replacements, counts, scale)


def _contacts(prototype: Material, species: Mapping[Constituent, int]) -> list[tuple[Constituent, Constituent, float]]:
    """Returns the pairs of species that touch each other and their shortest distances, Å."""
    by_number = {atomic_numbers[each.symbol]: each for each in species}
    atoms = prototype.atoms
    first, second, distances = neighbor_list("ijd", atoms, CONTACT * covalent_radii[atoms.numbers])
    shortest: dict[tuple[int, int], float] = {}
    pairs = np.sort(np.stack([atoms.numbers[first], atoms.numbers[second]], axis=1), axis=1).tolist()
    for (one, other), distance in zip(pairs, distances.tolist(), strict=True):
        shortest[one, other] = min(distance, shortest.get((one, other), math.inf))
    return [(by_number[one], by_number[other], distance) for (one, other), distance in sorted(shortest.items())]


def _distances_are_plausible(
    contacts: Sequence[tuple[Constituent, Constituent, float]],
    replacements: Sequence[Replacement],
    radii: Mapping[Constituent, float],
    scale: float,
) -> bool:
    """Whether no bond is strained by more than `MAX_STRAIN`, and no contact shorter than real bonds are."""
    bonding = {each.old: max(_covalent_radius(each.old), _covalent_radius(each.new)) for each in replacements}
    for one, other, distance in contacts:
        strain = scale * (one.radius + other.radius) / (radii[one] + radii[other]) - 1
        touching = sum(bonding.get(each) or _covalent_radius(each) for each in (one, other))
        bonded = one.charge * other.charge <= 0  # ions of opposite charge, or atoms
        if (bonded and abs(strain) > MAX_STRAIN) or scale * distance < SHORTEST_BOND * touching:
            return False
    return True


def _new_counts(species: Mapping[Constituent, int], replacements: Sequence[Replacement], steps: int) -> Counts:
    """Returns the formula after the replacements."""
    counts = {each.symbol: count * steps for each, count in species.items()}
    for old, new, share in replacements:
        moved = round(species[old] * steps * share)
        counts[new.symbol] = moved
        counts[old.symbol] -= moved
    return _smallest({symbol: count for symbol, count in counts.items() if count})


def _counts(composition: Composition) -> Counts:
    """Returns the formula of a crystal; of a mixed one, in units of a ten-thousandth."""
    amounts = composition.get_el_amt_dict()
    whole = all(float(amount).is_integer() for amount in amounts.values())
    return _smallest({symbol: round(amount * (1 if whole else 10_000)) for symbol, amount in amounts.items()})


def _smallest(counts: Mapping[str, int]) -> Counts:
    """Returns counts without a common factor, sorted by element."""
    factor = math.gcd(*counts.values())
    return tuple(sorted((symbol, count // factor) for symbol, count in counts.items()))


def _ions(prototype: Material, similar: Similar) -> dict[Constituent, int]:
    """The number of each ion in the formula; empty if unknown or if the crystal is not ionic."""
    composition = Composition(prototype.formula)
    if "occupancy" in prototype.atoms.arrays or composition.num_atoms > MAX_FORMULA:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # noble gases have no electronegativity
        guesses = composition.oxi_state_guesses()
    charges = guesses[0] if guesses else {}
    known = {(ion.symbol, ion.charge): ion for ion in similar}
    ions = {known.get((symbol, charge)): round(composition[symbol]) for symbol, charge in charges.items()}
    return {ion: count for ion, count in ions.items() if ion} if all(ions) else {}


def _atoms(prototype: Material, similar: Similar) -> dict[Constituent, int]:
    """The number of each element in the formula; empty if the crystal is mixed."""
    if "occupancy" in prototype.atoms.arrays:
        return {}
    known = {atom.symbol: atom for atom in similar}
    amounts = Composition(prototype.formula).get_el_amt_dict()
    return {known[symbol]: round(amount) for symbol, amount in amounts.items()}


def _covalent_radius(species: Constituent) -> float:
    return float(covalent_radii[atomic_numbers[species.symbol]])


def _name(derivation: Derivation) -> str:
    """Returns the crystal's name: the formula without brackets, for file names, and the prototype's name."""
    return re.sub(r"\W", "_", _formula(derivation.counts)) + FROM + derivation.prototype.name


def _formula(counts: Counts) -> str:
    return Composition(dict(counts)).reduced_formula


def _crystal(derivation: Derivation) -> Material:
    """Returns the crystal. A mixed site is two atoms at one position."""
    prototype, scale = derivation.prototype, derivation.lattice_scale
    atoms = prototype.atoms.copy()
    shares = []
    for old, new, share in derivation.replacements:
        sites = np.flatnonzero(prototype.atoms.numbers == atomic_numbers[old.symbol])
        if share == 1:
            atoms.numbers[sites] = atomic_numbers[new.symbol]
        else:
            atoms = _mix(atoms, sites, atomic_numbers[new.symbol], share)
        shares.append(f"{new} for {old}" if share == 1 else f"{share:.0%} {new} for {old}")
    atoms.set_cell(atoms.cell * scale, scale_atoms=True)
    source = f"made up from {prototype.name} ({prototype.source}) with {', '.join(shares)}, lattice × {scale:.4f}"
    return Material(
        _name(derivation),
        _formula(derivation.counts),
        prototype.space_group,
        atoms,
        source,
        "substituted",
        prototype=prototype.name,
    )


def _mix(atoms: ase.Atoms, sites: npt.NDArray[np.int64], number: int, share: float) -> ase.Atoms:
    """Returns the crystal with another element on a part of the given sites."""
    occupancy = np.asarray(atoms.arrays.get("occupancy", np.ones(len(atoms))), dtype=np.float64).copy()
    occupancy[sites] = 1 - share
    added = atoms[sites]
    added.numbers[:] = number
    mixed = atoms + added
    mixed.set_array("occupancy", np.concatenate([occupancy, np.full(len(sites), share)]))
    return mixed
