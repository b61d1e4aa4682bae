"""Arithmetic with fewer bits: the network's policy, and the loss scale that keeps float16 gradients from vanishing.

The order in a step: scale the loss, differentiate, average the scaled gradients over the ranks, then test whether they
are finite, unscale, and update. An infinity or NaN of one rank survives the average, so that all ranks skip the step
and halve the scale together, without a collective of their own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras

from train.config import Training


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
    """`optimizer` behind Keras' dynamic loss scale where gradients are float16, in the network or on the wire."""
    if training.precision.compute != "mixed_float16" and training.reduction.compression != "fp16":
        return optimizer
    return keras.optimizers.LossScaleOptimizer(
        optimizer,
        initial_scale=training.precision.initial_loss_scale,
        dynamic_growth_steps=training.precision.growth_steps,
        name="loss_scale",
    )


def loss_scale(optimizer: keras.optimizers.Optimizer) -> Any:
    """What the loss is multiplied by: a scalar variable, or 1.0."""
    return getattr(optimizer, "dynamic_scale", 1.0)
