"""The training step, and an epoch of steps. What a step reports is in
`train.measure.results.StepRow`.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import NamedTuple, cast

import keras
import numpy as np
from keras import ops

from namsa.base.arrays import Tensor
from namsa.base.errors import InputError, WorkError
from namsa.base.registry import allowed_function
from namsa.base.text import shorten

from ..execution import backend
from ..experiment.sections import Schedule, Training
from ..measure.results import StepRow
from ..ranks.connection import engine
from ..ranks.exchange import Exchange, make_exchange
from ..ranks.signals import StopRequest
from . import losses
from .losses import Objective
from .step_numbers import StepNumbers

Step = Callable[..., Tensor]


def make_step(
    model: keras.Model,  # the network
    optimizer: keras.optimizers.Optimizer,  # its optimizer, built
    training: Training,
    # What has taken `model` and `optimizer`; `None` for that of `training`, which then takes them
    # here.
    exchange: Exchange | None = None,
    # that of `step_module`; with it, the step takes the last batch of an update
    accumulation: Tensor | None = None,
    objective: Objective | None = None,  # the task's loss; `None` for that of a density
) -> Step:
    """Builds the training step, step(x, y, rate, setting, stop), which updates `model` once on all
    ranks.

    `stop` is 1 on a rank that has been asked to stop, and above 0 on all ranks in return. It is
    sent with the loss and the statistics of normalisations, which are therefore equal on all ranks
    after every step, as the weights are: rank 0's state is that of the job.

    Returns:
        The step. It returns the numbers of `StepNumbers.to_list`, and behind them the loss of this
        rank's own batch.

    Raises:
        InputError: If the section training.exchange does not fit the network.
        ValueError: If `accumulation` is missing where training.accumulate is above 1, or there
            where it is 1.
    """
    if (accumulation is None) != (training.accumulate == 1):
        raise ValueError(
            f"training.accumulate is {training.accumulate}: above 1 needs an accumulation, 1 has "
            "none"
        )
    if exchange is None:
        exchange = make_exchange(training.exchange, engine().rank(), engine().size())
        exchange.begin(model, optimizer)
    objective = objective or losses.DensityObjective(training.loss)
    step: Step = step_module().make_step(
        model, optimizer, training, exchange, accumulation, objective
    )
    return step


def step_module() -> ModuleType:
    """Returns the module with the step of this process's execution: `make_step` and
    `make_accumulation`.
    """
    return import_module(f".{backend.name()}_step", __package__)


@dataclass(frozen=True)
class EpochPlan:
    """The steps of one epoch, all of them or those that are left of an epoch that a resumed job
    continues.
    """

    epoch: int  # index of the epoch, from 0
    first_step: int  # number in the job of the first step to take, from 1
    steps: int  # steps of the whole epoch
    ranks: int  # number of ranks, which scales the learning rate; of groups, if they divide samples
    # steps that were taken before; a fraction if a different number of ranks took them
    steps_done: float = 0.0
    steps_left: int | None = None  # steps to take; `None` for all

    def epochs_done(self, steps_taken: int) -> float:
        """Returns the epochs since the start of the job, after steps of this plan."""
        return self.epoch + (self.steps_done + steps_taken) / self.steps


class _UpdateBatches(NamedTuple):
    """The batches of one update: the last one, and how long the others and the wait took."""

    x: Tensor
    y: Tensor
    wait_s: float  # for all batches
    earlier_s: float  # forward and backward pass of all batches but the last


def train_epoch(
    step: Step,  # see `make_step`
    # x and y of each batch; a step takes `training.accumulate` of them. The epoch ends with them.
    batches: Iterator[tuple[Tensor, Tensor]],
    training: Training,
    plan: EpochPlan,  # the steps to take
    *,
    # that of `step`; needed if it does more than to average gradients in every step
    exchange: Exchange | None = None,
    # A request of any rank ends the epoch after the next step in which the ranks agree on it.
    stop_request: StopRequest | None = None,
    accumulation: Tensor | None = None,  # that of `step`; needed if training.accumulate is above 1
    objective: Objective | None = None,  # that of `step`
) -> Iterator[StepRow]:
    """Takes the steps of `plan`.

    Yields:
        A row after each step. If ranks exchange after some steps only, as with local SGD, the
        numbers are those of this rank, except where they do: there they are the mean.

    Raises:
        WorkError: On every rank at the same step, if training has diverged.
    """
    objective = objective or losses.DensityObjective(training.loss)
    setting = next(iter(objective.setting(plan.epoch).values()), 0.0)
    stop_request = stop_request or StopRequest()
    steps_left = plan.steps if plan.steps_left is None else plan.steps_left
    shares = plan.ranks * training.accumulate
    base_rate = training.optimizer.learning_rate
    for index in range(steps_left):
        rate = learning_rate(training.schedule, base_rate, shares, plan.epochs_done(index))
        started = time.perf_counter()
        update = _take_batches(batches, training.accumulate, accumulation, setting)
        if update is None:
            return
        stop = float(stop_request.received())
        scalars = [ops.convert_to_tensor(value, "float32") for value in (rate, setting, stop)]
        *values, own_loss = np.asarray(step(update.x, update.y, *scalars)).tolist()
        step_number = plan.first_step + index
        exchanged = _exchange_after_step(exchange, step_number, index == steps_left - 1, values)
        numbers = exchanged.numbers
        times = _StepTimes(
            step_s=time.perf_counter() - started,
            data_s=update.wait_s,
            comm_s=numbers.comm_s,
            compute_s=update.earlier_s + numbers.compute_s,
            sync_s=exchanged.sync_s,
        )
        samples = shares * training.batch_size
        row = _row(step_number, plan.epoch, objective, rate, numbers, times, samples)
        if exchanged.agreed:
            _check_finite(row, own_loss)
            stop_request.agreed = numbers.stop > 0
        yield row
        if stop_request.agreed:
            return


class _ExchangedNumbers(NamedTuple):
    """The numbers of a step after the exchange that may follow it."""

    numbers: StepNumbers  # the means of the ranks, if they agree
    agreed: bool  # whether the numbers are the same on all ranks
    sync_s: float | None  # time of the exchange, s; `None` if the step itself exchanges


def _exchange_after_step(
    exchange: Exchange | None, step_number: int, is_last: bool, values: list[float]
) -> _ExchangedNumbers:
    """Returns the numbers of a step; those of all ranks if they exchange now or in the step."""
    own_numbers = StepNumbers.from_list(values)
    if exchange is None or exchange.averages_in_step:
        return _ExchangedNumbers(own_numbers, agreed=True, sync_s=None)
    started = time.perf_counter()
    means = exchange.after_step(step_number, is_last, values)
    if means is None:
        return _ExchangedNumbers(own_numbers, agreed=False, sync_s=0.0)
    sync_s = time.perf_counter() - started
    mean = StepNumbers.from_list(means)
    numbers = replace(mean, comm_s=own_numbers.comm_s, compute_s=own_numbers.compute_s)
    return _ExchangedNumbers(numbers, agreed=True, sync_s=sync_s)


@dataclass(frozen=True)
class _StepTimes:
    """The times of a step, s; see `train.measure.results`."""

    step_s: float
    data_s: float
    comm_s: float
    compute_s: float
    sync_s: float | None  # `None` where the ranks exchange in every step

    def to_row(self) -> dict[str, float]:
        """Returns the times of a row, with that of the rest of the step."""
        row = {
            "step_s": self.step_s,
            "data_s": self.data_s,
            "comm_s": self.comm_s,
            "compute_s": self.compute_s,
        }
        rest_s = self.step_s - self.comm_s - self.compute_s
        if self.sync_s is not None:
            row["sync_s"] = self.sync_s
            rest_s -= self.sync_s
        return row | {"misc_s": max(0.0, rest_s)}


def _row(
    step_number: int,
    epoch: int,
    objective: Objective,
    rate: float,
    numbers: StepNumbers,
    times: _StepTimes,
    samples: int,
) -> StepRow:
    """Returns the row of a step, which takes `samples` on all ranks."""
    terms = dict(zip(objective.terms, numbers.terms, strict=True))
    first_term = objective.terms[0]
    row = {
        "step": step_number,
        "epoch": epoch,
        "loss": sum(numbers.terms) + numbers.l2,
        first_term: terms.pop(first_term),
        "l2": numbers.l2,
        **objective.setting(epoch),
        "lr": rate,
        "loss_scale": numbers.loss_scale,
        "grad_norm": numbers.grad_norm,
        **times.to_row(),
        "samples_per_s": samples / times.step_s,
        **terms,
    }
    return cast(StepRow, row)


def _take_batches(
    batches: Iterator[tuple[Tensor, Tensor]],
    accumulate: int,
    accumulation: Tensor | None,
    setting: float,
) -> _UpdateBatches | None:
    """Returns the last batch of an update, after the others are accumulated; `None` at the end of
    the batches.
    """
    wait_s = 0.0
    earlier_s = 0.0
    for batches_left in reversed(range(accumulate)):
        asked = time.perf_counter()
        batch = next(batches, None)
        if batch is None:
            return None
        x, y = batch
        wait_s += time.perf_counter() - asked
        if batches_left and accumulation:
            value = ops.convert_to_tensor(setting, "float32")
            earlier_s += float(accumulation.add(x, y, value))
    return _UpdateBatches(x, y, wait_s, earlier_s)


def _check_finite(row: StepRow, own_loss: float) -> None:
    """Raises WorkError for a step that is not finite, unless the loss scale can still be lowered to
    skip it.

    The averaged numbers are equal on all ranks. Which rank's batch it was follows from the ranks'
    own losses.
    """
    if row["loss_scale"] > 1 or (math.isfinite(row["loss"]) and math.isfinite(row["grad_norm"])):
        return
    own_losses = engine().gather_json(own_loss)
    diverged = [str(rank) for rank, loss in enumerate(own_losses) if not math.isfinite(loss)]
    whose = ""
    if 0 < len(diverged) < len(own_losses):
        whose = f" (rank {', '.join(diverged)}'s, of {len(own_losses)})"
    raise engine().reported_once(
        WorkError(
            f"training diverged at step {row['step']}: loss {row['loss']:g}{whose}, gradient norm "
            f"{row['grad_norm']:g}; lower training.optimizer.learning_rate, or warm up longer, and "
            "train again in another --run-dir, from random weights or with training.start_from"
        )
    )


def learning_rate(schedule: Schedule, base: float, ranks: int, epochs: float) -> float:
    """Returns the learning rate: a linear warm-up from `base` to `rate_factor` times `base`, and a
    decay.

    With rule 'constant' it is `rate_factor` times `base` throughout. Otherwise the warm-up starts
    from `base` because the rate of one rank is safe at the start (Goyal et al. 2017). The decay, a
    staircase, a line or half a cosine, counts from the first epoch, so that it is the same with any
    warm-up.

    Args:
        ranks: Number of ranks, times the number of batches that each of them accumulates.
        epochs: Epochs since the start, including the fraction of the current one: epoch + step /
            steps.
    """
    if schedule.rule == "function":
        return _own_rate(schedule, base, ranks, epochs)
    peak = base * rate_factor(schedule, ranks)
    if schedule.rule == "constant":
        return peak
    warmed = 1.0  # fraction of the warm-up
    if schedule.warmup_epochs:
        warmed = min(1.0, epochs / schedule.warmup_epochs)
    decays = epochs / schedule.decay_every_epochs
    decay = schedule.decay ** math.floor(decays)
    if schedule.rule == "linear":
        decay = 1 - (1 - schedule.decay) * min(1.0, decays)
    if schedule.rule == "cosine":
        fallen = (1 - math.cos(math.pi * min(1.0, decays))) / 2
        decay = 1 - (1 - schedule.decay) * fallen
    return (base + warmed * (peak - base)) * decay


def _own_rate(schedule: Schedule, base: float, ranks: int, epochs: float) -> float:
    """Returns the rate by the function that the section names. Raises InputError for no rate."""
    assert schedule.function
    key = "training.schedule.function"
    rate = allowed_function(schedule.function, key)(epochs, base, ranks)
    if not isinstance(rate, int | float) or not 0 <= rate < math.inf:
        raise InputError(
            f"{key} {schedule.function} gives the rate {shorten(repr(rate))} after {epochs:g} "
            "epochs: a number from 0 on is needed"
        )
    return float(rate)


def rate_factor(schedule: Schedule, ranks: int) -> float:
    """Returns the factor of the rate of one rank for `ranks`: `ranks`, and its root where there are
    many.

    Adam's steps have the length of the rate, whatever the gradient. A mean over N ranks has √N
    times less noise, and with √N times the rate the ratio of noise to drift stays (Malladi et al.
    2022). With N times the rate, the rule of Goyal et al. (2017) for SGD and of Laanait et al.
    (2019), Adam diverges where N is large: see docs/benchmarks/training.md.
    """
    if schedule.scale_with_ranks:
        return min(ranks, max(schedule.linear_up_to, math.sqrt(ranks)))
    return 1
