"""Hypothetical crystals: known ones in which one ion is replaced by a similar one. They need not exist.

An ion may replace another under three conditions:

- Both have the same charge, so that the crystal stays neutral.
- Their radii (Shannon, Acta Cryst. A32, 751 (1976)) differ by at most 15% of their mean, and their electronegativities
  by at most 0.5, after the rules of Goldschmidt, Hume-Rothery and Ringwood.
- Known crystals show such pairs, and no less often than by chance (Hautier et al., Inorg. Chem. 50, 656 (2011), whose
  statistics pymatgen contains).

The lattice is scaled by the sum of the ions' radii. The atoms keep their fractional coordinates.
"""

import hashlib
import re
import warnings
from collections.abc import Sequence
from typing import NamedTuple

from ase.data import atomic_numbers
from pymatgen.core import Composition, Species

from namsa.config.materials import Substitution
from namsa.crystals.cif import reduced_formula
from namsa.crystals.material import Material

MAX_FORMULA = 24  # atoms; for larger formulas, finding the oxidation states takes seconds
# Negative ions of other elements indicate an alloy rather than a salt.
ANIONS = {"H", "C", "N", "O", "F", "P", "S", "Cl", "As", "Se", "Br", "Te", "I"}
MAX_RADIUS_DIFFERENCE, MAX_ELECTRONEGATIVITY_DIFFERENCE = 0.15, 0.5
MIN_CORRELATION = 1.0  # how often two ions replace each other, relative to chance


class IonExchange(NamedTuple):
    """One possible replacement.

    Attributes:
        prototype: The known crystal.
        old: The ion that is replaced.
        new: The ion that replaces it.
        lattice_scale: New over old lattice parameter.
    """

    prototype: Material
    old: Species
    new: Species
    lattice_scale: float


def substitute_ions(config: Substitution, prototypes: Sequence[Material], max_atomic_number: int) -> list[Material]:
    """Derives hypothetical crystals from known ones by replacing one ion with a similar one.

    Only ordered crystals whose oxidation states follow from the formula are used as prototypes.

    Args:
        config: The `substitute` section, with the number of crystals.
        prototypes: The known crystals.
        max_atomic_number: The heaviest element that may be brought in.

    Returns:
        At most `config.limit` crystals, chosen by the hash of their names. None has the formula and space group of a
        prototype.
    """
    known = {(material.formula, material.space_group) for material in prototypes}
    similar = _similar_ions(max_atomic_number)
    exchanges: dict[str, IonExchange] = {}
    for prototype in prototypes:
        ions = _ions(prototype)
        if not all(ion in similar for ion in ions):
            continue
        present = {ion.symbol for ion in ions}
        for old, new in ((ion, other) for ion in ions for other in similar.get(ion, ()) if other.symbol not in present):
            formula = _formula(ions, old, new)
            if (formula, prototype.space_group) not in known:
                safe_formula = re.sub(r"\W", "_", formula)  # no brackets in file names
                exchange = IonExchange(prototype, old, new, _lattice_scale(ions, old, new))
                exchanges.setdefault(f"{safe_formula}-from-{prototype.name}", exchange)
    chosen = sorted(exchanges, key=lambda name: hashlib.sha256(name.encode()).digest())[: config.limit]
    return [_substituted(name, exchanges[name]) for name in chosen]


def _ions(prototype: Material) -> dict[Species, float]:
    """The number of each ion in the formula; empty if unknown or if the crystal is not ionic."""
    composition = Composition(prototype.formula)
    if "occupancy" in prototype.atoms.arrays or composition.num_atoms > MAX_FORMULA:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # noble gases have no electronegativity
        guesses = composition.oxi_state_guesses()
    if not guesses or not all(charge and float(charge).is_integer() for charge in guesses[0].values()):
        return {}
    ions = {Species(symbol, int(charge)): composition[symbol] for symbol, charge in guesses[0].items()}
    return ions if all((ion.oxi_state or 0) > 0 or ion.symbol in ANIONS for ion in ions) else {}


def _similar_ions(max_atomic_number: int) -> dict[Species, list[Species]]:
    """For each ion with a known radius the ions that may replace it, in a fixed order."""
    from pymatgen.analysis.structure_prediction.substitution_probability import SubstitutionProbability

    statistics = SubstitutionProbability()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some ions have no radius, or one for high spin only
        radii = {ion: float(ion.ionic_radius or 0) for ion in sorted(statistics.species, key=str)}
    ions = {ion: radius for ion, radius in radii.items() if radius > 0}
    return {
        old: [
            new
            for new, radius in ions.items()
            if new.oxi_state == old.oxi_state
            and new.symbol != old.symbol
            and atomic_numbers[new.symbol] <= max_atomic_number
            and 2 * abs(radius - old_radius) / (radius + old_radius) <= MAX_RADIUS_DIFFERENCE
            and abs(new.X - old.X) <= MAX_ELECTRONEGATIVITY_DIFFERENCE
            and statistics.get_lambda(old, new) > statistics.alpha  # the pair was observed
            and statistics.pair_corr(old, new) >= MIN_CORRELATION
        ]
        for old, old_radius in ions.items()
    }


def _formula(ions: dict[Species, float], old: Species, new: Species) -> str:
    return Composition({(new if ion == old else ion).symbol: n for ion, n in ions.items()}).reduced_formula


def _lattice_scale(ions: dict[Species, float], old: Species, new: Species) -> float:
    """The ratio of the sums of the ions' radii after and before the exchange."""

    def sum_of_radii(exchanged: Species) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return sum(
                count * float((exchanged if ion == old else ion).ionic_radius or 0) for ion, count in ions.items()
            )

    return sum_of_radii(new) / sum_of_radii(old)


def _substituted(name: str, exchange: IonExchange) -> Material:
    prototype, old, new, scale = exchange
    atoms = prototype.atoms.copy()
    atoms.symbols[atoms.symbols == old.symbol] = new.symbol
    atoms.set_cell(atoms.cell * scale, scale_atoms=True)
    source = f"made up from {prototype.name} ({prototype.source}) with {new} for {old}, lattice × {scale:.4f}"
    return Material(name, reduced_formula(atoms), prototype.space_group, atoms, source, "substituted")
