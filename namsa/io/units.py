"""Numbers and units as programs spell them: "Å", "1/nm", "[A_^_-_1]", "nm⁻¹", "$A^{-1}$",
"k_nm^-1", "µm", "mrad".
"""

import math
import re

import numpy as np

_ANGSTROM = {
    **{"Å": 1.0, "A": 1.0, "AA": 1.0, "angstrom": 1.0, "ang": 1.0, "ångström": 1.0},
    **{"pm": 0.01, "nm": 10.0, "um": 1e4, "mm": 1e7, "m": 1e10},
    **{"picometer": 0.01, "nanometer": 10.0, "micrometer": 1e4, "micron": 1e4, "meter": 1e10},
}
_MRAD = {
    "mrad": 1.0,
    "rad": 1e3,
    "urad": 1e-3,
    "milliradian": 1.0,
    "radian": 1e3,
    "microradian": 1e-3,
}
_SPELLINGS = {"\u212b": "Å", "µ": "u", "μ": "u", "⁻": "-", "¹": "1", "−": "-", "**": "^"}
_DECORATION = re.compile(r"[\[\](){}$\\\s]|math(?:rm|ring)|text")
_RECIPROCAL = re.compile(r"1/(.+)|(?:inverse|reciprocal|per)(.+)|(.+?)\^?-1")


def angstrom_per_unit(units: str) -> float | None:
    """Returns the length in Å of one of `units`. `None` if they are not a length."""
    return _value(_normalised(units), _ANGSTROM)


def mrad_per_unit(units: str) -> float | None:
    """Returns the angle in mrad of one of `units`. `None` if they are not an angle."""
    return _value(_normalised(units), _MRAD)


def inverse_angstrom_per_unit(units: str) -> float | None:
    """Returns the reciprocal length k in 1/Å of one of `units`, which is the angle α = λk. `None`
    for other units.
    """
    match = _RECIPROCAL.fullmatch(_normalised(units))
    length = None if match is None else _value(next(filter(None, match.groups())), _ANGSTROM)
    return None if length is None else 1 / length


def _value(units: str, table: dict[str, float]) -> float | None:
    """Returns the value of a unit: by its symbol, or by its name in the singular or the plural, in
    any case.
    """
    word = units.lower().replace("metre", "meter")
    names = (word, word.removesuffix("s")) if len(word) > 2 else ()
    return next((table[name] for name in (units, *names) if name in table), None)


def _normalised(units: str) -> str:
    """Returns `units` without decoration, in one spelling; a quantity before them, as in "k_nm^-1",
    is left out.
    """
    for spelling, plain in _SPELLINGS.items():
        units = units.replace(spelling, plain)
    units = _DECORATION.sub("", units)
    return re.sub(r"^[kqs]_", "", units).replace("_", "")


def as_number(value: object, default: float = math.nan) -> float:
    """Returns a number, a text of one, or the only one of a list; the default for what is no finite
    number.
    """
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    try:
        number = float(value) if isinstance(value, int | float | str | np.floating) else math.nan
    except (ValueError, TypeError, OverflowError):
        return default
    return number if math.isfinite(number) else default


def finite(value: object) -> float | None:
    """Returns a number; `None` for what is no finite number."""
    number = as_number(value)
    return None if math.isnan(number) else number


def positive(value: object) -> float | None:
    """Returns a positive number; `None` for all else, with which programs say that they do not know
    it.
    """
    number = as_number(value)
    return number if number > 0 else None
