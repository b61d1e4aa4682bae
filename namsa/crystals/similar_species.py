"""Similar ions and atoms, which may replace each other (`namsa.crystals.substitution`)."""

import warnings
from typing import TYPE_CHECKING, NamedTuple

from ase.data import atomic_numbers, chemical_symbols, covalent_radii
from pymatgen.core import Element

if TYPE_CHECKING:  # it is slow to import
    from pymatgen.analysis.structure_prediction.substitution_probability import (
        SubstitutionProbability,
    )
    from pymatgen.core import Species

# Negative ions of other elements indicate an alloy rather than a salt.
ANIONS = {"H", "C", "N", "O", "F", "P", "S", "Cl", "As", "Se", "Br", "Te", "I"}
MAX_RADIUS_DIFFERENCE = 0.15
MAX_ELECTRONEGATIVITY_DIFFERENCE = 0.5
MIN_CORRELATION = 1.0  # how often two ions replace each other, relative to chance
HEAVIEST = 103  # atomic number of the last element whose atoms are compared
LAST_DOPANT = 83  # bismuth: heavier elements are radioactive


class Constituent(NamedTuple):
    """An ion or an atom of a crystal."""

    symbol: str  # the element
    charge: int  # its charge, e; 0 for an atom of unknown charge
    radius: float  # its radius, Å

    def __str__(self) -> str:
        number = abs(self.charge) if abs(self.charge) > 1 else ""
        if not self.charge:
            return self.symbol
        return f"{self.symbol}{number}{'+' if self.charge > 0 else '-'}"


Similar = dict[Constituent, list[Constituent]]  # those that may replace each, in a fixed order


def similar_elements(symbol: str) -> list[str]:
    """Returns the elements whose atoms may replace one in a crystal as a dopant, by number.

    Their charge is not considered. Covalent radii and electronegativities are as near as those of
    ions that may replace each other. Where there are none, as for noble gases, these are the
    elements before and after in the periodic table.
    """
    atomic_number = atomic_numbers[symbol]
    last = max(LAST_DOPANT, atomic_number)
    old = _neutral(atomic_number)
    similar = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # noble gases have no electronegativity
        for new_number in range(1, last + 1):
            new = _neutral(new_number)
            if new_number == atomic_number or Element(new.symbol).is_noble_gas:
                continue
            if _are_similar(old, new):
                similar.append(new.symbol)
    if similar:
        return similar
    neighbours = (atomic_number - 1, atomic_number + 1)
    return [chemical_symbols[neighbour] for neighbour in neighbours if 1 <= neighbour <= last]


def _neutral(atomic_number: int) -> Constituent:
    """Returns an atom of unknown charge."""
    return Constituent(chemical_symbols[atomic_number], 0, float(covalent_radii[atomic_number]))


def similar_ions(max_atomic_number: int) -> Similar:
    """Returns the ions with a known radius, and for each those that may replace it."""
    from pymatgen.analysis.structure_prediction.substitution_probability import (
        SubstitutionProbability,
    )

    statistics = SubstitutionProbability()
    ions = _known_ions(statistics)
    allowed = [ion for ion in ions if atomic_numbers[ion.symbol] <= max_atomic_number]
    similar: Similar = {}
    for old in ions:
        similar[old] = []
        for new in allowed:
            if new.charge != old.charge or new.symbol == old.symbol:
                continue
            if _are_similar(old, new) and _replace_each_other(statistics, ions[old], ions[new]):
                similar[old].append(new)
    return similar


def _known_ions(statistics: "SubstitutionProbability") -> dict[Constituent, "Species"]:
    """Returns the ions of pymatgen's statistics that have a radius, in a fixed order.

    Returns:
        The ions, each with pymatgen's species.
    """
    ions = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some ions have no radius, or one for high spin only
        for species in sorted(statistics.species, key=str):
            radius = float(species.ionic_radius or 0)
            charge = species.oxi_state or 0
            if radius > 0 and (charge > 0 or species.symbol in ANIONS):
                ions[Constituent(species.symbol, int(charge), radius)] = species
    return ions


def _replace_each_other(
    statistics: "SubstitutionProbability", old: "Species", new: "Species"
) -> bool:
    """Whether known crystals show that two species replace each other, and not less than by
    chance.
    """
    was_observed = statistics.get_lambda(old, new) > statistics.alpha
    return bool(was_observed and statistics.pair_corr(old, new) >= MIN_CORRELATION)


def similar_atoms(max_atomic_number: int) -> Similar:
    """Returns the elements, and for each those that may replace it in an alloy."""
    atoms = [_neutral(atomic_number) for atomic_number in range(1, HEAVIEST + 1)]
    similar: Similar = {}
    for old in atoms:
        similar[old] = []
        for new in atoms[:max_atomic_number]:
            if new == old or not _same_valence(Element(old.symbol), Element(new.symbol)):
                continue
            if _are_similar(old, new):
                similar[old].append(new)
    return similar


def _are_similar(old: Constituent, new: Constituent) -> bool:
    """Whether two species have similar radii and electronegativities."""
    difference = 2 * abs(new.radius - old.radius) / (new.radius + old.radius)
    if difference > MAX_RADIUS_DIFFERENCE:
        return False
    return bool(
        abs(Element(new.symbol).X - Element(old.symbol).X) <= MAX_ELECTRONEGATIVITY_DIFFERENCE
    )


def _same_valence(old: Element, new: Element) -> bool:
    """Whether two elements have the same valence electrons, d elements up to one."""
    if old.is_noble_gas or new.is_noble_gas:
        return False
    if old.is_rare_earth or new.is_rare_earth:
        return bool(old.is_rare_earth and new.is_rare_earth)
    largest_difference = 1 if old.block == "d" else 0
    return bool(old.block == new.block and abs(old.group - new.group) <= largest_difference)
