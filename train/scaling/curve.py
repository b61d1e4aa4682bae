"""The model's predictions for a job, one row per number of ranks."""

from dataclasses import dataclass

from ..experiment.sections import Checkpoints, Training
from ..measure.performance import sustained_and_peak
from .model import checkpoint_s, efficiency, estimate_step, steps_between
from .published import STRATEGIES
from .results import CurveRow
from .strategy import Machine, Strategy
from .workload import StepWorkload


@dataclass(frozen=True)
class ScaledJob:
    """A training job on a machine."""

    machine: Machine  # the machine
    work: StepWorkload  # the step of one rank
    strategy: Strategy  # how its gradients are reduced
    training: Training  # the section training
    step_flop: int  # FLOP per step of one rank
    # time of the convolutions in a step of one rank, s; `None` if not known
    convolutions_s: float | None
    samples: int | None  # samples of the training split; `None` if not known
    state_bytes: int  # of a checkpoint

    @property
    def samples_per_step(self) -> int:
        """Samples that one rank, or one group with divided samples, takes per step."""
        return self.training.batch_size * self.training.accumulate

    @property
    def ways(self) -> int:
        """Ranks of a sample."""
        return self.training.split.ways


def curve_row(job: ScaledJob, ranks: int) -> CurveRow:
    """Returns the model's prediction for `ranks` ranks."""
    groups = ranks // job.ways
    steps_per_epoch = None
    if job.samples is not None:
        steps_per_epoch = job.samples // (groups * job.samples_per_step)
    step = estimate_step(job.machine, job.work, job.strategy, ranks, steps_per_epoch)
    kept = job.work.compute_s / step.seconds
    rates = sustained_and_peak(job.step_flop, job.work.compute_s, job.convolutions_s, ranks, kept)
    others = {}
    for name, strategy in STRATEGIES.items():
        others[name] = efficiency(job.machine, job.work, strategy, ranks)
    row: CurveRow = {
        "ranks": ranks,
        "efficiency": kept,
        "step_s": step.seconds,
        "operations": step.operations,
        "reduced_bytes": step.reduced_bytes,
        "samples_per_s": groups * job.samples_per_step / step.seconds,
        "flop_per_s": rates.sustained,
        "others": others,
    }
    if rates.peak is not None:
        row["peak_flop_per_s"] = rates.peak
    if job.strategy.synchronise != "step" and ranks > 1:
        row["steps_between"] = steps_between(job.strategy, steps_per_epoch)
        row["synchronisation_s"] = row["steps_between"] * (step.seconds - job.work.compute_s)
    if steps_per_epoch is not None:
        row["steps_per_epoch"] = steps_per_epoch
    between_s = _between_checkpoints_s(job.training.checkpoints, step.seconds, steps_per_epoch)
    if between_s is not None:
        held_s = checkpoint_s(job.machine, job.state_bytes, between_s)
        row["checkpoint_s"] = held_s * step.seconds / between_s
    steps = _steps_of_job(job.training, steps_per_epoch)
    if steps is not None:
        row["hours"] = steps * (step.seconds + row.get("checkpoint_s", 0.0)) / 3600
    return row


def _steps_of_job(training: Training, steps_per_epoch: int | None) -> int | None:
    """Returns the steps of a whole job; `None` if they follow from an unknown length of epochs."""
    limits = []
    if steps_per_epoch is not None:
        limits.append(training.epochs * steps_per_epoch)
    if training.steps:
        limits.append(training.steps)
    return min(limits, default=None)


def _between_checkpoints_s(
    config: Checkpoints, step_s: float, steps_per_epoch: int | None
) -> float | None:
    """Returns the time of the steps between two checkpoints, s.

    It is `None` if it follows from an unknown length of epochs.
    """
    times: list[float] = []
    if config.every_seconds is not None:
        times.append(config.every_seconds)
    if config.every_steps is not None:
        times.append(config.every_steps * step_s)
    if steps_per_epoch:
        times.append(config.every_epochs * steps_per_epoch * step_s)
    if not times:
        return None
    return max(step_s, min(times))
