"""Gradient accumulation: the gradients of K batches are averaged before one reduction and one update.

K batches on each of R ranks give the gradients, the losses and the moving averages of normalisations of one batch on
each of K·R ranks, to rounding. Dropout is drawn anew for each batch. A batch whose gradients are not finite makes the
mean not finite, so that a loss scale skips the whole update.
"""

from typing import Any, cast

import keras
import tensorflow as tf

from ..experiment.sections import Training
from . import losses, precision
from .gradients import Differentiated, differentiate, time_after, time_before
from .losses import Objective

Tensor = Any


class Accumulation:
    """Sums over the batches of an update. They are zero between updates, and so no part of a checkpoint.

    Attributes:
        add: A tf.function add(x, y, setting) that adds a batch, any but the last of an update, and returns the time of
            its forward and backward pass, s.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        training: Training,
        objective: Objective | None = None,
    ) -> None:
        self.model, self.optimizer, self.training = model, optimizer, training
        self.objective = objective or losses.DensityObjective(training.loss)
        zeros = Differentiated(
            terms=[tf.zeros(()) for _ in self.objective.terms],
            l2=tf.zeros(()),
            loss=tf.zeros(()),
            statistics=[tf.zeros(statistic.shape) for statistic in model.non_trainable_weights],
            gradients=[tf.zeros(weight.shape) for weight in model.trainable_variables],
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
        for total, part in zip(self.sums, tf.nest.flatten(batch), strict=True):
            total.assign_add(part)
        for statistic, old in zip(statistics, old_statistics, strict=True):
            statistic.assign(old)
        return time_after(batch.gradients) - started

    def mean_with(self, last: Differentiated) -> Differentiated:
        """Returns the mean over the batches of an update, and clears the sums. Call it inside a tf.function.

        Args:
            last: The last batch of the update.
        """
        flat = tf.nest.flatten(last)
        means = [(total + part) / self.training.accumulate for total, part in zip(self.sums, flat, strict=True)]
        for total in self.sums:
            total.assign(tf.zeros_like(total))
        return cast(Differentiated, tf.nest.pack_sequence_as(last, means))
