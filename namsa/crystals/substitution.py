"""Crystals made up from known ones by exchanging one ion for a similar one. They need not exist, and say so.

An ion takes another's place where both have the same charge, so that the crystal stays neutral; where their radii
(Shannon, Acta Cryst. A32, 751 (1976)) differ by at most 15% of their mean, and their electronegativities by at most
0.5, as Goldschmidt, Hume-Rothery and Ringwood found; and where known crystals show such pairs no less often than by
chance (Hautier et al., Inorg. Chem. 50, 656 (2011), whose statistics pymatgen carries). The lattice is scaled by the
sum of the ions' radii; atoms stay where they are in it.
"""

import hashlib
import re
import warnings
from collections.abc import Sequence

from ase.data import atomic_numbers
from pymatgen.core import Composition, Species

from namsa.config.materials import Substitution
from namsa.crystals.cif import reduced_formula
from namsa.crystals.material import Material

MAX_FORMULA = 24  # atoms: beyond, finding the oxidation states takes seconds
# Negative ions of other elements are an alloy's rather than a salt's.
ANIONS = {"H", "C", "N", "O", "F", "P", "S", "Cl", "As", "Se", "Br", "Te", "I"}
MAX_RADIUS_DIFFERENCE, MAX_ELECTRONEGATIVITY_DIFFERENCE = 0.15, 0.5
MIN_CORRELATION = 1.0  # of the two in each other's place, over chance
Exchange = tuple[Material, Species, Species, float]  # prototype, ion that goes, ion that comes, scale of the lattice


def substituted(config: Substitution, prototypes: Sequence[Material], max_atomic_number: int) -> list[Material]:
    """At most `limit` made-up crystals, chosen by hash of their names, none of formula and space group of a prototype.

    Only ordered crystals whose oxidation states can be told from the formula have any.
    """
    known = {(material.formula, material.space_group) for material in prototypes}
    similar = _similar(max_atomic_number)
    found: dict[str, Exchange] = {}
    for prototype in prototypes:
        ions = _ions(prototype)
        if not all(ion in similar for ion in ions):
            continue
        present = {ion.symbol for ion in ions}
        for old, new in ((ion, other) for ion in ions for other in similar.get(ion, ()) if other.symbol not in present):
            formula = _formula(ions, old, new)
            if (formula, prototype.space_group) not in known:
                plain = re.sub(r"\W", "_", formula)  # no brackets in file names
                found.setdefault(f"{plain}-from-{prototype.name}", (prototype, old, new, _scale(ions, old, new)))
    chosen = sorted(found, key=lambda name: hashlib.sha256(name.encode()).digest())[: config.limit]
    return [_made_up(name, *found[name]) for name in chosen]


def _ions(prototype: Material) -> dict[Species, float]:
    """How many of each ion are in the formula; none where it cannot be told, or is not of ions."""
    composition = Composition(prototype.formula)
    if "occupancy" in prototype.atoms.arrays or composition.num_atoms > MAX_FORMULA:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that noble gases have no electronegativity
        guesses = composition.oxi_state_guesses()
    if not guesses or not all(charge and float(charge).is_integer() for charge in guesses[0].values()):
        return {}
    ions = {Species(symbol, int(charge)): composition[symbol] for symbol, charge in guesses[0].items()}
    return ions if all((ion.oxi_state or 0) > 0 or ion.symbol in ANIONS for ion in ions) else {}


def _similar(max_atomic_number: int) -> dict[Species, list[Species]]:
    """For each ion of a known radius those that may take its place, in a fixed order."""
    from pymatgen.analysis.structure_prediction.substitution_probability import SubstitutionProbability

    statistics = SubstitutionProbability()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ions without a radius, and with one for high spin only
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
            and statistics.get_lambda(old, new) > statistics.alpha  # such a pair was observed
            and statistics.pair_corr(old, new) >= MIN_CORRELATION
        ]
        for old, old_radius in ions.items()
    }


def _formula(ions: dict[Species, float], old: Species, new: Species) -> str:
    return Composition({(new if ion == old else ion).symbol: n for ion, n in ions.items()}).reduced_formula


def _scale(ions: dict[Species, float], old: Species, new: Species) -> float:
    def total(exchanged: Species) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return sum(
                count * float((exchanged if ion == old else ion).ionic_radius or 0) for ion, count in ions.items()
            )

    return total(new) / total(old)


def _made_up(name: str, prototype: Material, old: Species, new: Species, scale: float) -> Material:
    atoms = prototype.atoms.copy()
    atoms.symbols[atoms.symbols == old.symbol] = new.symbol
    atoms.set_cell(atoms.cell * scale, scale_atoms=True)
    source = f"made up from {prototype.name} ({prototype.source}) with {new} for {old}, lattice × {scale:.4f}"
    return Material(name, reduced_formula(atoms), prototype.space_group, atoms, source, "substituted")
