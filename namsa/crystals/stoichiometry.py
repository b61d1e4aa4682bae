"""Formula, formula units and density of a file, compared with the atoms that its sites make."""

import math
import re
import warnings
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import ase
import numpy as np
from ase.data import atomic_masses, chemical_symbols
from pymatgen.core import Composition

from namsa.base.errors import InputError
from namsa.crystals.elements import NUMBERS, read_number
from namsa.crystals.sites import occupancies

GRAM_PER_CUBIC_CENTIMETRE = 1.66053906660  # of one atomic mass unit per Å³
RELATIVE_TOLERANCE = 0.005  # of amounts
DENSITY_TOLERANCE = 0.1  # relative
UNITS_TOLERANCE = 0.05  # relative, of the formula units
NOTED_DIFFERENCE = 0.001  # relative, of amounts
FORMULA_KEYS = ("_chemical_formula_sum", "_chemical_formula_structural")
# characters of formulas that are read, with brackets or without
LONGEST_FORMULA = 2000
LONGEST_COMPOSITION = 200
_WORD = re.compile(r"([A-Za-z]{1,2})(\d{0,9}(?:\.\d{0,9})?)")
_AMOUNT = re.compile(r"([A-Z][a-z]?)(\d{0,9}(?:\.\d{0,9})?)\s*")


class FormulaAmount(NamedTuple):
    """The amount of an element in a formula."""

    amount: float
    rounding: float  # how far it can be from the exact one


@dataclass(frozen=True)
class Stated:
    """The contents of the crystal as its file states them."""

    formula: Mapping[int, FormulaAmount]  # by atomic number; empty if there is none
    units: float | None  # formula units in the cell, or `None`
    density: float | None  # density, g/cm³, or `None`


def read_stated(tags: Mapping[str, Sequence[str]]) -> Stated:
    """Returns what the tags of a CIF say; what is not understood counts as not stated."""

    def value(key: str) -> float | None:
        number = read_number(tags[key][0]) if tags.get(key) else None
        return number.value if number and number.value > 0 else None

    text = ""
    for key in FORMULA_KEYS:
        if tags.get(key):
            text = tags[key][0]
            break
    stated_density = value("_exptl_crystal_density_diffrn") or value("_exptl_crystal_density_meas")
    return Stated(_formula(text), value("_cell_formula_units_z"), stated_density)


def check_formula(stated: Stated, atoms: ase.Atoms, roundings: Sequence[float]) -> str | None:
    """Compares the ratios of amounts with the formula.

    Args:
        roundings: How far each occupancy can be from the exact one.

    Returns:
        A note if ratios differ by more than 0.1 %, within their digits.

    Raises:
        InputError: If elements are missing, or amounts differ by more than their digits allow.
    """
    if not stated.formula:
        return None
    amounts, errors = _amounts(atoms, roundings)
    _check_elements(stated.formula, amounts, "atom sites")
    _check_elements(amounts, stated.formula, "formula")
    lowest = 0.0
    highest = np.inf
    for atomic_number, (amount, rounding) in stated.formula.items():
        in_cell = amounts[atomic_number]
        least_units = (in_cell - errors[atomic_number]) / (amount + rounding)
        lowest = max(lowest, least_units * (1 - RELATIVE_TOLERANCE))
        if amount > rounding:
            most_units = (in_cell + errors[atomic_number]) / (amount - rounding)
            highest = min(highest, most_units * (1 + RELATIVE_TOLERANCE))
    units = {
        atomic_number: amounts[atomic_number] / entry.amount
        for atomic_number, entry in stated.formula.items()
    }
    fewest = min(units.values())
    counts = []
    for atomic_number, entry in stated.formula.items():
        in_file = amounts[atomic_number] / fewest
        counts.append(f"{chemical_symbols[atomic_number]} {entry.amount:g} and {in_file:.4g}")
    shown = ", ".join(counts)
    if lowest > highest:
        raise InputError(f"Incorrect stoichiometry: formula and atom sites have {shown}")
    if max(units.values()) > (1 + NOTED_DIFFERENCE) * fewest:
        return f"formula and atom sites differ within their digits: {shown}; the sites are taken"
    return None


def _check_elements(needed: Collection[int], present: Collection[int], place: str) -> None:
    """Raises InputError if elements are missing.

    Args:
        needed: Atomic numbers that must be there.
        present: Those that are there.
        place: Where they are, for the message.
    """
    missing = [
        chemical_symbols[atomic_number] for atomic_number in sorted(set(needed) - set(present))
    ]
    if missing:
        raise InputError(
            f"Missing elements {', '.join(missing)} in the {place}: formula and sites must have "
            "the same"
        )


