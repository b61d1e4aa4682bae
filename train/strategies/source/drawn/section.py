"""Section data.source of kind drawn."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from ....experiment.data import SourceSection


class DrawnSamples(SourceSection):
    """Random samples of a dataset, which each node draws and copies to its data.directory; nothing
    is simulated.
    """

    kind: Literal["drawn"] = "drawn"
    folder: Path = Field(description="the dataset, on a file system that all nodes share")
    samples: int = Field(
        ge=1,
        le=10**9,
        description="number of training samples that each node draws at random, by the seed, and "
        "gets, with its part "
        "of the held-out samples",
    )

    @property
    def per_node(self) -> bool:
        return True

    @property
    def copied_from(self) -> Path | None:
        return self.folder

    def decides(self) -> dict[str, object]:
        return self.model_dump(mode="json", include={"kind", "samples"})
