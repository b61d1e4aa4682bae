"""The loss of one batch on one rank, and its gradients."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from ..experiment.sections import Training
from . import losses
from .losses import Objective

Tensor = Any


class Differentiated(NamedTuple):
    """What a batch gives. All are tensors."""

    terms: Sequence[Tensor]  # the terms of the objective
    l2: Tensor  # L2 penalty of the kernels
    loss: Tensor  # the sum of the terms and l2
    statistics: Sequence[Tensor]  # moving averages of the normalisations after the batch
    gradients: Sequence[Tensor]  # of the loss times the loss scale, one for each trainable variable


def differentiate(
    model: keras.Model,
    training: Training,
    x: Tensor,  # inputs
    y: Tensor,  # targets
    setting: Tensor,  # the objective's number that changes with the epoch, as Huber's δ
    scale: Tensor,
    objective: Objective | None = None,  # the task's loss; `None` for that of a density
) -> Differentiated:
    """Computes the loss of a batch and its gradients, and updates the normalisations. Call it inside a tf.function."""
    weights = model.trainable_variables
    with tf.GradientTape() as tape, tf.name_scope("forward"):  # tells these operations from the others in a profile
        terms = list((objective or losses.DensityObjective(training.loss))(model(x, training=True), y, setting))
        l2 = losses.l2(losses.kernels(weights), training.loss.l2)
        loss = sum(terms[1:], start=terms[0]) + l2
        scaled_loss = scale * loss
    statistics = [tf.convert_to_tensor(statistic.value) for statistic in model.non_trainable_weights]
    gradients = tape.gradient(scaled_loss, [weight.value for weight in weights])
    return Differentiated(terms, l2, loss, statistics, gradients)


def time_before(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the host's clock before `tensor` is used, float64 seconds, and the tensor.

    Without a tensor that waits for it the clock may be read at any time: on one core, behind the gradients.
    """
    started = tf.timestamp()
    with tf.control_dependencies([started]):
        return started, tf.identity(tensor)


def time_after(tensors: Sequence[Tensor]) -> Tensor:
    """Returns the host's clock after all `tensors` are computed, float64 seconds.

    TensorFlow regards a GPU's operations as done when they are queued. Copying one number to the host waits for them.
    """
    with tf.control_dependencies(tensors):
        probe = tf.reshape(tensors[0], [-1])[:1]
    with tf.device("/CPU:0"):
        arrived = tf.identity(probe)
        with tf.control_dependencies([arrived]):
            return tf.timestamp()
