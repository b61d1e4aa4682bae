"""Reads finished and unfinished runs from their directories, and compares them."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich import box
from rich.table import Table
from typing_extensions import TypedDict

from namsa.config.loading import read_yaml
from namsa.errors import InputError

from ..measure.rows import parsed

Numbers = npt.NDArray[np.float64]
Steps = Mapping[str, Numbers]  # columns of metrics.jsonl by name, each of shape (steps,)


class EpochTimes(TypedDict):
    """The complete epochs of a run."""

    run: str  # name of the run directory
    ranks: int  # number of ranks
    epoch_s: list[float]  # time in the steps of each epoch, s
    huber: list[float]  # mean training Huber loss of each epoch


class ComparedRun(TypedDict):
    """One run beside the run with the fewest ranks."""

    run: str  # name of the run directory
    ranks: int  # number of ranks
    epoch_s: float  # median time of an epoch, s, without the first epoch if there are more
    epochs_to_target: int  # epochs until the mean Huber loss of an epoch reaches the target
    seconds_to_target: float  # time until then, s
    epoch_speedup: float  # speed-up of an epoch
    efficiency: float  # speed-up of an epoch per factor of ranks
    learning_speedup: float  # speed-up of the time to the target


class RunComparison(TypedDict):
    """Runs compared by `compare`."""

    target_huber: float  # the lowest mean Huber loss of an epoch that all runs reached
    runs: list[ComparedRun]  # one row per run, ordered by ranks


def read_steps(path: Path, columns: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Numbers]:
    """Reads columns of a `metrics.jsonl`. Rows may lack the optional ones.

    A resumed run may have taken a step twice: the last line of a step counts.

    Returns:
        By key one number per step, in the order of steps. null and a key that a row lacks become NaN.

    Raises:
        InputError: As of `train.measure.rows.parsed`.
    """

    def numbers(row: Mapping[str, Any]) -> tuple[int, list[float]] | None:
        values = [row.get(name) for name in (*columns, *optional)]
        whole = type(row.get("step")) is int and row.keys() >= set(columns)
        if not whole or not all(value is None or isinstance(value, int | float) for value in values):
            return None
        return row["step"], [np.nan if value is None else float(value) for value in values]

    steps = dict(parsed(path, numbers, "step"))
    table = np.array([steps[step] for step in sorted(steps)]).reshape(-1, len(columns) + len(optional))
    return dict(zip((*columns, *optional), table.T, strict=True))


def read_run(run_dir: Path) -> EpochTimes:
    """Reads time and mean training loss of each complete epoch of a run. Raises InputError if there is none."""
    try:
        training = read_yaml(run_dir / "config.yaml")["training"]
        batch = training.get("batch_size", 1) * training.get("accumulate", 1)
        steps = read_steps(run_dir / "metrics.jsonl", ("epoch", "step_s", "huber", "samples_per_s"))
        epochs, lengths = np.unique(steps["epoch"], return_counts=True)
        complete = [steps["epoch"] == epoch for epoch in epochs[lengths == lengths.max()]]
        return {
            "run": run_dir.resolve().name,
            "ranks": round(steps["samples_per_s"][-1] * steps["step_s"][-1] / batch),
            "epoch_s": [float(steps["step_s"][epoch].sum()) for epoch in complete],
            "huber": [_mean(steps["huber"][epoch]) for epoch in complete],
        }
    except (ValueError, LookupError, AttributeError, TypeError, ArithmeticError) as error:
        raise InputError(f"{run_dir} has no whole epoch to compare ({error!r}): give directories of runs") from None


def compare(runs: Sequence[EpochTimes]) -> RunComparison:
    """Compares runs with the run that has the fewest ranks, as Yoginath et al. (2019) do.

    The target is the lowest mean training Huber loss of an epoch that all runs reached. More ranks take fewer steps per
    epoch and may need more epochs: the speed-up of the time to the target counts both.
    """
    runs = sorted(runs, key=lambda run: run["ranks"])
    target = max(min(run["huber"]) for run in runs)
    epoch_s = [float(np.median(run["epoch_s"][1:] or run["epoch_s"])) for run in runs]
    epochs = [next(i for i, huber in enumerate(run["huber"], start=1) if huber <= target) for run in runs]
    seconds = [float(sum(run["epoch_s"][:needed])) for run, needed in zip(runs, epochs, strict=True)]
    rows: list[ComparedRun] = []
    for run, per_epoch, needed, to_target in zip(runs, epoch_s, epochs, seconds, strict=True):
        speedup = epoch_s[0] / per_epoch
        rows.append(
            {
                "run": run["run"],
                "ranks": run["ranks"],
                "epoch_s": per_epoch,
                "epochs_to_target": needed,
                "seconds_to_target": to_target,
                "epoch_speedup": speedup,
                "efficiency": speedup * runs[0]["ranks"] / run["ranks"],
                "learning_speedup": seconds[0] / to_target,
            }
        )
    return {"target_huber": target, "runs": rows}


def comparison_table(comparison: RunComparison) -> Table:
    """Returns a comparison as a table for the terminal."""
    target = comparison["target_huber"]
    table = Table(title=f"Time until the mean training Huber loss is {target:.4g}", box=box.SIMPLE_HEAD)
    table.add_column("run", overflow="fold")
    for heading in ("ranks", "per epoch", "speed-up", "efficiency", "epochs", "time", "learning speed-up"):
        table.add_column(heading, justify="right")
    for row in comparison["runs"]:
        table.add_row(
            row["run"],
            str(row["ranks"]),
            f"{row['epoch_s']:.3g} s",
            f"{row['epoch_speedup']:.2f}",
            f"{row['efficiency']:.2f}",
            str(row["epochs_to_target"]),
            f"{row['seconds_to_target']:.3g} s",
            f"{row['learning_speedup']:.2f}",
        )
    return table


def _mean(values: Numbers) -> float:
    """Mean over the steps that have a number. Raises ValueError if none has."""
    return statistics.fmean(values[~np.isnan(values)])
