"""Section training.exchange of kind sharded."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from namsa.config.loading import Section

from ....experiment.exchange import GradientGroups
from ....program import PROGRAM


class Transfer(Section):
    """The number format of weights on the network."""

    precision: Literal["adaptive", 8, 16, 24, 32] = Field(
        32,
        description="bits of each weight that travel, of float32's the highest; the others are zero where it arrives. "
        "'adaptive' raises them layer by layer (AWP). Biases and normalisations travel whole",
    )
    start_bits: int = Field(8, ge=1, le=32, description="with 'adaptive': bits of every layer in the first step")
    threshold: float | None = Field(
        None,
        ge=-1,
        le=1,
        description="with 'adaptive': relative change of the norm of a layer's weights in a step below which the step "
        f"counts; {PROGRAM} threshold RUN_DIR gives it",
    )
    interval: int = Field(
        4000, ge=1, le=10**9, description="with 'adaptive': steps that count after which a layer gets more bits"
    )
    step_bits: int = Field(8, ge=1, le=32, description="with 'adaptive': bits that a layer gets more")

    @model_validator(mode="after")
    def _threshold_is_known(self) -> "Transfer":
        if self.precision == "adaptive" and self.threshold is None:
            raise ValueError(
                "precision adaptive needs threshold: train with precision 32 until the validation error first drops, "
                f"and take the number that {PROGRAM} threshold RUN_DIR prints"
            )
        return self

    @property
    def first_bits(self) -> int:
        """Bits of every layer in the first step."""
        return self.start_bits if self.precision == "adaptive" else self.precision


class Sharded(GradientGroups):
    """Each weight is updated by the rank that owns it, which takes its gradients and sends it to the others."""

    excludes: ClassVar[Mapping[str, str]] = {
        "checkpoints.every_seconds": "with which all ranks give a part of a checkpoint, and have no clock in common",
        "precision.loss_scaling logmax": "which leaves each rank its own largest gradient",
    }

    kind: Literal["sharded"] = "sharded"
    transfer: Transfer = Transfer()
