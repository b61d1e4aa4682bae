"""The training step, and an epoch of steps. What a step reports is in `train.measure.results.StepRow`."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

import keras
import numpy as np
from keras import ops

from namsa.arrays import Tensor
from namsa.errors import WorkError

from ..execution import backend
from ..experiment.sections import Schedule, Training
from ..measure.results import StepRow
from ..ranks import reduction
from ..ranks.exchange import Exchange, make_exchange
from ..ranks.signals import StopRequest
from . import losses
from .losses import Objective

Step = Callable[..., Tensor]

# A step returns the first term of the objective, these, the other terms, and the loss of this rank's own batch.
STEP_NUMBERS = ("l2", "loss_scale", "grad_norm", "comm_s", "compute_s", "stop")


def make_step(
    model: keras.Model,  # the network
    optimizer: keras.optimizers.Optimizer,  # its optimizer, built
    training: Training,
    # What has taken `model` and `optimizer`; `None` for that of `training`, which then takes them here.
    exchange: Exchange | None = None,
    accumulation: Any | None = None,  # that of `step_module`; with it, the step takes the last batch of an update
    objective: Objective | None = None,  # the task's loss; `None` for that of a density
) -> Step:
    """Builds the training step, step(x, y, rate, setting, stop), which updates `model` once on all ranks.

    `stop` is 1 on a rank that has been asked to stop, and above 0 on all ranks in return. It is sent with the loss and
    the statistics of normalisations, which are therefore equal on all ranks after every step, as the weights are: rank
    0's state is that of the job.

    Returns:
        The step. It returns what is written at `STEP_NUMBERS` as one array, which is one copy from the device.

    Raises:
        InputError: If the section training.exchange does not fit the network.
        ValueError: If `accumulation` is missing where training.accumulate is above 1, or there where it is 1.
    """
    if (accumulation is None) != (training.accumulate == 1):
        raise ValueError(f"training.accumulate is {training.accumulate}: above 1 needs an accumulation, 1 has none")
    if exchange is None:
        exchange = make_exchange(training.exchange, reduction.rank(), reduction.size())
        exchange.begin(model, optimizer)
    objective = objective or losses.DensityObjective(training.loss)
    step: Step = step_module().make_step(model, optimizer, training, exchange, accumulation, objective)
    return step


def step_module() -> Any:
    """Returns the module with the step of this process's execution: `make_step` and `Accumulation`."""
    return import_module(f".{backend.name()}_step", __package__)


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
    step: Step,  # see `make_step`
    # x and y of each batch; a step takes `training.accumulate` of them. The epoch ends with them.
    batches: Iterator[tuple[Tensor, Tensor]],
    training: Training,
    plan: EpochPlan,  # the steps to take
    *,
    exchange: Exchange | None = None,  # that of `step`; needed if it does more than to average gradients in every step
    # A request of any rank ends the epoch after the next step in which the ranks agree on it.
    stop_request: StopRequest | None = None,
    accumulation: Any | None = None,  # that of `step`; needed if training.accumulate is above 1
    objective: Objective | None = None,  # that of `step`
) -> Iterator[StepRow]:
    """Takes the steps of `plan`.

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
            batch = next(batches, None)
            if batch is None:
                return
            x, y = batch
            data_s += time.perf_counter() - asked
            if left and accumulation:
                earlier_s += float(accumulation.add(x, y, ops.convert_to_tensor(setting, "float32")))
        stop = float(stop_request.received())
        scalars = [ops.convert_to_tensor(value, "float32") for value in (rate, setting, stop)]
        *numbers, own_loss = np.asarray(step(x, y, *scalars)).tolist()
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


def learning_rate(schedule: Schedule, base: float, ranks: int, epochs: float) -> float:
    """Returns the learning rate: a linear warm-up from `base` to `rate_factor` times `base`, and a decay.

    With rule 'constant' it is `rate_factor` times `base` throughout. Otherwise the warm-up starts from `base` because
    the rate of one rank is safe at the start (Goyal et al. 2017). The decay, a staircase or a line, counts from the
    first epoch, so that it is the same with any warm-up.

    Args:
        ranks: Number of ranks, times the number of batches that each of them accumulates.
        epochs: Epochs since the start, including the fraction of the current one: epoch + step / steps.
    """
    peak = base * rate_factor(schedule, ranks)
    if schedule.rule == "constant":
        return peak
    warmed = min(1.0, epochs / schedule.warmup_epochs) if schedule.warmup_epochs else 1.0
    decays = epochs / schedule.decay_every_epochs
    decay = schedule.decay ** math.floor(decays)
    if schedule.rule == "linear":
        decay = 1 - (1 - schedule.decay) * min(1.0, decays)
    return (base + warmed * (peak - base)) * decay


def rate_factor(schedule: Schedule, ranks: int) -> float:
    """Returns the factor of the rate of one rank for `ranks`: `ranks`, and its root where there are many.

    Adam's steps have the length of the rate, whatever the gradient. A mean over N ranks has √N times less noise, and
    with √N times the rate the ratio of noise to drift stays (Malladi et al. 2022). With N times the rate, the rule of
    Goyal et al. (2017) for SGD and of Laanait et al. (2019), Adam diverges where N is large: see
    `scripts/bench/large_batches.py`.
    """
    return min(ranks, max(schedule.linear_up_to, math.sqrt(ranks))) if schedule.scale_with_ranks else 1
