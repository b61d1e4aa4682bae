"""Units of axes as programs spell them: "Å", "1/nm", "[A_^_-_1]", "nm⁻¹", "µm", "mrad"."""

_ANGSTROM = {"Å": 1.0, "A": 1.0, "angstrom": 1.0, "pm": 0.01, "nm": 10.0, "um": 1e4, "m": 1e10}
_MRAD = {"mrad": 1.0, "rad": 1e3, "urad": 1e-3}
_SPELLINGS = {
    "\u212b": "Å",
    "µ": "u",
    "μ": "u",
    "⁻¹": "^-1",
    "**-1": "^-1",
    "Ang": "ang",
    "stroms": "strom",
}


def angstrom_per_unit(units: str) -> float | None:
    """Returns the length in Å of one of `units`. `None` if they are not a length."""
    return _ANGSTROM.get(_normalised(units))


def mrad_per_unit(units: str) -> float | None:
    """Returns the angle in mrad of one of `units`. `None` if they are not an angle."""
    return _MRAD.get(_normalised(units))


def inverse_angstrom_per_unit(units: str) -> float | None:
    """Returns the reciprocal length k in 1/Å of one of `units`, which is the angle α = λk. `None` for other units."""
    plain = _normalised(units)
    length = _ANGSTROM.get(plain.removeprefix("1/")) if plain.startswith("1/") else None
    if plain.endswith("^-1"):
        length = _ANGSTROM.get(plain.removesuffix("^-1"))
    return None if length is None else 1 / length


def _normalised(units: str) -> str:
    """Returns `units` without decoration, in one spelling."""
    for mark in "[]_ ":
        units = units.replace(mark, "")
    for spelling, plain in _SPELLINGS.items():
        units = units.replace(spelling, plain)
    return units
