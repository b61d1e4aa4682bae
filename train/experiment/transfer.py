"""Section training.reduction.transfer: in how many bits weights travel between ranks."""

from typing import Literal

from pydantic import Field, model_validator

from namsa.config.loading import Section

from ..program import PROGRAM


class Transfer(Section):
    """The number format of weights on the network: of sharded ones, and of those that local SGD averages."""

    precision: Literal["adaptive", 8, 16, 24, 32] = Field(
        32,
        description="bits of each weight that travel, of float32's the highest; the others are zero where it arrives. "
        "'adaptive' raises them layer by layer (AWP). With local SGD a weight's change since the last average travels. "
        "Biases and normalisations travel whole",
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
