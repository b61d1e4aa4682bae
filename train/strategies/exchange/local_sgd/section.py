"""Section training.exchange of kind local_sgd."""

from collections.abc import Mapping
from math import prod
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from fcdensenet.layer_counts import NetworkCount

from ....experiment.exchange import Count, ExchangeSection, ModelledExchange, Synchronisations

_WITHIN = "with which ranks differ between their averages"


class LocalSGD(ExchangeSection):
    """Ranks update by their own gradients, and average their weights after some steps and at the
    end of each epoch.
    """

    excludes: ClassVar[Mapping[str, str]] = {
        "checkpoints.every_steps": _WITHIN,
        "checkpoints.every_seconds": _WITHIN,
        "split.ways": "with which the parts of a sample would have different weights",
        "optimizer.kind function": "which averages moments that it must know",
        "accumulate": "which averages no gradients",
        "precision.compute mixed_float16": "with which each rank would skip steps by itself, so "
        "that their loss scales "
        "and moments part (mixed_bfloat16 needs no loss scale)",
    }

    kind: Literal["local_sgd"] = "local_sgd"
    synchronise: Literal["epoch"] | Count = Field(
        description="number of steps after which ranks average their weights, or 'epoch': only at "
        "the end of each epoch"
    )
    average_moments: bool = Field(
        False,
        description="average the optimizer's moments with the weights, in a message two "
        "(momentum) or three times "
        "(Adam) as large; false: each rank keeps its own (Yoginath et al. 2019), and checkpoints "
        "hold them",
    )
    precision: Literal[8, 16, 24, 32] = Field(
        32,
        description="bits of each weight that travel, of float32's the highest; below 32 they are "
        "those of its change "
        "since the last average. Biases and normalisations travel whole",
    )

    @model_validator(mode="after")
    def _moments_travel_whole(self) -> "LocalSGD":
        if self.average_moments and self.precision != 32:
            raise ValueError(
                f"average_moments sends moments in 32 bits, and precision is {self.precision}: set "
                "average_moments to false, or precision to 32"
            )
        return self

    @property
    def value_bytes(self) -> int:
        """Bytes in which a value of a kernel travels."""
        return self.precision // 8

    def synchronisations(self, network: NetworkCount, moments: int) -> Synchronisations:
        averaged = moments if self.average_moments else 0
        changed = sum(prod(layer.kernel_shape) for layer in network.layers if layer.kernel_shape)
        full_values = network.parameters - changed + averaged * network.trainable_parameters
        return Synchronisations(self.synchronise, self.value_bytes * changed + 4 * full_values)

    def within(self, steps: int) -> "LocalSGD":
        if isinstance(self.synchronise, int) and self.synchronise <= steps:
            return self
        return self.model_copy(update={"synchronise": steps})

    def modelled(self, moments: int) -> ModelledExchange:
        return {
            "groups": 8,
            "allreduce": "tree",
            "synchronise": self.synchronise,
            "averaged_per_weight": 1 + moments if self.average_moments else 1,
            "kernel_bytes": self.value_bytes,
        }
