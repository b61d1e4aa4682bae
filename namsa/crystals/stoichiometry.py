"""What a file says of its contents, formula, formula units and density, against the atoms that its sites make."""

import math
import re
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ase
import numpy as np
from ase.data import atomic_masses, chemical_symbols
from pymatgen.core import Composition

from namsa.crystals.elements import NUMBERS, read_number
from namsa.crystals.sites import occupancies
from namsa.errors import InputError

GRAM_PER_CUBIC_CENTIMETRE = 1.66053906660  # of one atomic mass unit per Å³
RELATIVE_TOLERANCE = 0.005  # of amounts
DENSITY_TOLERANCE = 0.1  # relative
_WORD = re.compile(r"([A-Za-z]{1,2})(\d{0,9}(?:\.\d{0,9})?)")
_AMOUNT = re.compile(r"([A-Z][a-z]?)(\d{0,9}(?:\.\d{0,9})?)\s*")


@dataclass(frozen=True)
class Stated:
    """What a file says of the crystal's contents."""

    # Amount of each element by atomic number, and how far the amount can be from the exact one; empty if there is none.
    formula: Mapping[int, tuple[float, float]]
    units: float | None  # formula units in the cell, or `None`
    density: float | None  # density, g/cm³, or `None`


def read_stated(tags: Mapping[str, Sequence[str]]) -> Stated:
    """Returns what the tags of a CIF say; what is not understood counts as not stated."""

    def value(key: str) -> float | None:
        number = read_number(tags[key][0]) if tags.get(key) else None
        return number.value if number and number.value > 0 else None

    text = next((tags[k][0] for k in ("_chemical_formula_sum", "_chemical_formula_structural") if tags.get(k)), "")
    weight = value("_exptl_crystal_density_diffrn") or value("_exptl_crystal_density_meas")
    return Stated(_formula(text), value("_cell_formula_units_z"), weight)


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
    for has, lacks, where in ((stated.formula, amounts, "atom sites"), (amounts, stated.formula, "formula")):
        if missing := [chemical_symbols[number] for number in sorted(set(has) - set(lacks))]:
            raise InputError(
                f"Missing elements {', '.join(missing)} in the {where}: formula and sites must have the same"
            )
    lowest, highest = 0.0, np.inf
    for number, (amount, error) in stated.formula.items():
        found = amounts[number]
        lowest = max(lowest, (found - errors[number]) / (amount + error) * (1 - RELATIVE_TOLERANCE))
        if amount > error:
            highest = min(highest, (found + errors[number]) / (amount - error) * (1 + RELATIVE_TOLERANCE))
    ratios = {number: amounts[number] / amount for number, (amount, _) in stated.formula.items()}
    scale = min(ratios.values())
    shown = ", ".join(
        f"{chemical_symbols[number]} {amount:g} and {amounts[number] / scale:.4g}"
        for number, (amount, _) in stated.formula.items()
    )
    if lowest > highest:
        raise InputError(f"Incorrect stoichiometry: formula and atom sites have {shown}")
    if max(ratios.values()) > 1.001 * scale:
        return f"formula and atom sites differ within their digits: {shown}; the sites are taken"
    return None


def agreement(stated: Stated, atoms: ase.Atoms) -> list[tuple[bool, str]]:
    """Returns whether formula units and density agree with the atoms of the cell, each with its numbers."""
    amounts, _ = _amounts(atoms, [0.0] * len(atoms))
    found = []
    if stated.units and stated.formula:
        unit = [amount for amount, _ in stated.formula.values()]
        own = sum(amounts.values()) / sum(unit)
        # pymatgen writes the formula of the whole cell, and the Z of the reduced one.
        whole = math.gcd(*map(round, unit)) if all(amount == round(amount) for amount in unit) else 1
        close = any(abs(count / stated.units - 1) < 0.05 for count in (own, own * whole))
        found.append((close, f"Z is {stated.units:g}, and the atoms make {own:.3g} formula units"))
    if stated.density:
        own = density(atoms)
        close = abs(own / stated.density - 1) < DENSITY_TOLERANCE
        found.append((close, f"the density is {stated.density:.4g} g/cm³, and the atoms have {own:.4g} g/cm³"))
    return found


def density(atoms: ase.Atoms) -> float:
    """Returns the density of a crystal, g/cm³."""
    mass = float(atomic_masses[atoms.numbers] @ occupancies(atoms))
    return mass * GRAM_PER_CUBIC_CENTIMETRE / float(atoms.cell.volume)


def _amounts(atoms: ase.Atoms, roundings: Sequence[float]) -> tuple[dict[int, float], dict[int, float]]:
    """Returns amounts in the cell by atomic number, and how far they can be from the exact ones."""
    amounts: dict[int, float] = defaultdict(float)
    errors: dict[int, float] = defaultdict(float)
    for number, share, rounding in zip(atoms.numbers.tolist(), occupancies(atoms), roundings, strict=True):
        amounts[number] += float(share)
        errors[number] += float(rounding)
    return amounts, errors


def _formula(text: str) -> dict[int, tuple[float, float]]:
    """Returns the amounts of a formula with their roundings; nothing if it is not understood."""
    words = [_WORD.fullmatch(word) for word in text.split()] if len(text) < 2000 else []
    if all(word and word[1].title() in NUMBERS for word in words):  # capitals, too: one word is one element
        text = " ".join(f"{word[1].title()}{word[2]}" for word in words if word)
    elif re.search("[A-Z]{2}", text) and not re.search("[a-z]", text):
        return {}  # SIO2: silicon, or sulfur and iodine
    parts = _AMOUNT.findall(text) if len(text) < 2000 else []
    amounts: dict[str, float] = defaultdict(float)
    if parts and "".join(f"{symbol}{amount}" for symbol, amount in parts) == re.sub(r"\s", "", text):
        for symbol, amount in parts:
            amounts[symbol] += float(amount) if amount.strip(".") else 1.0
    elif text and len(text) < 200:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                amounts.update({str(e.symbol): float(n) for e, n in Composition(text).remove_charges().items()})
        except (ValueError, TypeError, AttributeError, ArithmeticError, LookupError, RecursionError):
            return {}
    digits = max((len(amount.partition(".")[2]) for amount in re.findall(r"\d[\d.]*", text)), default=0)
    rounding = 0.5 * 10.0**-digits if digits else 0.0
    found: dict[int, tuple[float, float]] = {}
    for symbol, amount in amounts.items():
        if symbol not in NUMBERS or not amount > 0:
            return {}
        number = NUMBERS[symbol]
        found[number] = (found.get(number, (0.0, 0.0))[0] + amount, rounding)
    return found
