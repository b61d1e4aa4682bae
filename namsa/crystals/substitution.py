"""Hypothetical crystals: known ones in which similar ions or atoms replace some.

They need not exist.

An ion may replace another under three conditions:

- Both have the same charge, so that the crystal stays neutral.
- Their radii (Shannon, Acta Cryst. A32, 751 (1976)) differ by at most 15% of their mean, and their
  electronegativities by at most 0.5, after the rules of Goldschmidt, Hume-Rothery and Ringwood.
- Known crystals show such pairs, and no less often than by chance (Hautier et al., Inorg. Chem. 50,
  656 (2011), whose statistics pymatgen contains).

In crystals without known ions, such as alloys, an atom may replace another of the same valence: of
the same group for s and p elements, of the same or the next group for d elements, or both rare
earths. The limits of radius, here the covalent one, and of electronegativity are the same.

The new species takes all of the old one's sites, or shares them in a solid solution. The lattice is
scaled by the sum of the radii (Vegard's law), and the atoms keep their fractional coordinates. No
bond may then be longer or shorter, in comparison with the known crystal, than the radii of its ions
or atoms ask for by more than `MAX_STRAIN`.
"""

import hashlib
import itertools
import math
import re
import warnings
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import ase
import numpy as np
import numpy.typing as npt
from ase.data import atomic_numbers, covalent_radii
from ase.neighborlist import neighbor_list
from pymatgen.core import Composition

from namsa.base.names import portable_path
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
    """Derivation of a hypothetical crystal from a known one."""

    prototype: Material  # the known crystal
    replacements: tuple[Replacement, ...]  # the species that are replaced
    counts: Counts  # the new formula
    lattice_scale: float  # new over old lattice parameter

    @property
    def mixed_sites(self) -> int:
        """The number of species that share their sites with another."""
        return sum(replacement.share < 1 for replacement in self.replacements)

    @property
    def digest(self) -> bytes:
        """A number that puts derivations into a random order that is always the same."""
        return hashlib.sha256(f"{self.prototype.name} {self.counts}".encode()).digest()


class Substituted(NamedTuple):
    """Crystals by substitution."""

    materials: list[Material]
    total: int  # of all that there are, of which these may be a few


