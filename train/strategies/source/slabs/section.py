"""Section data.source of kind slabs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from ....experiment.data import LayeredSection, Simulated, SourceSection
from ....experiment.registry import OfKind

if TYPE_CHECKING:
    from ....experiment.experiment import Experiment


class Slabs(LayeredSection):
    """Parts of training samples from an HDF5 file, for ranks that divide samples."""

    kind: Literal["slabs"] = "slabs"
    file: Path = Field(
        description="an HDF5 file that `namsa export --tiles` has written, from which ranks of "
        "training.split read "
        "their parts of training samples"
    )
    of: Annotated[SourceSection, OfKind("source", Simulated, ("staged",))] = Field(
        Simulated(), description="the source of whole samples, as those that are held out"
    )

    def check(self, experiment: "Experiment") -> None:
        super().check(experiment)
        if experiment.training.split.ways == 1:
            raise ValueError(
                "data.source of kind slabs is read by ranks that divide samples, and "
                "training.split.ways is 1: raise it to 2 or more, or leave the source out"
            )
