"""Section training.split: division of each sample over ranks. Without `train/strategies/division` samples are whole."""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from namsa.config.loading import Section

from . import registry

Experiment = Any  # `train.experiment.experiment.Experiment`, which imports this module


class DivisionSection(Section):
    """Samples that are whole, and base class of a division."""

    ways: int = Field(1, ge=1, le=1, description="number of ranks that a sample is divided over")
    axis: Literal["z", "y", "x"] = Field(
        "y", description="axis of the network's image along which it is divided, of volumes z"
    )

    @property
    def axis_index(self) -> int:
        """The axis as an index."""
        return {"z": 0, "y": 0, "x": 1}[self.axis]

    def check(self, experiment: Experiment) -> None:
        """Raises ValueError if the division does not fit the rest of the configuration."""

    def reads_parts(self, experiment: Experiment) -> bool:
        """Returns whether a rank can read its part of a sample alone."""
        return False


def _division() -> Any:
    """Returns the section that the folder of a division has, if there is one."""
    for kind in registry.kinds("division"):
        registry.strategy("division", kind, "section")
    return next(iter(DivisionSection.__subclasses__()), DivisionSection)


if TYPE_CHECKING:
    Division = DivisionSection
else:
    Division = _division()