def substitute_ions(
    config: Substitution,
    prototypes: Sequence[Material],
    max_atomic_number: int,
    names: Collection[str] | None = None,
    few: int | None = None,
) -> Substituted:
    """Derives hypothetical crystals from known ones by replacing ions or atoms with similar ones.

    Only ordered crystals are prototypes, and unless `config.alloys` only those whose oxidation
    states follow from the formula. All prototypes give equally many crystals, as long as they have
    some: first those without mixed sites, then in the order of a hash. No two have the same formula
    and space group, and none has those of a prototype.

    Args:
        config: The rules.
        prototypes: The known crystals.
        max_atomic_number: Of the elements that may replace others.
        names: Names of crystals that an earlier call has given. Only these are derived, without any
            of the others.
        few: Number of crystals that stand for all, evenly spread; `None` makes all. To make a
            crystal takes ten times as long as to find that there is one.

    Returns:
        At most `config.limit` crystals.
    """
    rules = _Rules(config, similar_ions(max_atomic_number), similar_atoms(max_atomic_number))
    if names is not None:
        named = _named(names, {prototype.name: prototype for prototype in prototypes}, rules)
        return Substituted(named, len(named))
    ordered = _in_order(_distinct(prototypes, rules))[: config.limit]
    count = min(few or len(ordered), len(ordered))
    spread = [ordered[index * len(ordered) // count] for index in range(count)]
    return Substituted([_crystal(derivation) for derivation in spread], len(ordered))


class _Rules(NamedTuple):
    """Pairs of species that may replace each other."""

    config: Substitution
    ions: Similar
    atoms: Similar

    def derivations(self, prototype: Material) -> Iterator[Derivation]:
        """Yields all plausible crystals that follow from a prototype."""
        ions = _ions(prototype, self.ions)
        if ions:
            yield from _derivations(self.config, prototype, ions, self.ions)
        elif self.config.alloys:
            atoms = _atoms(prototype, self.atoms)
            if atoms:
                yield from _derivations(self.config, prototype, atoms, self.atoms)


def _distinct(prototypes: Sequence[Material], rules: _Rules) -> list[Derivation]:
    """Returns the derivations of other formulas or space groups than those of all prototypes.

    Of several with the same ones, the first counts.
    """
    known = set()
    for prototype in prototypes:
        known.add((_counts(Composition(prototype.formula)), prototype.space_group))
    distinct = []
    for prototype in prototypes:
        for derivation in rules.derivations(prototype):
            key = (derivation.counts, prototype.space_group)
            if key not in known:
                known.add(key)
                distinct.append(derivation)
    return distinct


def _in_order(derivations: Sequence[Derivation]) -> list[Derivation]:
    """Returns derivations so that all prototypes give equally many, as long as they have some."""
    by_prototype: dict[str, list[Derivation]] = defaultdict(list)
    for derivation in derivations:
        by_prototype[derivation.prototype.name].append(derivation)
    ranked: list[tuple[int, bytes, Derivation]] = []
    for of_prototype in by_prototype.values():
        of_prototype.sort(key=lambda derivation: (derivation.mixed_sites, derivation.digest))
        for rank, derivation in enumerate(of_prototype):
            ranked.append((rank, derivation.digest, derivation))
    ranked.sort(key=lambda entry: entry[:2])
    return [derivation for _, _, derivation in ranked]


def _named(
    names: Collection[str], prototypes: Mapping[str, Material], rules: _Rules
) -> list[Material]:
    """Derives the crystals of these names. Names that no prototype gives are left out."""
    elements_of: dict[str, dict[frozenset[str], set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in names:
        formula, _, prototype_name = name.partition(FROM)
        if prototype_name in prototypes:
            elements = frozenset(re.findall("[A-Z][a-z]?", formula))
            elements_of[prototype_name][elements].add(name)
    crystals: dict[str, Material] = {}
    for prototype_name, by_elements in elements_of.items():
        for derivation in rules.derivations(prototypes[prototype_name]):
            elements = frozenset(symbol for symbol, _ in derivation.counts)
            if elements not in by_elements:
                continue
            name = _name(derivation)
            # The first derivation of a formula is the one that a selection of all crystals takes.
            if name in by_elements[elements] and name not in crystals:
                crystals[name] = _crystal(derivation)
    return list(crystals.values())


def _derivations(
    config: Substitution, prototype: Material, species: Mapping[Constituent, int], similar: Similar
) -> Iterator[Derivation]:
    """Yields all plausible crystals of a prototype, those with the fewest changes first.

    Args:
        species: Number of each species in the formula.
        similar: Those that may replace each.
    """
    contacts = _contacts(prototype, species)
    radius_sum = sum(count * ion.radius for ion, count in species.items())
    for replacements in _combinations(config, species, similar):
        radii = {ion: ion.radius for ion in species}
        for old, new, share in replacements:
            radii[old] += share * (new.radius - old.radius)
        scale = sum(count * radii[ion] for ion, count in species.items()) / radius_sum
        if _distances_are_plausible(contacts, replacements, radii, scale):
            counts = _new_counts(species, replacements, config.mixing_steps)
            yield Derivation(prototype, replacements, counts, scale)


def _combinations(
    config: Substitution, species: Mapping[Constituent, int], similar: Similar
) -> Iterator[tuple[Replacement, ...]]:
    """Yields all replacements of some species by different elements, the fewest first."""
    options = {old: _replacements(old, species, similar, config.mixing_steps) for old in species}
    for replaced in range(1, min(config.max_ions, len(species)) + 1):
        for chosen in itertools.combinations(species, replaced):
            for replacements in itertools.product(*(options[old] for old in chosen)):
                elements = {replacement.new.symbol for replacement in replacements}
                if len(elements) == replaced:
                    yield replacements


def _replacements(
    old: Constituent, species: Mapping[Constituent, int], similar: Similar, steps: int
) -> list[Replacement]:
    """Returns the replacements of one species by elements that the crystal does not have."""
    present = {ion.symbol for ion in species}
    replacements = []
    for step in range(steps, 0, -1):
        for new in similar[old]:
            if new.symbol not in present:
                replacements.append(Replacement(old, new, step / steps))
    return replacements


def _contacts(
    prototype: Material, species: Mapping[Constituent, int]
) -> list[tuple[Constituent, Constituent, float]]:
    """Returns the pairs of species that touch each other and their shortest distances, Å."""
    by_number = {atomic_numbers[ion.symbol]: ion for ion in species}
    atoms = prototype.atoms
    cutoffs = CONTACT * covalent_radii[atoms.numbers]
    indices, neighbours, distances = neighbor_list("ijd", atoms, cutoffs)
    shortest: dict[tuple[int, int], float] = {}
    numbers = np.sort(np.stack([atoms.numbers[indices], atoms.numbers[neighbours]], axis=1), axis=1)
    for (low, high), distance in zip(numbers.tolist(), distances.tolist(), strict=True):
        shortest[low, high] = min(distance, shortest.get((low, high), math.inf))
    contacts = []
    for (low, high), distance in sorted(shortest.items()):
        contacts.append((by_number[low], by_number[high], distance))
    return contacts


def _distances_are_plausible(
    contacts: Sequence[tuple[Constituent, Constituent, float]],
    replacements: Sequence[Replacement],
    radii: Mapping[Constituent, float],
    scale: float,
) -> bool:
    """Whether no bond is strained by more than `MAX_STRAIN`, and no contact is shorter than bonds.

    Args:
        contacts: Pairs of species of the known crystal, and their distances.
        radii: New radius of each of its species.
        scale: New over old lattice parameter.
    """
    bonding_radii = {old: _covalent_radius(old) for old in radii}
    for old, new, _ in replacements:
        bonding_radii[old] = max(_covalent_radius(old), _covalent_radius(new))
    for one, other, distance in contacts:
        strain = scale * (one.radius + other.radius) / (radii[one] + radii[other]) - 1
        is_bond = one.charge * other.charge <= 0  # ions of opposite charge, or atoms
        if is_bond and abs(strain) > MAX_STRAIN:
            return False
        if scale * distance < SHORTEST_BOND * (bonding_radii[one] + bonding_radii[other]):
            return False
    return True


def _new_counts(
    species: Mapping[Constituent, int], replacements: Sequence[Replacement], steps: int
) -> Counts:
    """Returns the formula after the replacements."""
    counts = {ion.symbol: count * steps for ion, count in species.items()}
    for old, new, share in replacements:
        moved = round(species[old] * steps * share)
        counts[new.symbol] = moved
        counts[old.symbol] -= moved
    return _smallest({symbol: count for symbol, count in counts.items() if count})


def _counts(composition: Composition) -> Counts:
    """Returns the formula of a crystal; of a mixed one, in units of a ten-thousandth."""
    amounts = composition.get_el_amt_dict()
    is_whole = all(float(amount).is_integer() for amount in amounts.values())
    unit = 1 if is_whole else 10_000
    return _smallest({symbol: round(amount * unit) for symbol, amount in amounts.items()})


def _smallest(counts: Mapping[str, int]) -> Counts:
    """Returns counts without a common factor, sorted by element."""
    factor = math.gcd(*counts.values())
    return tuple(sorted((symbol, count // factor) for symbol, count in counts.items()))


def _ions(prototype: Material, similar: Similar) -> dict[Constituent, int]:
    """Returns the number of each ion in the formula; nothing if one is not known."""
    composition = Composition(prototype.formula)
    if "occupancy" in prototype.atoms.arrays or composition.num_atoms > MAX_FORMULA:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # noble gases have no electronegativity
        guesses = composition.oxi_state_guesses()
    charges = guesses[0] if guesses else {}
    known = {(ion.symbol, ion.charge): ion for ion in similar}
    ions = {}
    for symbol, charge in charges.items():
        ion = known.get((symbol, charge))
        if ion is None:
            return {}
        ions[ion] = round(composition[symbol])
    return ions


def _atoms(prototype: Material, similar: Similar) -> dict[Constituent, int]:
    """Returns the number of each element in the formula; nothing if the crystal is mixed."""
    if "occupancy" in prototype.atoms.arrays:
        return {}
    known = {atom.symbol: atom for atom in similar}
    amounts = Composition(prototype.formula).get_el_amt_dict()
    return {known[symbol]: round(amount) for symbol, amount in amounts.items()}


def _covalent_radius(species: Constituent) -> float:
    return float(covalent_radii[atomic_numbers[species.symbol]])


def _name(derivation: Derivation) -> str:
    """Returns the crystal's name, for file names: its formula and the prototype's name."""
    return re.sub(r"\W", "_", _formula(derivation.counts)) + FROM + derivation.prototype.name


def _formula(counts: Counts) -> str:
    return Composition(dict(counts)).reduced_formula


def _crystal(derivation: Derivation) -> Material:
    """Returns the crystal. A mixed site is two atoms at one position."""
    prototype = derivation.prototype
    scale = derivation.lattice_scale
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
    original = f"{prototype.name} ({portable_path(prototype.source)})"
    source = f"made up from {original} with {', '.join(shares)}, lattice × {scale:.4f}"
    return Material(
        _name(derivation),
        _formula(derivation.counts),
        prototype.space_group,
        atoms,
        source,
        "substituted",
        prototype=prototype.name,
    )


def _mix(
    atoms: ase.Atoms, sites: npt.NDArray[np.int64], atomic_number: int, share: float
) -> ase.Atoms:
    """Returns the crystal with another element on a part of the given sites."""
    occupancy = np.asarray(
        atoms.arrays.get("occupancy", np.ones(len(atoms))), dtype=np.float64
    ).copy()
    occupancy[sites] = 1 - share
    added = atoms[sites]
    added.numbers[:] = atomic_number
    mixed = atoms + added
    mixed.set_array("occupancy", np.concatenate([occupancy, np.full(len(sites), share)]))
    return mixed
