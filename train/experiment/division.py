"""Section training.split: division of each sample over ranks. Without `train/strategies/division`
samples are whole.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from fcdensenet.split import FurtherAxes
from namsa.config.loading import Section

from . import registry

Axis = Literal["z", "y", "x"]


class DivisionSection(Section):
    """Samples that are whole, and base class of a division."""

    ways: int = Field(1, ge=1, le=1, description="number of ranks that a sample is divided over")
    axis: Axis = Field(
        "y", description="axis of the network's image along which it is divided, of volumes z"
    )
    further: dict[Axis, int] = Field(
        {},
        max_length=0,
        description="further axes along which each part is divided, with the number of ranks along "
        "each, as {x: 2}",
    )

    @property
    def ranks(self) -> int:
        """Number of ranks that divide a sample along all axes."""
        return self.ways * math.prod(self.further.values())

    def axis_index(self, input_shape: Sequence[int]) -> int:
        """Returns the axis as an index of the network's grid, from 0.

        Args:
            input_shape: Channels of the network's input, then the extents of its grid.
        """
        return _axis_index(self.axis, input_shape)

    def further_axes(self, input_shape: Sequence[int]) -> FurtherAxes:
        """Returns the further axes as indices of the network's grid, with the parts along each."""
        return tuple((_axis_index(axis, input_shape), n) for axis, n in self.further.items())

    def ranks_in_words(self) -> str:
        """Returns the number of ranks of a sample, as the beginning of a message."""
        if not self.further:
            return f"training.split.ways is {self.ways}"
        return f"training.split divides a sample over {self.ranks} ranks"

    def check(self, experiment: Any) -> None:
        """Raises ValueError if the division does not fit the rest of the configuration.

        Args:
            experiment: The `Experiment`, whose module imports this one.
        """

    def reads_parts(self, experiment: Any) -> bool:
        """Returns whether a rank can read its part of a sample alone."""
        return False


def _axis_index(axis: Axis, input_shape: Sequence[int]) -> int:
    grid_axes = len(input_shape) - 1
    return {"z": 0, "y": grid_axes - 2, "x": grid_axes - 1}[axis]


def _division() -> "type[DivisionSection]":
    """Returns the section that the folder of a division has, if there is one."""
    for kind in registry.kinds("division"):
        registry.strategy("division", kind, "section")
    return next(iter(DivisionSection.__subclasses__()), DivisionSection)


if TYPE_CHECKING:
    Division = DivisionSection
else:
    Division = _division()
