"""Gradient lag: a step updates with the gradients of the step before, whose reduction overlaps with the whole step."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..experiment.reduction import Reduction

Tensor = Any


def gradient_buffers(weights: Sequence[Any], config: Reduction) -> list[keras.Variable]:
    """Returns the variables that keep a step's gradients for the next step, for `lag` 1; none without lag.

    Gradients are zero before the first step, which therefore changes no weight. Each rank has its own, and they are
    part of the job's state: `train.ranks.reduction.average` makes them the same on all ranks, and does not change those
    that are the same.

    Args:
        weights: The network's trainable variables.
        config: The section training.reduction.

    Returns:
        One variable in the shape of each weight, and one for their loss scale.
    """
    if not config.lag:
        return []
    shapes = [(weight.path.replace("/", "_"), weight.shape) for weight in weights] + [("loss_scale", ())]
    return [
        keras.Variable(
            np.full(shape, float(name == "loss_scale")), dtype="float32", trainable=False, name=f"waiting_{name}"
        )
        for name, shape in shapes
    ]


def swap_gradients(gradients: Sequence[Tensor], scale: Tensor, buffers: Sequence[Any]) -> list[Tensor]:
    """Stores this step's gradients and returns those of the step before.

    The latter depend on nothing that this step computes, so that their reduction overlaps with all of it.

    Args:
        gradients: Of this step, times `scale`.
        scale: The loss scale of this step.
        buffers: See `gradient_buffers`.

    Returns:
        The gradients of the step before, converted from their loss scale to `scale`.
    """
    previous = [tf.identity(variable.value) for variable in buffers]
    for variable, current in zip(buffers, [*gradients, scale], strict=True):
        variable.assign(current)
    return [gradient * (scale / previous[-1]) for gradient in previous[:-1]]
