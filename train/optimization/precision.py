"""Arithmetic with fewer bits: the network's policy, and the loss scale that keeps float16 gradients from vanishing.

The order in a step: scale the loss, differentiate, average the scaled gradients over the ranks, then test whether they
are finite, unscale, and update. An infinity or NaN of one rank survives the average, so that all ranks skip the step
and lower the scale together, without a collective of their own. Weights and moments are float32 throughout.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
from keras import ops

from train.experiment.sections import Training

Tensor = Any

# LogMax, with the numbers of OpenSeq2Seq (Kuchaiev et al. 2018): logarithms of the largest gradients are taken as
# normally distributed, and one in a thousand may overflow.
LOG_MAX = 16.0  # float16 ends just below 2^16
FAST, SLOW = 0.99, 0.999
DEVIATIONS = 3.09
LARGEST_SCALE = 2.0**24


@contextmanager
def policy(name: str) -> Iterator[None]:
    """Layers made inside compute in the Keras policy `name`; their variables stay float32."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def with_loss_scale(optimizer: keras.optimizers.Optimizer, training: Training) -> keras.optimizers.Optimizer:
    """`optimizer` behind a dynamic loss scale where gradients are float16, in the network or on the wire."""
    config = training.precision
    if config.compute != "mixed_float16" and training.reduction.compression != "fp16":
        return optimizer
    kind = LogMaxOptimizer if config.loss_scaling == "logmax" else keras.optimizers.LossScaleOptimizer
    return kind(
        optimizer,
        initial_scale=config.initial_loss_scale,
        dynamic_growth_steps=config.growth_steps,
        name="loss_scale",
    )


def loss_scale(optimizer: keras.optimizers.Optimizer) -> Any:
    """What the loss is multiplied by: a scalar variable, or 1.0."""
    return getattr(optimizer, "dynamic_scale", 1.0)


class LogMaxOptimizer(keras.optimizers.LossScaleOptimizer):
    """Keras' loss scale with another rule for it: as large as keeps all but one step in a thousand from overflowing.

    A step with a gradient that is not finite changes no weight, and at least halves the scale.
    """

    def build(self, variables: list[keras.Variable]) -> None:
        super().build(variables)
        self.statistics = self.add_variable(shape=(4,), initializer="zeros", dtype="float32", name="log_max")

    def apply(self, gradients: Sequence[Tensor], trainable_variables: Any = None) -> None:
        scale = ops.convert_to_tensor(self.dynamic_scale)
        finite = self.check_finite(gradients)
        largest = ops.max(ops.stack([ops.max(ops.abs(gradient)) for gradient in gradients])) / scale
        log_largest = ops.where(finite & (largest > 0), ops.log2(ops.maximum(largest, 1e-30)), LOG_MAX)
        statistics = log_max_statistics(self.statistics.value, log_largest)
        wanted = log_max_scale(statistics)

        def update() -> None:
            self.inner_optimizer.apply([gradient / scale for gradient in gradients], trainable_variables)
            self.statistics.assign(
                ops.where(largest > 0, statistics, self.statistics)
            )  # of zeros there is no logarithm
            self.dynamic_scale.assign(ops.where(largest > 0, wanted, scale))

        def skip() -> None:
            self.statistics.assign(statistics)
            self.dynamic_scale.assign(ops.minimum(wanted, scale / 2))

        ops.cond(finite, update, skip)


def log_max_statistics(statistics: Tensor, log_largest: Tensor) -> Tensor:
    """(steps, fast mean, slow mean, slow mean square) of log₂ of the steps' largest gradients, with one step more."""
    steps, fast, slow, square = ops.unstack(statistics, 4)
    return ops.stack(
        [
            steps + 1,
            FAST * fast + (1 - FAST) * log_largest,
            SLOW * slow + (1 - SLOW) * log_largest,
            SLOW * square + (1 - SLOW) * log_largest**2,
        ]
    )


def log_max_scale(statistics: Tensor) -> Tensor:
    """The scale that puts the distribution's 99.9th percentile at float16's end, between 1 and 2^24."""
    steps, fast, slow, square = ops.unstack(statistics, 4)
    unbiased = 1 - SLOW**steps
    mean = fast / (1 - FAST**steps)
    deviation = ops.sqrt(ops.maximum(square / unbiased - (slow / unbiased) ** 2, 0.0))
    return ops.clip(2.0 ** (LOG_MAX - (mean + DEVIATIONS * deviation)), 1.0, LARGEST_SCALE)
