"""Elements and numbers as files print them. A name that could mean several elements names none."""

import re
from collections.abc import Collection
from typing import NamedTuple

from ase.data import atomic_numbers

NUMBERS = {symbol: number for symbol, number in atomic_numbers.items() if number}
NUMBERS["D"] = 1  # deuterium
# Vacancies, dummy atoms and molecules whose first letters are an element's.
_NO_ATOM = {
    "VA",
    "VAC",
    "VACANCY",
    "DU",
    "DUM",
    "DUMMY",
    "BQ",
    "UN",
    "UNK",
    "LP",
    "WAT",
    "OH",
    "OD",
    "NH",
    "CH",
}
_WATER = re.compile(r"[HD][23]O")
# Capitals that can be an element with the letter of a site or of a neighbour, as well as an element
# of two letters.
_TWO_MEANINGS = re.compile(r"[CHNOPS][A-EGHNO]|[BFIKUVWY][A-D]")
_MIXED = re.compile(r"[/,+&]\s*[A-Za-z]")


def element_of_type(symbol: str) -> int | None:
    """Returns the atomic number of a type symbol; `None` if it names no element.

    Args:
        symbol: As `Sr2+`, `AL`, `D`, `7Li`, `Cval`.
    """
    match = re.fullmatch(r"\d{0,3}([A-Za-z]{1,2})(?:val?)?[^A-Za-z]*", symbol)
    return NUMBERS.get(match[1].title()) if match else None


def element_of_label(label: str, formula: Collection[int]) -> int | None:
    """Returns the atomic number of the element with which a site's label begins.

    Args:
        label: The label: `Fe1`, `O2A`, `SiT1`, `CA2`.
        formula: The elements of the crystal's formula, which decide between C and Ca; empty if
            there is none.

    Returns:
        The number; `None` if the label names no element, more than one, or no atom: `Va`, `DUM`,
        `H2O`.
    """
    match = re.match(r"\d{0,3}([A-Za-z]+)", label)
    if not match or match[1].upper() in _NO_ATOM or _WATER.match(label) or _MIXED.search(label):
        return None
    letters = match[1]
    one = NUMBERS.get(letters[0].upper())
    two = NUMBERS.get(letters[:2].title()) if len(letters) > 1 else None
    if two and letters[0].isupper() and letters[1].islower():
        return two
    elements = {
        atomic_number
        for atomic_number in (one, two)
        if atomic_number and (not formula or atomic_number in formula)
    }
    if len(letters) > 1 and letters[1].islower() and letters[0].isupper() and not formula:
        return None  # Oa: oxygen, or no atom at all
    if two and len(letters) == 2 and not formula and not _TWO_MEANINGS.match(letters.upper()):
        return two
    return elements.pop() if len(elements) == 1 else None


_NUMBER = re.compile(r"([+-]?)(\d+(?:\.(\d*))?|\.(\d+))(?:[eE]([+-]?\d{1,3}))?(?:\((\d{0,9})\)?)?")


class Number(NamedTuple):
    """A printed number."""

    value: float  # the number
    decimals: int  # digits after the point
    uncertainty: float  # its standard uncertainty; 0 if none is printed

    @property
    def rounding(self) -> float:
        """Largest distance from the exact number, because of its last digit."""
        return 0.5 * 10.0**-self.decimals


def read_number(text: str) -> Number | None:
    """Returns a printed number, `None` if the text is none."""
    match = _NUMBER.fullmatch(text.strip()) if len(text) < 100 else None
    if not match:
        return None
    exponent = int(match[5] or 0)
    value = float(f"{match[1]}{match[2]}e{exponent}")
    decimals = max(len(match[3] or match[4] or "") - exponent, 0)
    if abs(value) < 1e300:
        return Number(value, decimals, int(match[6] or 0) * 10.0**-decimals)
    return None
