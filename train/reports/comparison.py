"""Finished runs on different numbers of ranks, compared as Yoginath et al. (2019) do.

τ is the time of an epoch and N the number of epochs until an error reaches a threshold. With the
run on the fewest ranks as the serial one (s) and another as the parallel one (p), the speed-up of
an epoch is τ_s / τ_p, and the learning speed-up (τ_s N_s) / (τ_p N_p). The sum of the epochs' times
up to the threshold, which includes the slow first one, gives a second learning speed-up.
"""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich import box
from rich.table import Table
from typing_extensions import TypedDict

from namsa.base.errors import InputError
from namsa.config.loading import read_yaml

from ..measure import rows
from .runs import Numbers, read_steps

# Terms of a loss without its penalty, by which runs without validations are compared: of the tasks
# density, classify and segment, embed, and estimate.
TRAINING_TERMS = ("huber", "cross_entropy", "rmse", "mse", "mae", "function")


class ErrorRow(NamedTuple):
    """An error after some epochs."""

    epochs: int
    error: float


class EpochTimes(NamedTuple):
    """The complete epochs of a run."""

    run: str  # name of the run directory
    ranks: int
    epoch_s: list[float]  # time in the steps of each epoch, s
    measure: str  # what `errors` are of
    errors: list[ErrorRow]

    @property
    def lowest_error(self) -> float:
        """The lowest error of all epochs."""
        return min(row.error for row in self.errors)

    @property
    def median_epoch_s(self) -> float:
        """Median time of an epoch, s, without the first epoch if there are more."""
        return float(np.median(self.epoch_s[1:] or self.epoch_s))

    def epochs_to(self, threshold: float) -> int | None:
        """Returns the epochs until the error is at most `threshold`; `None` if it never is."""
        for row in self.errors:
            if row.error <= threshold:
                return row.epochs
        return None


class LearningRow(TypedDict):
    """A run's way to a threshold of the error; `None` if it was not reached."""

    threshold: float
    epochs: int | None  # N
    seconds: float | None  # τ N, s
    seconds_summed: float | None  # sum of the times of these epochs, s
    learning_speedup: float | None  # by τ N
    learning_speedup_summed: float | None  # by the sums


class ComparedRun(TypedDict):
    """One run beside the run with the fewest ranks."""

    run: str  # name of the run directory
    ranks: int
    epoch_s: float  # τ: median time of an epoch, s, without the first epoch if there are more
    epoch_speedup: float
    efficiency: float  # speed-up of an epoch per factor of ranks
    lowest_error: float
    learning: list[LearningRow]  # a row for each threshold


class RunComparison(TypedDict):
    """Runs compared by `compare`."""

    measure: str  # what the thresholds are of
    thresholds: list[float]
    runs: list[ComparedRun]  # ordered by ranks


def read_run(run_dir: Path, score: str) -> EpochTimes:
    """Reads the time and the error of each complete epoch of a run.

    Args:
        score: The key of the task's error in a validation. A run without validations is read by the
            mean of its training loss, without the penalty of the weights.

    Raises:
        InputError: If there is no whole epoch.
    """
    try:
        training = read_yaml(run_dir / "config.yaml")["training"]
        batch = training.get("batch_size", 1) * training.get("accumulate", 1)
        split = training.get("split", {})
        ways = split.get("ways", 1) * math.prod(split.get("further", {}).values())
        path = run_dir / "metrics.jsonl"
        columns = ("epoch", "step_s", "samples_per_s")
        steps = read_steps(path, columns, TRAINING_TERMS)
        epochs, lengths = np.unique(steps["epoch"], return_counts=True)
        complete = [steps["epoch"] == epoch for epoch in epochs[lengths == lengths.max()]]
        groups = round(steps["samples_per_s"][-1] * steps["step_s"][-1] / batch)
        measure = f"validation {score}"
        errors = _validation_errors(run_dir, score)
        if not errors:
            term = next(name for name in TRAINING_TERMS if not np.isnan(steps[name]).all())
            measure = f"training {term}"
            errors = []
            for epoch_number, epoch in enumerate(complete, start=1):
                errors.append(ErrorRow(epoch_number, _mean(steps[term][epoch])))
        seconds = [float(steps["step_s"][epoch].sum()) for epoch in complete]
        return EpochTimes(run_dir.resolve().name, groups * ways, seconds, measure, errors)
    except (
        ValueError,
        LookupError,
        AttributeError,
        TypeError,
        ArithmeticError,
        StopIteration,
    ) as error:
        raise InputError(
            f"{run_dir} has no whole epoch to compare ({error!r}): give directories of runs"
        ) from None


