"""Numbers that a file states, in whatever type it has them."""

import math
from typing import Any

import numpy as np


def as_number(value: Any, default: float = math.nan) -> float:
    """Returns a number, a text of one, or the only one of a list; the default for what is no finite number."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    try:
        found = float(value) if isinstance(value, int | float | str | np.floating) else math.nan
    except (ValueError, TypeError, OverflowError):
        return default
    return found if math.isfinite(found) else default


def finite(value: Any) -> float | None:
    """Returns a number; `None` for what is no finite number."""
    found = as_number(value)
    return None if math.isnan(found) else found


def positive(value: Any) -> float | None:
    """Returns a positive number; `None` for all else, with which programs say that they do not know it."""
    found = as_number(value)
    return found if found > 0 else None
