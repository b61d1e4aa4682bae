"""Values that are drawn at random unless a person gives them, with a record of those that were
used.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from namsa.base.errors import InputError
from namsa.base.text import shorten


class Draws:
    """Draws the parameters of one specimen from a seed.

    A value is drawn whether it is given or not, so that giving one leaves the others as they are.

    Attributes:
        rng: The source of all that is random in the specimen.
        used: The parameters that were drawn or given so far, by name.
    """

    def __init__(self, seed: int, given: Mapping[str, object] | None = None) -> None:
        """Starts anew from a seed.

        Args:
            given: Values to take in place of drawn ones, by name.
        """
        self.rng = np.random.default_rng(seed)
        self.used: dict[str, object] = {}
        self._given = dict(given or {})

    def uniform(self, name: str, drawn: tuple[float, float], allowed: tuple[float, float]) -> float:
        """Returns a number that is drawn evenly from a range (least, most), to three digits after
        the point.

        Raises:
            InputError: If the given value is outside the allowed range.
        """
        least, most = drawn
        value: Any = round(least + (most - least) * float(self.rng.random()), 3)
        if name in self._given:
            value = self._given[name]
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (is_number and allowed[0] <= value <= allowed[1]):
                raise InputError(
                    f"{name} is {shorten(value)}; it must be a number of {allowed[0]:g} to "
                    f"{allowed[1]:g}"
                )
        self.used[name] = value
        return float(value)

    def choice(self, name: str, values: Sequence[object]) -> Any:
        """Returns one of `values`, all equally likely. Raises InputError if a value is given that
        is none of them.
        """
        value = values[int(self.rng.integers(len(values)))]
        if name in self._given:
            value = self._given[name]
            if value not in values:
                raise InputError(
                    f"{name} is {shorten(value)}; it must be one of {', '.join(map(str, values))}"
                )
        self.used[name] = value
        return value

    def check_given(self) -> None:
        """Raises InputError for a given value that was not used."""
        if unknown := sorted(self._given.keys() - self.used.keys()):
            known = ", ".join(self.used) or "none"
            raise InputError(
                f"parameter {shorten(unknown[0])} is not known to this kind; its parameters are "
                f"{known}"
            )
