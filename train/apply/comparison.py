"""What was estimated of a scan, beside what a network has learnt."""

from typing import Any, NamedTuple, Protocol

from namsa.config.simulation import SimulationConfig


class Comparison(NamedTuple):
    """The comparison of some quantities.

    Attributes:
        said: A line about each quantity.
        outside: Those of the quantities that lie outside.
        checked: The settings that were compared.
        facts: The quantities and the network that they are from; JSON types.
    """

    said: list[str]
    outside: list[str]
    checked: frozenset[str]
    facts: dict[str, Any]


class Estimated(Protocol):
    """Quantities of a scan, as `train.estimate` returns them."""

    def compared_with(self, config: SimulationConfig) -> Comparison:
        """Returns how they compare with the samples that a network was trained on.

        Args:
            config: The configuration of the network's samples.
        """
