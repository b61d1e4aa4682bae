"""Section data.source of kind staged."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from ....experiment.data import FolderSection


class Staged(FolderSection):
    """A dataset that is copied to each node's data.directory before training; nothing is
    simulated.
    """

    kind: Literal["staged"] = "staged"
    folder: Path = Field(description="the dataset, on a file system that all nodes share")

    @property
    def copied_from(self) -> Path | None:
        return self.folder
