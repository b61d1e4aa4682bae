"""The training step as a graph of TensorFlow, on one rank of one or more."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from namsa.base.arrays import Tensor

from ..experiment.sections import Training
from ..ranks.exchange import Exchange
from . import precision
from .gradients import Accumulation, differentiate, time_after, time_before
from .losses import Objective
from .step_numbers import StepNumbers

make_accumulation = Accumulation


def make_step(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    training: Training,
    exchange: Exchange,
    accumulation: Accumulation | None,
    objective: Objective,
) -> Callable[..., Tensor]:
    """Returns the step, a tf.function; see `train.optimization.loop.make_step`."""
    statistics = model.non_trainable_weights

    # no Python control flow to convert, and converting takes longer than tracing
    @tf.function(autograph=False)
    def step(
        x: Tensor, y: Tensor, rate: Tensor, setting: Tensor, stop: Tensor | float = 0.0
    ) -> Tensor:
        started, x = time_before(x)
        scale = tf.convert_to_tensor(precision.loss_scale(optimizer))
        old_statistics = [tf.identity(statistic.value) for statistic in statistics]
        batch = differentiate(model, training, x, y, setting, scale, objective)
        means = accumulation.mean_with(batch) if accumulation else batch
        of_ranks = _mean_of_ranks(exchange, means.terms, stop, means.statistics)
        computed = time_after(means.gradients)
        averaged, norm = exchange.mean(means.gradients, scale)
        communicated = time_after(averaged)
        grad_norm = norm / scale
        optimizer.learning_rate.assign(rate)
        with tf.name_scope("update"):  # tells these operations from the others in a profile
            # With a loss scale, gradients that are not finite only lower the scale.
            optimizer.apply(averaged, exchange.updated)
        _assign_finite(statistics, old_statistics, of_ranks.statistics, grad_norm)
        sending = exchange.after_update(tf.math.is_finite(grad_norm))
        # With lag, the averages may be there before the gradients.
        exposed = sending + tf.maximum(communicated - computed, 0)
        numbers = StepNumbers(
            terms=of_ranks.terms,
            l2=means.l2,
            loss_scale=scale,
            grad_norm=grad_norm,
            comm_s=tf.cast(exposed, tf.float32),
            compute_s=tf.cast(computed - started, tf.float32),
            stop=of_ranks.stop,
        )
        return tf.stack([*numbers.to_list(), means.loss])

    return step


class _MeanNumbers(NamedTuple):
    """Means over the ranks."""

    terms: list[Tensor]  # of the objective
    stop: Tensor
    statistics: list[Tensor]  # moving averages of normalisations


def _mean_of_ranks(
    exchange: Exchange, terms: Sequence[Tensor], stop: Tensor | float, statistics: Sequence[Tensor]
) -> _MeanNumbers:
    """Returns the means of some numbers over the ranks, which are sent together."""
    averages = exchange.mean_numbers([*terms, tf.convert_to_tensor(stop), *statistics])
    number_of_terms = len(terms)
    return _MeanNumbers(
        averages[:number_of_terms],
        averages[number_of_terms],
        averages[number_of_terms + 1 :],
    )


def _assign_finite(
    statistics: Sequence[keras.Variable],
    old_values: Sequence[Tensor],
    new_values: Sequence[Tensor],
    grad_norm: Tensor,
) -> None:
    """Sets moving averages, which would never forget an infinity, to values that are finite."""
    finite = tf.math.is_finite(grad_norm) & tf.math.is_finite(
        tf.linalg.global_norm(new_values or [0.0])
    )
    for statistic, old, new in zip(statistics, old_values, new_values, strict=True):
        statistic.assign(tf.where(finite, new, old))
