"""The loss of one batch on one rank, and its gradients."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from fcdensenet.split import Split
from train.experiment.sections import Training
from train.optimization import losses

Tensor = Any


class Differentiated(NamedTuple):
    """What a batch gives. All are tensors.

    Attributes:
        huber: Mean Huber loss.
        likelihood: Mean negative log-likelihood of the error times its weight; 0 without a likelihood.
        l2: L2 penalty of the kernels.
        loss: huber + likelihood + l2.
        statistics: Moving averages of the normalisations after the batch.
        gradients: Of the loss times the loss scale, one for each trainable variable.
    """

    huber: Tensor
    likelihood: Tensor
    l2: Tensor
    loss: Tensor
    statistics: Sequence[Tensor]
    gradients: Sequence[Tensor]


def differentiate(
    model: keras.Model,
    training: Training,
    x: Tensor,
    y: Tensor,
    delta: Tensor,
    scale: Tensor,
    split: Split | None = None,
) -> Differentiated:
    """Computes the loss of a batch and its gradients, and updates the normalisations. Call it inside a tf.function.

    Args:
        model: The network.
        training: The section training.
        x: Inputs.
        y: Targets.
        delta: Huber's δ.
        scale: Loss scale.
        split: What the parts of a divided sample exchange. Loss and gradients are then those of this rank's part: their
            means over the ranks are those of whole samples.
    """
    weights = model.trainable_variables
    with tf.GradientTape() as tape:
        density, likelihood = model(x, training=True), tf.zeros(())
        if training.loss.likelihood != "none":
            density, u = losses.split_output(density, y)
            likelihood = losses.LIKELIHOOD_WEIGHT * losses.negative_log_likelihood(density, u, y, training.loss, split)
        huber = losses.huber(density, y, delta, training.loss.relative, split)
        l2 = losses.l2(losses.kernels(weights), training.loss.l2)
        loss = huber + likelihood + l2
        scaled_loss = scale * loss
    statistics = [tf.convert_to_tensor(statistic.value) for statistic in model.non_trainable_weights]
    gradients = tape.gradient(scaled_loss, [weight.value for weight in weights])
    return Differentiated(huber, likelihood, l2, loss, statistics, gradients)


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
