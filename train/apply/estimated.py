"""Quantities of a scan that the network of another task estimated, beside those that a network has
learnt.
"""

from typing import Any, NamedTuple, Protocol

from namsa.config.simulation import SimulationConfig


class Comparison(NamedTuple):
    """The comparison of some quantities."""

    lines: list[str]  # a line about each quantity
    outside: list[str]  # those of the quantities that lie outside
    checked: frozenset[str]  # the settings that were compared
    facts: dict[str, Any]  # the quantities and the network that they are from; JSON types


class Estimated(Protocol):
    """Quantities of a scan, as `train.estimate` returns them."""

    def compared_with(self, config: SimulationConfig) -> Comparison:
        """Compares them with the samples that a network was trained on."""
