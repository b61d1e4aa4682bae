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
from train.experiment.sections import Training
from train.optimization import losses, precision
from train.optimization.schedules import learning_rate
from train.ranks import grouping, reduction
from train.ranks.signals import StopRequest

Tensor = Any
Step = Callable[..., Tensor]
Row = dict[str, Any]

MEASURED = ("huber", "l2", "loss_scale", "grad_norm", "comm_s", "compute_s", "stop")


def make_step(
    model: keras.Model, optimizer: keras.optimizers.Optimizer, training: Training, waiting: Sequence[Any] = ()
) -> Step:
    """step(x, y, rate, delta, stop): one update of `model`, the same on all ranks; returns the numbers of `MEASURED`
    and, last, the loss of this rank's own batch.

    They come back as one tensor, and so in one copy from the device. `stop` is 1 on a rank that wants to stop, and
    above 0 on all in return. It travels with the loss and the normalisations' statistics, which are so the same on all
    ranks after every step, as the weights are: rank 0's state is the job's. With gradients `waiting` (reduction.lag)
    the update is by the step's before. Raises InputError where reduction.group_list does not fit the network.
    """
    weights = model.trainable_variables
    paths = [weight.path for weight in weights]
    grouping.colours(paths, training.reduction)
    penalised = losses.kernels(weights)
    statistics = model.non_trainable_weights

    @tf.function(autograph=False)  # no Python control flow to convert, and converting takes longer than tracing
    def step(x: Tensor, y: Tensor, rate: Tensor, delta: Tensor, stop: Tensor | float = 0.0) -> Tensor:
        began = tf.timestamp()
        scale = tf.convert_to_tensor(precision.loss_scale(optimizer))
        before = [tf.identity(statistic.value) for statistic in statistics]
        with tf.GradientTape() as tape:
            huber = losses.huber(model(x, training=True), y, delta, training.loss.relative)
            l2 = losses.l2(penalised, training.loss.l2)
            own = huber + l2
            scaled = scale * own
        seen = [statistic.value for statistic in statistics]
        if not training.reduction.local:
            huber, stop, *seen = reduction.average_in_one_message([huber, tf.convert_to_tensor(stop), *seen], "numbers")
        gradients = tape.gradient(scaled, [weight.value for weight in weights])
        computed = _time_after(gradients)
        groups = grouping.groups(gradients, paths, training.reduction)
        used = reduction.swap_gradients(gradients, scale, waiting) if waiting else gradients
        averaged = reduction.average_gradients(used, groups, training.reduction)
        communicated = _time_after(averaged)
        grad_norm = tf.linalg.global_norm(averaged) / scale
        optimizer.learning_rate.assign(rate)
        optimizer.apply(averaged, weights)  # behind a loss scale: nothing but a smaller scale where not finite
        # Moving averages would never forget an infinity.
        finite = tf.math.is_finite(grad_norm) & tf.math.is_finite(tf.linalg.global_norm(seen or [0.0]))
        for statistic, old, new in zip(statistics, before, seen, strict=True):
            statistic.assign(tf.where(finite, new, old))
        waited = tf.maximum(communicated - computed, 0)  # late gradients may be there before
        times = [tf.cast(seconds, tf.float32) for seconds in (waited, computed - began)]
        return tf.stack([huber, l2, scale, grad_norm, *times, stop, own])

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
    begun: float = 0.0,
    left: int | None = None,
    stop_request: StopRequest | None = None,
) -> Iterator[Row]:
    """Takes an epoch's `steps` steps, the first of which is the job's number `first` (from 1); a row after each.

    Of an epoch that a resumed job goes on with, `begun` steps are done (a fraction, if other ranks took them) and
    `left` are left. A `stop_request` of any rank ends it after the next step in which the ranks agree.

    With local SGD (reduction.synchronise) a row is the rank's own, but where the ranks average `state`, all variables
    of the network and the optimizer: then it is the mean. Raises WorkError, on every rank at the same step, where
    training has diverged.
    """
    delta = losses.huber_delta(training.loss, epoch)
    stop_request, left = stop_request or StopRequest(), steps if left is None else left
    for index in range(left):
        part = (begun + index) / steps
        rate = learning_rate(training.schedule, training.optimizer.learning_rate, ranks, epoch + part)
        started = time.perf_counter()
        x, y = next(batches)
        loaded = time.perf_counter()
        scalars = [tf.constant(number, tf.float32) for number in (rate, delta, float(stop_request.signal_name is not None))]
        *numbers, own = step(x, y, *scalars).numpy().tolist()
        agreed = not training.reduction.local
        if reduction.synchronisation_due(training.reduction, first + index, index == left - 1):
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
            _check_finite(row, own)
            stop_request.agreed = measured["stop"] > 0
        yield row
        if stop_request.agreed:
            return


def _check_finite(row: Row, own: float) -> None:
    """A step that is not finite is skipped where a loss scale can still be halved; elsewhere it ends the job.

    The ranks' `own` losses say whose it was: what has been averaged is the same on all.
    """
    if row["loss_scale"] > 1 or (math.isfinite(row["loss"]) and math.isfinite(row["grad_norm"])):
        return
    every = reduction.gather_json(own)
    at_fault = [str(rank) for rank, loss in enumerate(every) if not math.isfinite(loss)]
    whose = f" (rank {', '.join(at_fault)}'s, of {len(every)})" if 0 < len(at_fault) < len(every) else ""
    raise reduction.reported_once(
        WorkError(
            f"training diverged at step {row['step']}: loss {row['loss']:g}{whose}, gradient norm "
            f"{row['grad_norm']:g}; lower training.optimizer.learning_rate, or warm up longer, and run again from the "
            "last checkpoint"
        )
    )