def agreement(stated: Stated, atoms: ase.Atoms) -> list[tuple[bool, str]]:
    """Returns whether formula units and density agree with the atoms, each with its numbers."""
    facts = []
    if stated.units and stated.formula:
        units = _formula_units(stated, atoms)
        # pymatgen writes the formula of the whole cell, and the Z of the reduced one.
        candidates = (units, units * _common_factor(stated.formula))
        close = any(abs(count / stated.units - 1) < UNITS_TOLERANCE for count in candidates)
        text = f"Z is {stated.units:g}, and the atoms make {units:.3g} formula units"
        facts.append((close, text))
    if stated.density:
        of_atoms = density(atoms)
        close = abs(of_atoms / stated.density - 1) < DENSITY_TOLERANCE
        text = f"the density is {stated.density:.4g} g/cm³, and the atoms have {of_atoms:.4g} g/cm³"
        facts.append((close, text))
    return facts


def _formula_units(stated: Stated, atoms: ase.Atoms) -> float:
    """Returns the formula units that the atoms of the cell make."""
    amounts, _ = _amounts(atoms, [0.0] * len(atoms))
    return sum(amounts.values()) / sum(entry.amount for entry in stated.formula.values())


def _common_factor(formula: Mapping[int, FormulaAmount]) -> int:
    """Returns the largest common factor of a formula's amounts; 1 if they are not whole."""
    amounts = [entry.amount for entry in formula.values()]
    if any(amount != round(amount) for amount in amounts):
        return 1
    return math.gcd(*(round(amount) for amount in amounts))


def density(atoms: ase.Atoms) -> float:
    """Returns the density of a crystal, g/cm³."""
    mass = float(atomic_masses[atoms.numbers] @ occupancies(atoms))
    return mass * GRAM_PER_CUBIC_CENTIMETRE / float(atoms.cell.volume)


def _amounts(
    atoms: ase.Atoms, roundings: Sequence[float]
) -> tuple[dict[int, float], dict[int, float]]:
    """Returns amounts in the cell by atomic number, and how far they can be from the exact ones."""
    amounts: dict[int, float] = defaultdict(float)
    errors: dict[int, float] = defaultdict(float)
    for atomic_number, share, rounding in zip(
        atoms.numbers.tolist(), occupancies(atoms), roundings, strict=True
    ):
        amounts[atomic_number] += float(share)
        errors[atomic_number] += float(rounding)
    return amounts, errors


def _formula(text: str) -> dict[int, FormulaAmount]:
    """Returns the amounts of a formula with their roundings; nothing if it is not understood."""
    amounts = _amounts_of_text(_in_title_case(text))
    rounding = _rounding(text)
    formula: dict[int, FormulaAmount] = {}
    for symbol, amount in amounts.items():
        if symbol not in NUMBERS or not amount > 0:
            return {}
        atomic_number = NUMBERS[symbol]
        earlier = formula.get(atomic_number, FormulaAmount(0.0, 0.0))
        formula[atomic_number] = FormulaAmount(earlier.amount + amount, rounding)
    return formula


def _in_title_case(text: str) -> str:
    """Returns a formula with elements as Al, of which capitals are understood word by word.

    It is empty for capitals that could mean several elements: SIO2 is silicon, or sulfur and
    iodine.
    """
    if len(text) < LONGEST_FORMULA:
        words = [_WORD.fullmatch(word) for word in text.split()]
        if all(word and word[1].title() in NUMBERS for word in words):
            return " ".join(f"{word[1].title()}{word[2]}" for word in words if word)
    if re.search("[A-Z]{2}", text) and not re.search("[a-z]", text):
        return ""
    return text


def _amounts_of_text(text: str) -> dict[str, float]:
    """Returns the amounts of a formula by symbol; nothing if it is not understood."""
    parts = _AMOUNT.findall(text) if len(text) < LONGEST_FORMULA else []
    understood = "".join(f"{symbol}{amount}" for symbol, amount in parts)
    if parts and understood == re.sub(r"\s", "", text):
        amounts: dict[str, float] = defaultdict(float)
        for symbol, amount in parts:
            amounts[symbol] += float(amount) if amount.strip(".") else 1.0
        return amounts
    if text and len(text) < LONGEST_COMPOSITION:
        return _amounts_of_pymatgen(text)
    return {}


def _amounts_of_pymatgen(text: str) -> dict[str, float]:
    """Returns the amounts of a formula with brackets or charges by symbol, as pymatgen reads it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            composition = Composition(text).remove_charges()
            return {str(element.symbol): float(n) for element, n in composition.items()}
    except (
        ValueError,
        TypeError,
        AttributeError,
        ArithmeticError,
        LookupError,
        RecursionError,
    ):
        return {}


def _rounding(text: str) -> float:
    """Returns how far the amounts of a formula can be from the exact ones because of its digits."""
    digits = 0
    for amount in re.findall(r"\d[\d.]*", text):
        digits = max(digits, len(amount.partition(".")[2]))
    return 0.5 * 10.0**-digits if digits else 0.0
