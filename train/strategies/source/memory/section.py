"""Section data.source of kind memory."""

from typing import Annotated, Literal

from pydantic import Field

from ....experiment.data import LayeredSection, Simulated, SourceSection
from ....experiment.registry import OfKind


class Memory(LayeredSection):
    """Samples that the ranks keep in memory: each reads a part of them once, and sends them to
    those that need them.
    """

    kind: Literal["memory"] = "memory"
    of: Annotated[
        SourceSection, OfKind("source", Simulated, ("drawn", "fixed", "slabs", "staged"))
    ] = Field(Simulated(), description="the source from which samples are read, once")
