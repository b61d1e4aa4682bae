"""Section training.exchange of kind lag."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ....experiment.exchange import Allreduce, ExchangeSection, ModelledExchange
from ....experiment.registry import OfKind

_WITHIN = "which leaves gradients of a rank waiting within an epoch"


class Lag(ExchangeSection):
    """A step updates with the gradients of the step before, whose reduction overlaps with the whole
    step.
    """

    excludes: ClassVar[Mapping[str, str]] = {
        "checkpoints.every_steps": _WITHIN,
        "checkpoints.every_seconds": _WITHIN,
        "split.ways": "which updates the parts of a sample by gradients of different steps",
    }

    kind: Literal["lag"] = "lag"
    of: Annotated[ExchangeSection, OfKind("exchange", Allreduce, ("hybrid",))] = Field(
        Allreduce(),
        description="how the gradients are averaged meanwhile: a section of kind allreduce or "
        "hybrid",
    )

    @property
    def sends_float16(self) -> bool:
        return self.of.sends_float16

    def horovod_settings(self) -> dict[str, int]:
        return self.of.horovod_settings()

    def process_sets(self, ranks: int) -> Sequence[tuple[int, ...]]:
        return self.of.process_sets(ranks)

    def check_hosts(self, hosts: Sequence[Sequence[int]]) -> None:
        self.of.check_hosts(hosts)

    def modelled(self, moments: int) -> ModelledExchange:
        return self.of.modelled(moments) | {"lag": True}