def _validation_errors(run_dir: Path, score: str) -> list[ErrorRow]:
    """Returns the errors of a run's validations, none without `validation.jsonl`."""
    path = run_dir / rows.VALIDATIONS
    if not path.exists():
        return []
    errors = []
    for row in rows.read(path):
        if row.get(score) is not None:
            errors.append(ErrorRow(int(row["epoch"]), float(row[score])))
    return errors


def compare(runs: Sequence[EpochTimes], thresholds: Sequence[float] = ()) -> RunComparison:
    """Compares runs with the run that has the fewest ranks.

    Args:
        thresholds: Errors to reach, in the units of the runs' measure. Default: the lowest error
            that all runs reached. More ranks take fewer steps per epoch and may need more epochs:
            the learning speed-up counts both.

    Raises:
        InputError: If the runs have different measures.
    """
    runs = sorted(runs, key=lambda run: run.ranks)
    smallest = runs[0]
    for run in runs:
        if run.measure != smallest.measure:
            raise InputError(
                f"run {smallest.run} has {smallest.measure} and run {run.run} {run.measure}: "
                "compare runs of one task, all with training.validation or none"
            )
    if not thresholds:
        thresholds = [max(run.lowest_error for run in runs)]
    compared: list[ComparedRun] = []
    for run in runs:
        speedup = smallest.median_epoch_s / run.median_epoch_s
        compared.append(
            {
                "run": run.run,
                "ranks": run.ranks,
                "epoch_s": run.median_epoch_s,
                "epoch_speedup": speedup,
                "efficiency": speedup * smallest.ranks / run.ranks,
                "lowest_error": run.lowest_error,
                "learning": [_learning(smallest, run, threshold) for threshold in thresholds],
            }
        )
    return {"measure": smallest.measure, "thresholds": list(thresholds), "runs": compared}


def _learning(smallest: EpochTimes, run: EpochTimes, threshold: float) -> LearningRow:
    """Returns a run's way to a threshold, beside that of the run with the fewest ranks."""
    epochs = run.epochs_to(threshold)
    row: LearningRow = {
        "threshold": threshold,
        "epochs": epochs,
        "seconds": None,
        "seconds_summed": None,
        "learning_speedup": None,
        "learning_speedup_summed": None,
    }
    if epochs is None:
        return row
    seconds = run.median_epoch_s * epochs
    summed = sum(run.epoch_s[:epochs])
    row["seconds"] = seconds
    row["seconds_summed"] = summed
    serial_epochs = smallest.epochs_to(threshold)
    if serial_epochs is not None:
        row["learning_speedup"] = smallest.median_epoch_s * serial_epochs / seconds
        row["learning_speedup_summed"] = sum(smallest.epoch_s[:serial_epochs]) / summed
    return row


def comparison_tables(comparison: RunComparison) -> list[Table]:
    """Returns a comparison as tables for the terminal: of epochs, then one for each threshold."""
    epochs = _table("Time of an epoch (τ)", "per epoch", "speed-up", "efficiency", "lowest error")
    for run in comparison["runs"]:
        epochs.add_row(
            run["run"],
            str(run["ranks"]),
            f"{run['epoch_s']:.3g} s",
            f"{run['epoch_speedup']:.2f}",
            f"{run['efficiency']:.2f}",
            f"{run['lowest_error']:.4g}",
        )
    tables = [epochs]
    for index, threshold in enumerate(comparison["thresholds"]):
        table = _table(
            f"Until the {comparison['measure']} is {threshold:.4g}",
            "epochs (N)",
            "τ N",
            "learning speed-up",
            "time summed",
            "learning speed-up by sums",
        )
        for run in comparison["runs"]:
            table.add_row(run["run"], str(run["ranks"]), *_cells(run["learning"][index]))
        tables.append(table)
    return tables


def _table(title: str, *headings: str) -> Table:
    """Returns a table with columns for the run, its ranks and some numbers."""
    table = Table(title=title, box=box.SIMPLE_HEAD)
    table.add_column("run", overflow="fold")
    for heading in ("ranks", *headings):
        table.add_column(heading, justify="right")
    return table


def _cells(row: LearningRow) -> list[str]:
    """Returns the numbers of a run for a threshold as text."""
    if row["epochs"] is None:
        return ["not reached", "", "", "", ""]
    cells = [str(row["epochs"])]
    for seconds, speedup in (
        (row["seconds"], row["learning_speedup"]),
        (row["seconds_summed"], row["learning_speedup_summed"]),
    ):
        cells.append(f"{seconds:.3g} s")
        cells.append("" if speedup is None else f"{speedup:.2f}")
    return cells


def _mean(values: Numbers) -> float:
    """Mean over the steps that have a number. Raises ValueError if none has."""
    return statistics.fmean(values[~np.isnan(values)])
