"""The training step, and an epoch of steps. What a step reports is in `train.measure.results.StepRow`."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import keras
import tensorflow as tf

from namsa.errors import WorkError

from ..experiment.sections import Training
from ..measure.results import StepRow
from ..ranks import reduction
from ..ranks.exchange import Exchange, make_exchange
from ..ranks.signals import StopRequest
from . import losses, precision
from .accumulation import Accumulation
from .gradients import differentiate, time_after, time_before
from .objective import Objective
from .schedules import learning_rate

Tensor = Any
Step = Callable[..., Tensor]

# A step returns the first term of the objective, these, the other terms, and the loss of this rank's own batch.
STEP_NUMBERS = ("l2", "loss_scale", "grad_norm", "comm_s", "compute_s", "stop")


def make_step(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    training: Training,
    exchange: Exchange | None = None,
    accumulation: Accumulation | None = None,
    objective: Objective | None = None,
) -> Step:
    """Builds the training step, a tf.function step(x, y, rate, setting, stop) that updates `model` once on all ranks.

    `stop` is 1 on a rank that has been asked to stop, and above 0 on all ranks in return. It is sent with the loss and
    the statistics of normalisations, which are therefore equal on all ranks after every step, as the weights are: rank
    0's state is that of the job.

    Args:
        model: The network.
        optimizer: Its optimizer, built.
        exchange: What has taken `model` and `optimizer`; `None` for that of `training`, which then takes them here.
        accumulation: With it, the step takes the last batch of an update; see `train.optimization.accumulation`.
        objective: The task's loss; `None` for that of a density.

    Returns:
        The step. It returns what is written at `STEP_NUMBERS` as one tensor, which is one copy from the device.

    Raises:
        InputError: If the section training.exchange does not fit the network.
        ValueError: If `accumulation` is missing where training.accumulate is above 1, or there where it is 1.
    """
    if (accumulation is None) != (training.accumulate == 1):
        raise ValueError(f"training.accumulate is {training.accumulate}: above 1 needs an accumulation, 1 has none")
    if exchange is None:
        exchange = make_exchange(training.exchange, reduction.rank(), reduction.size())
        exchange.begin(model, optimizer)
    statistics = model.non_trainable_weights
    objective = objective or losses.DensityObjective(training.loss)

    @tf.function(autograph=False)  # no Python control flow to convert, and converting takes longer than tracing
    def step(x: Tensor, y: Tensor, rate: Tensor, setting: Tensor, stop: Tensor | float = 0.0) -> Tensor:
        started, x = time_before(x)
        scale = tf.convert_to_tensor(precision.loss_scale(optimizer))
        old_statistics = [tf.identity(statistic.value) for statistic in statistics]
        batch = differentiate(model, training, x, y, setting, scale, objective)
        means = accumulation.mean_with(batch) if accumulation else batch
        terms, l2, own_loss, new_statistics, gradients = means
        averages = exchange.mean_numbers([*terms, tf.convert_to_tensor(stop), *new_statistics])
        terms, stop, new_statistics = averages[: len(terms)], averages[len(terms)], averages[len(terms) + 1 :]
        computed = time_after(gradients)
        averaged, norm = exchange.mean(gradients, scale)
        communicated = time_after(averaged)
        grad_norm = norm / scale
        optimizer.learning_rate.assign(rate)
        with tf.name_scope("update"):  # tells these operations from the others in a profile
            # With a loss scale, gradients that are not finite only lower the scale.
            optimizer.apply(averaged, exchange.updated)
        # Moving averages would never forget an infinity.
        finite = tf.math.is_finite(grad_norm) & tf.math.is_finite(tf.linalg.global_norm(new_statistics or [0.0]))
        for statistic, old, new in zip(statistics, old_statistics, new_statistics, strict=True):
            statistic.assign(tf.where(finite, new, old))
        sending = exchange.after_update(tf.math.is_finite(grad_norm))
        # With lag, the averages may be there before the gradients.
        exposed = sending + tf.maximum(communicated - computed, 0)
        times = [tf.cast(seconds, tf.float32) for seconds in (exposed, computed - started)]
        return tf.stack([terms[0], l2, scale, grad_norm, *times, stop, *terms[1:], own_loss])

    return step


@dataclass(frozen=True)
class EpochPlan:
    """The steps of one epoch, all of them or those that are left of an epoch that a resumed job continues."""

    epoch: int  # index of the epoch, from 0
    first_step: int  # number in the job of the first step to take, from 1
    steps: int  # steps of the whole epoch
    ranks: int  # number of ranks, which scales the learning rate; of groups, if they divide samples
    steps_done: float = 0.0  # steps that were taken before; a fraction if a different number of ranks took them
    steps_left: int | None = None  # steps to take; `None` for all


def train_epoch(
    step: Step,
    batches: Iterator[tuple[Tensor, Tensor]],
    training: Training,
    plan: EpochPlan,
    *,
    exchange: Exchange | None = None,
    stop_request: StopRequest | None = None,
    accumulation: Accumulation | None = None,
    objective: Objective | None = None,
) -> Iterator[StepRow]:
    """Takes the steps of `plan`.

    Args:
        step: See `make_step`.
        batches: x and y of each batch; a step takes `training.accumulate` of them.
        plan: The steps to take.
        exchange: That of `step`; needed if it does more than to average gradients in every step.
        stop_request: A request of any rank ends the epoch after the next step in which the ranks agree on it.
        accumulation: That of `step`; needed if training.accumulate is above 1.
        objective: That of `step`.

    Yields:
        A row after each step. If ranks exchange after some steps only, as with local SGD, the numbers are those of this
        rank, except where they do: there they are the mean.

    Raises:
        WorkError: On every rank at the same step, if training has diverged.
    """
    objective = objective or losses.DensityObjective(training.loss)
    settings = objective.setting(plan.epoch)
    setting = next(iter(settings.values()), 0.0)
    names = [objective.terms[0], *STEP_NUMBERS, *objective.terms[1:]]
    stop_request = stop_request or StopRequest()
    steps_left = plan.steps if plan.steps_left is None else plan.steps_left
    for index in range(steps_left):
        number = plan.first_step + index
        part = (plan.steps_done + index) / plan.steps
        shares = plan.ranks * training.accumulate
        rate = learning_rate(training.schedule, training.optimizer.learning_rate, shares, plan.epoch + part)
        started, data_s, earlier_s = time.perf_counter(), 0.0, 0.0
        for left in reversed(range(training.accumulate)):
            asked = time.perf_counter()
            x, y = next(batches)
            data_s += time.perf_counter() - asked
            if left and accumulation:
                earlier_s += float(accumulation.add(x, y, tf.constant(setting, tf.float32)))
        stop = float(stop_request.signal_name is not None)
        scalars = [tf.constant(value, tf.float32) for value in (rate, setting, stop)]
        *numbers, own_loss = step(x, y, *scalars).numpy().tolist()
        measured = dict(zip(names, numbers, strict=True))
        agreed, sync, asked = True, {}, time.perf_counter()
        if exchange and not exchange.averages_in_step:
            times = {name: measured[name] for name in ("comm_s", "compute_s")}
            means = exchange.after_step(number, index == steps_left - 1, numbers)
            agreed, sync = means is not None, {"sync_s": time.perf_counter() - asked if means else 0.0}
            measured = dict(zip(names, means or numbers, strict=True)) | times
        step_s = time.perf_counter() - started
        compute_s = earlier_s + measured["compute_s"]
        terms = {name: measured[name] for name in objective.terms}
        first, *others = terms
        numbers_of_row = {
            "step": number,
            "epoch": plan.epoch,
            "loss": sum(terms.values()) + measured["l2"],
            first: terms[first],
            "l2": measured["l2"],
            **settings,
            "lr": rate,
            "loss_scale": measured["loss_scale"],
            "grad_norm": measured["grad_norm"],
            "step_s": step_s,
            "data_s": data_s,
            "comm_s": measured["comm_s"],
            "compute_s": compute_s,
            **sync,
            "misc_s": max(0.0, step_s - measured["comm_s"] - compute_s - sum(sync.values())),
            "samples_per_s": shares * training.batch_size / step_s,
            **{name: terms[name] for name in others},
        }
        row = cast(StepRow, numbers_of_row)
        if agreed:
            _check_finite(row, own_loss)
            stop_request.agreed = measured["stop"] > 0
        yield row
        if stop_request.agreed:
            return


def _check_finite(row: StepRow, own_loss: float) -> None:
    """Raises WorkError for a step that is not finite, unless the loss scale can still be lowered to skip it.

    The averaged numbers are equal on all ranks. Which rank's batch it was follows from the ranks' own losses.
    """
    if row["loss_scale"] > 1 or (math.isfinite(row["loss"]) and math.isfinite(row["grad_norm"])):
        return
    own_losses = reduction.gather_json(own_loss)
    at_fault = [str(rank) for rank, loss in enumerate(own_losses) if not math.isfinite(loss)]
    whose = f" (rank {', '.join(at_fault)}'s, of {len(own_losses)})" if 0 < len(at_fault) < len(own_losses) else ""
    raise reduction.reported_once(
        WorkError(
            f"training diverged at step {row['step']}: loss {row['loss']:g}{whose}, gradient norm "
            f"{row['grad_norm']:g}; lower training.optimizer.learning_rate, or warm up longer, and run again from the "
            "last checkpoint"
        )
    )
