"""Numbers as crystallographic files print them: `0.2500(3)`, rounded to their last digit."""

import re
from typing import NamedTuple

_NUMBER = re.compile(r"([+-]?)(\d+(?:\.(\d*))?|\.(\d+))(?:[eE]([+-]?\d{1,3}))?(?:\((\d{0,9})\)?)?")


class Number(NamedTuple):
    """A printed number."""

    value: float  # the number
    decimals: int  # digits after the point
    uncertainty: float  # its standard uncertainty; 0 if none is printed

    @property
    def rounding(self) -> float:
        """How far it can be from the exact number because of its last digit."""
        return 0.5 * 10.0**-self.decimals


def read_number(text: str) -> Number | None:
    """Returns a printed number, `None` if the text is none."""
    match = _NUMBER.fullmatch(text.strip()) if len(text) < 100 else None
    if not match:
        return None
    exponent = int(match[5] or 0)
    value = float(f"{match[1]}{match[2]}e{exponent}")
    decimals = max(len(match[3] or match[4] or "") - exponent, 0)
    return Number(value, decimals, int(match[6] or 0) * 10.0**-decimals) if abs(value) < 1e300 else None
