"""Values that are drawn at random unless a person gives them, with a record of those that were
used.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from namsa.base.errors import InputError
from namsa.base.text import shorten

Value = TypeVar("Value")


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
        number = round(least + (most - least) * float(self.rng.random()), 3)
        if name in self._given:
            number = _number_within(name, self._given[name], allowed)
        self.used[name] = number
        return float(number)

    def choice(self, name: str, values: Sequence[Value]) -> Value:
        """Returns one of `values`, all equally likely. Raises InputError if a value is given that
        is none of them.
        """
        drawn = values[int(self.rng.integers(len(values)))]
        if name not in self._given:
            self.used[name] = drawn
            return drawn
        given = self._given[name]
        for value in values:
            if value == given:
                self.used[name] = given
                return value
        raise InputError(
            f"{name} is {shorten(given)}; it must be one of {', '.join(map(str, values))}"
        )

    def check_given(self) -> None:
        """Raises InputError for a given value that was not used."""
        if unknown := sorted(self._given.keys() - self.used.keys()):
            known = ", ".join(self.used) or "none"
            raise InputError(
                f"parameter {shorten(unknown[0])} is not known to this kind; its parameters are "
                f"{known}"
            )


def _number_within(name: str, value: object, allowed: tuple[float, float]) -> float:
    """Returns a given number. Raises InputError if it is none, or outside the allowed range."""
    least, most = allowed
    is_boolean = isinstance(value, bool)
    if isinstance(value, int | float) and not is_boolean and least <= value <= most:
        return value
    raise InputError(f"{name} is {shorten(value)}; it must be a number of {least:g} to {most:g}")
