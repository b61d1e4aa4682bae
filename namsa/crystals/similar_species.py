"""Ions and atoms of a crystal, and those that are similar enough to replace them (`namsa.crystals.substitution`)."""

import warnings
from typing import NamedTuple

from ase.data import atomic_numbers, chemical_symbols, covalent_radii
from pymatgen.core import Element

# Negative ions of other elements indicate an alloy rather than a salt.
ANIONS = {"H", "C", "N", "O", "F", "P", "S", "Cl", "As", "Se", "Br", "Te", "I"}
MAX_RADIUS_DIFFERENCE, MAX_ELECTRONEGATIVITY_DIFFERENCE = 0.15, 0.5
MIN_CORRELATION = 1.0  # how often two ions replace each other, relative to chance
LAST_DOPANT = 83  # bismuth: heavier elements are radioactive


class Constituent(NamedTuple):
    """An ion or an atom of a crystal."""

    symbol: str  # the element
    charge: int  # its charge, e; 0 for an atom of unknown charge
    radius: float  # its radius, Å

    def __str__(self) -> str:
        sign = "" if not self.charge else "+" if self.charge > 0 else "-"
        return f"{self.symbol}{abs(self.charge) if abs(self.charge) > 1 else ''}{sign}"


Similar = dict[Constituent, list[Constituent]]  # those that may replace each, in a fixed order


def similar_elements(symbol: str) -> list[str]:
    """Returns the elements whose atoms may replace one in a crystal as a dopant, whatever their charge, by number.

    Covalent radii and electronegativities are as near as those of ions that may replace each other. Where there are
    none, as for noble gases, these are the elements before and after in the periodic table.
    """
    number = atomic_numbers[symbol]
    last = max(LAST_DOPANT, number)
    old = Constituent(symbol, 0, float(covalent_radii[number]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # noble gases have no electronegativity
        similar = [
            chemical_symbols[new]
            for new in range(1, last + 1)
            if new != number
            and not Element(chemical_symbols[new]).is_noble_gas
            and _are_similar(old, Constituent(chemical_symbols[new], 0, float(covalent_radii[new])))
        ]
    return similar or [chemical_symbols[new] for new in (number - 1, number + 1) if 1 <= new <= last]


def similar_ions(max_atomic_number: int) -> Similar:
    """The ions with a known radius, and for each those that may replace it."""
    from pymatgen.analysis.structure_prediction.substitution_probability import SubstitutionProbability

    statistics = SubstitutionProbability()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some ions have no radius, or one for high spin only
        radii = {ion: float(ion.ionic_radius or 0) for ion in sorted(statistics.species, key=str)}
    ions = [
        (Constituent(ion.symbol, int(ion.oxi_state or 0), radius), ion)
        for ion, radius in radii.items()
        if radius > 0 and ((ion.oxi_state or 0) > 0 or ion.symbol in ANIONS)
    ]
    return {
        old: [
            new
            for new, new_species in ions
            if new.charge == old.charge
            and new.symbol != old.symbol
            and atomic_numbers[new.symbol] <= max_atomic_number
            and _are_similar(old, new)
            and statistics.get_lambda(old_species, new_species) > statistics.alpha  # the pair was observed
            and statistics.pair_corr(old_species, new_species) >= MIN_CORRELATION
        ]
        for old, old_species in ions
    }


def similar_atoms(max_atomic_number: int) -> Similar:
    """The elements, and for each those that may replace it in an alloy."""
    atoms = [Constituent(chemical_symbols[number], 0, float(covalent_radii[number])) for number in range(1, 104)]
    return {
        old: [
            new
            for new in atoms
            if new != old
            and atomic_numbers[new.symbol] <= max_atomic_number
            and _same_valence(Element(old.symbol), Element(new.symbol))
            and _are_similar(old, new)
        ]
        for old in atoms
    }


def _are_similar(old: Constituent, new: Constituent) -> bool:
    """Whether two species have similar radii and electronegativities."""
    difference = 2 * abs(new.radius - old.radius) / (new.radius + old.radius)
    if difference > MAX_RADIUS_DIFFERENCE:
        return False
    return bool(abs(Element(new.symbol).X - Element(old.symbol).X) <= MAX_ELECTRONEGATIVITY_DIFFERENCE)


def _same_valence(old: Element, new: Element) -> bool:
    """Whether two elements have the same valence electrons, d elements up to one."""
    if old.is_noble_gas or new.is_noble_gas:
        return False
    rare_earths = [each.is_rare_earth for each in (old, new)]
    if any(rare_earths):
        return all(rare_earths)
    return old.block == new.block and abs(old.group - new.group) <= (1 if old.block == "d" else 0)
