"""Section data: where samples are stored, and `data.source`, which says how they come to a rank.

The default source simulates samples. The sections of the other kinds are in their folders,
`train/strategies/source`.
"""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from namsa.config import simulation
from namsa.config.loading import Section

from .registry import KindSection, OfKind


class SourceSection(KindSection):
    """Base class of the sections data.source."""

    variants: ClassVar[dict[str, type[Section]]] = {}

    def check(self, experiment: Any) -> None:
        """Raises ValueError if the source does not fit the rest of the configuration.

        Args:
            experiment: The `Experiment`, whose module imports this one.
        """

    @property
    def per_node(self) -> bool:
        """Whether the nodes have different samples, which their own ranks share."""
        return False

    @property
    def simulates(self) -> bool:
        """Whether samples that are missing are simulated."""
        return False

    @property
    def copied_from(self) -> Path | None:
        """The dataset that is copied to data.directory; `None` if none is."""
        return None

    def decides(self) -> dict[str, object]:
        """Returns what of the section decides which samples are learnt, and in which order.

        A run that is continued is compared by it.
        """
        return self.model_dump(mode="json")


class FolderSection(SourceSection):
    """Base class of the sources whose folder may be one for all nodes, or each node's own."""

    node_local: bool = Field(
        False,
        description="whether each node holds only the part that its own ranks wrote or that was "
        "copied to it",
    )

    def check(self, experiment: Any) -> None:
        if experiment.training.samples and self.node_local:
            raise ValueError(
                "training.samples counts the samples of all nodes, which data.source.node_local "
                "keeps apart: unset one of them"
            )

    @property
    def per_node(self) -> bool:
        return self.node_local

    def decides(self) -> dict[str, object]:
        return {"kind": Simulated.model_fields["kind"].default, "node_local": self.node_local}


class Simulated(FolderSection):
    """The samples in data.directory, where those that are missing are simulated."""

    kind: Literal["simulated"] = "simulated"

    @property
    def simulates(self) -> bool:
        return True


class LayeredSection(SourceSection):
    """Base class of the sources that read what another source brings.

    Attributes:
        of: The other source.
    """

    of: SourceSection

    def check(self, experiment: Any) -> None:
        self.of.check(experiment)

    @property
    def per_node(self) -> bool:
        return self.of.per_node

    @property
    def simulates(self) -> bool:
        return self.of.simulates

    @property
    def copied_from(self) -> Path | None:
        return self.of.copied_from

    def decides(self) -> dict[str, object]:
        return self.of.decides()


class TrainingData(simulation.Data):
    """The dataset: where it is stored, and how; and how its samples come to a rank."""

    def as_it_lies(self) -> "TrainingData":
        """Returns the section for reading samples without copying them: a run of others may name
        any folder.
        """
        kept = self.source.copied_from
        directory = kept if kept and kept.is_dir() else self.directory
        if kept:
            return self.model_copy(update={"directory": directory, "source": Simulated()})
        return self

    source: Annotated[SourceSection, OfKind("source", Simulated)] = Field(
        Simulated(), description="where a rank's samples come from"
    )
