"""Section data.source of kind fixed."""

from typing import Annotated, Literal

from pydantic import Field

from ....experiment.data import LayeredSection, Simulated, SourceSection
from ....experiment.registry import OfKind


class Fixed(LayeredSection):
    """Each rank learns from its own share of the samples throughout, in another order in each
    epoch.
    """

    kind: Literal["fixed"] = "fixed"
    of: Annotated[SourceSection, OfKind("source", Simulated, ("drawn", "staged"))] = Field(
        Simulated(), description="the source of the samples"
    )

    def decides(self) -> dict[str, object]:
        return {"kind": self.kind, "of": self.of.decides()}
