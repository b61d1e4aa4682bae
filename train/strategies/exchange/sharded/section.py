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
        description="bits of each weight that travel, of float32's the highest; the others are "
        "zero where it arrives. "
        "'adaptive' raises them layer by layer (AWP). Biases and normalisations travel whole",
    )
    start_bits: int = Field(
        8, ge=1, le=32, description="with 'adaptive': bits of every layer in the first step"
    )
    threshold: float | None = Field(
        None,
        ge=-1,
        le=1,
        description="with 'adaptive': relative change of the norm of a layer's weights in a step "
        "below which the step "
        "counts; namsa-train threshold RUN_DIR gives it",
    )
    interval: int = Field(
        4000,
        ge=1,
        le=10**9,
        description="with 'adaptive': steps that count after which a layer gets more bits",
    )
    step_bits: int = Field(
        8, ge=1, le=32, description="with 'adaptive': bits that a layer gets more"
    )
    units: Literal["layer", "block"] = Field(
        "layer",
        description="with 'adaptive': what has bits of its own, each layer or each residual block "
        "of a ResNet, whose layers count by the norm of all their weights (Zhuang et al. 2020)",
    )

    @model_validator(mode="after")
    def _threshold_is_known(self) -> "Transfer":
        if self.precision == "adaptive" and self.threshold is None:
            raise ValueError(
                "precision adaptive needs threshold: train with precision 32 until the validation "
                f"error first drops, and take the number that {PROGRAM} threshold RUN_DIR prints"
            )
        return self

    @property
    def first_bits(self) -> int:
        """Bits of every layer in the first step."""
        if self.precision == "adaptive":
            return self.start_bits
        return self.precision


class Sharded(GradientGroups):
    """Each weight is updated by the rank that owns it, which takes its gradients and sends it to
    the others.
    """

    excludes: ClassVar[Mapping[str, str]] = {
        "checkpoints.every_seconds": "with which all ranks give a part of a checkpoint, and have "
        "no clock in common",
        "optimizer.kind function": "which needs the moments of each variable",
        "optimizer.clip_norm": "which leaves each rank the gradients of its own variables",
        "precision.loss_scaling logmax": "which leaves each rank its own largest gradient",
    }

    kind: Literal["sharded"] = "sharded"
    transfer: Transfer = Transfer()
