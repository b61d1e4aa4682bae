"""The training step, and an epoch of them.

What a step reports: loss = huber + l2, huber the mean over the ranks' batches, in the units of training; grad_norm, the
norm of the averaged gradient before LARS; loss_scale, as used in the step. Times are this rank's, in seconds: step_s
from asking for a batch to the updated weights, data_s waiting for the batch, compute_s forward and backward pass,
comm_s from this rank's last gradient to the last average, misc_s the rest, of which data_s is a part. Groups of
gradients travel while others are computed: comm_s is what that did not hide, with the wait for the slowest rank.
samples_per_s is of all ranks.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from namsa.errors import WorkError
from train import grouping, losses, precision, reduction
from train.config import Training
from train.schedules import learning_rate

Tensor = Any
Step = Callable[..., Tensor]
Row = dict[str, Any]

MEASURED = ("huber", "l2", "loss_scale", "grad_norm", "comm_s", "compute_s")


def make_step(
    model: keras.Model, optimizer: keras.optimizers.Optimizer, training: Training, waiting: Sequence[Any] = ()
) -> Step:
    """step(x, y, rate, delta): one update of `model`, the same on all ranks; returns the numbers of `MEASURED`.

    They come back as one tensor, and so in one copy from the device. With gradients `waiting` (reduction.lag) the
    update is by the step's before. Raises InputError where reduction.group_list does not fit the network.
    """
    weights = model.trainable_variables
    paths = [weight.path for weight in weights]
    grouping.colours(paths, training.reduction)
    penalised = losses.kernels(weights)
    statistics = model.non_trainable_weights

    @tf.function(autograph=False)  # no Python control flow to convert, and converting takes longer than tracing
    def step(x: Tensor, y: Tensor, rate: Tensor, delta: Tensor) -> Tensor:
        began = tf.timestamp()
        scale = tf.convert_to_tensor(precision.loss_scale(optimizer))
        before = [tf.identity(statistic.value) for statistic in statistics]
        with tf.GradientTape() as tape:
            huber = losses.huber(model(x, training=True), y, delta)
            l2 = losses.l2(penalised, training.loss.l2)
            scaled = scale * (huber + l2)
        gradients = tape.gradient(scaled, [weight.value for weight in weights])
        computed = _time_after(gradients)
        groups = grouping.groups(gradients, paths, training.reduction)
        used = reduction.delayed(gradients, scale, waiting) if waiting else gradients
        averaged = reduction.average_gradients(used, groups, training.reduction)
        communicated = _time_after(averaged)
        grad_norm = tf.linalg.global_norm(averaged) / scale
        optimizer.learning_rate.assign(rate)
        optimizer.apply(averaged, weights)  # behind a loss scale: nothing but a smaller scale where not finite
        finite = tf.math.is_finite(tf.linalg.global_norm(gradients) if waiting else grad_norm)
        for statistic, value in zip(statistics, before, strict=True):  # moving averages would never forget an infinity
            statistic.assign(tf.where(finite, statistic.value, value))
        waited = tf.maximum(communicated - computed, 0)  # late gradients may be there before
        times = [tf.cast(seconds, tf.float32) for seconds in (waited, computed - began)]
        huber = huber if training.reduction.local else reduction.average_scalar(huber, "huber")
        return tf.stack([huber, l2, scale, grad_norm, *times])

    return step


def _time_after(tensors: Sequence[Tensor]) -> Tensor:
    """The host's clock once all `tensors` are computed, float64 seconds.

    A GPU's operations end for TensorFlow when they are queued; one number copied to the host waits for the queue.
    """
    with tf.control_dependencies(tensors):
        probe = tf.reshape(tensors[0], [-1])[:1]
    with tf.device("/CPU:0"):
        arrived = tf.identity(probe)
        with tf.control_dependencies([arrived]):
            return tf.timestamp()


def train_epoch(
    step: Step,
    batches: Iterator[tuple[Tensor, Tensor]],
    training: Training,
    epoch: int,
    first: int,
    steps: int,
    ranks: int,
    state: Sequence[Any] = (),
) -> Iterator[Row]:
    """Takes `steps` steps, the first of which is the job's number `first` (from 1), and yields a row after each.

    With local SGD (reduction.synchronise) a row is the rank's own, but where the ranks average `state`, all variables
    of the network and the optimizer: then it is the mean. Raises WorkError, on every rank at the same step, where
    training has diverged.
    """
    delta = losses.huber_delta(training.loss, epoch)
    for index in range(steps):
        rate = learning_rate(training.schedule, training.optimizer.learning_rate, ranks, epoch + index / steps)
        started = time.perf_counter()
        x, y = next(batches)
        loaded = time.perf_counter()
        numbers = step(x, y, tf.constant(rate, tf.float32), tf.constant(delta, tf.float32)).numpy().tolist()
        agreed = not training.reduction.local
        if reduction.due(training.reduction, first + index, index == steps - 1):
            numbers, agreed = reduction.synchronise(state, numbers), True
        ended = time.perf_counter()
        measured = dict(zip(MEASURED, numbers, strict=True))
        row = {
            "step": first + index,
            "epoch": epoch,
            "loss": measured["huber"] + measured["l2"],
            "huber": measured["huber"],
            "l2": measured["l2"],
            "delta": delta,
            "lr": rate,
            "loss_scale": measured["loss_scale"],
            "grad_norm": measured["grad_norm"],
            "step_s": ended - started,
            "data_s": loaded - started,
            "comm_s": measured["comm_s"],
            "compute_s": measured["compute_s"],
            "misc_s": max(0.0, ended - started - measured["comm_s"] - measured["compute_s"]),
            "samples_per_s": ranks * training.batch_size / (ended - started),
        }
        if agreed:
            _check_finite(row)
        yield row


def _check_finite(row: Row) -> None:
    """A step that is not finite is skipped where a loss scale can still be halved; elsewhere it ends the job."""
    if row["loss_scale"] <= 1 and not (math.isfinite(row["loss"]) and math.isfinite(row["grad_norm"])):
        raise reduction.alike(
            WorkError(
                f"training diverged at step {row['step']}: loss {row['loss']:g}, gradient norm {row['grad_norm']:g}; "
                "lower training.optimizer.learning_rate, or warm up longer, and run again from the last checkpoint"
            )
        )
