"""The loss of one batch on one rank, its gradients, and their mean over several batches.

Accumulation: K batches on each of R ranks give the gradients, the losses and the moving averages of
normalisations of one batch on each of K·R ranks, to rounding, by one reduction and one update.
Dropout is drawn anew for each batch. A batch whose gradients are not finite makes the mean not
finite, so that a loss scale skips the whole update.
"""

from collections.abc import Sequence
from typing import cast

import keras
import tensorflow as tf

from namsa.base.arrays import Tensor

from ..experiment.sections import Training
from . import losses, precision
from .losses import Differentiated, Objective


def differentiate(
    model: keras.Model,
    training: Training,
    x: Tensor,  # inputs
    y: Tensor,  # targets
    setting: Tensor,  # the objective's number that changes with the epoch, as Huber's δ
    scale: Tensor,
    objective: Objective | None = None,  # the task's loss; `None` for that of a density
) -> Differentiated:
    """Computes the loss of a batch and its gradients, and updates the normalisations. Call it
    inside a tf.function.
    """
    weights = model.trainable_variables
    with (
        tf.GradientTape() as tape,
        tf.name_scope("forward"),
    ):  # tells these operations from the others in a profile
        terms = list(
            (objective or losses.DensityObjective(training.loss))(
                model(x, training=True), y, setting
            )
        )
        l2 = losses.l2(losses.kernels(weights), training.loss.l2)
        loss = sum(terms[1:], start=terms[0]) + l2
        scaled_loss = scale * loss
    statistics = [
        tf.convert_to_tensor(statistic.value) for statistic in model.non_trainable_weights
    ]
    gradients = tape.gradient(scaled_loss, [weight.value for weight in weights])
    return Differentiated(terms, l2, loss, statistics, gradients)


def time_before(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the host's clock before `tensor` is used, float64 seconds, and the tensor.

    Without a tensor that waits for it the clock may be read at any time: on one core, behind the
    gradients.
    """
    started = tf.timestamp()
    with tf.control_dependencies([started]):
        return started, tf.identity(tensor)


def time_after(tensors: Sequence[Tensor]) -> Tensor:
    """Returns the host's clock after all `tensors` are computed, float64 seconds.

    TensorFlow regards a GPU's operations as done when they are queued. Copying one number to the
    host waits for them.
    """
    with tf.control_dependencies(tensors):
        probe = tf.reshape(tensors[0], [-1])[:1]
    with tf.device("/CPU:0"):
        arrived = tf.identity(probe)
        with tf.control_dependencies([arrived]):
            return tf.timestamp()


def _zeros_like(variables: Sequence[keras.Variable]) -> list[Tensor]:
    """Returns zeros of the shapes of variables."""
    return [tf.zeros(variable.shape) for variable in variables]


class Accumulation:
    """Sums over the batches of an update. They are zero between updates, and so no part of a
    checkpoint.

    Attributes:
        add: A tf.function add(x, y, setting) that adds a batch, any but the last of an update, and
            returns the time of its forward and backward pass, s.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        training: Training,
        objective: Objective | None = None,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.training = training
        self.objective = objective or losses.DensityObjective(training.loss)
        zeros = Differentiated(
            terms=[tf.zeros(()) for _ in self.objective.terms],
            l2=tf.zeros(()),
            loss=tf.zeros(()),
            statistics=_zeros_like(model.non_trainable_weights),
            gradients=_zeros_like(model.trainable_variables),
        )
        self.sums = [tf.Variable(zero, trainable=False) for zero in tf.nest.flatten(zeros)]
        self.add = tf.function(self._add, autograph=False)

    def _add(self, x: Tensor, y: Tensor, setting: Tensor) -> Tensor:
        """See `add`. The normalisations' moving averages stay as they are until the update."""
        started, x = time_before(x)
        statistics = self.model.non_trainable_weights
        old_statistics = [tf.identity(statistic.value) for statistic in statistics]
        scale = tf.convert_to_tensor(precision.loss_scale(self.optimizer))
        batch = differentiate(self.model, self.training, x, y, setting, scale, self.objective)
        for total, gradient in zip(self.sums, tf.nest.flatten(batch), strict=True):
            total.assign_add(gradient)
        for statistic, old in zip(statistics, old_statistics, strict=True):
            statistic.assign(old)
        return time_after(batch.gradients) - started

    def mean_with(self, last: Differentiated) -> Differentiated:
        """Returns the mean over the batches of an update, and clears the sums. Call it inside a
        tf.function.
        """
        flat = tf.nest.flatten(last)
        means = [
            (total + gradient) / self.training.accumulate
            for total, gradient in zip(self.sums, flat, strict=True)
        ]
        for total in self.sums:
            total.assign(tf.zeros_like(total))
        return cast(Differentiated, tf.nest.pack_sequence_as(last, means))
