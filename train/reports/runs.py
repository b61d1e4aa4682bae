"""Finished and unfinished runs, read from their directories, to be laid side by side."""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml
from rich import box
from rich.table import Table

from namsa.errors import InputError

Row = dict[str, Any]
Numbers = npt.NDArray[np.float64]


def read_steps(path: Path, columns: Sequence[str]) -> dict[str, Numbers]:
    """The `columns` of metrics.jsonl, one number a step, in the order of steps; null is NaN.

    A run that was resumed may have taken steps twice: the last line of a step counts. A job that was killed may have
    left half a line at the end. Raises ValueError for any other line that is no step, OSError without a file.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = {}
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            rows[row["step"]] = [np.nan if row[name] is None else float(row[name]) for name in columns]
        except (ValueError, KeyError, TypeError):
            if number < len(lines):
                raise ValueError(f"line {number} is no step: {line[:60]}") from None
    table = np.array([rows[step] for step in sorted(rows)]).reshape(-1, len(columns))
    return dict(zip(columns, table.T, strict=True))


def read_run(run_dir: Path) -> Row:
    """{"run", "ranks", "epoch_s": [...], "huber": [...]}: time and mean training loss of each whole epoch.

    Raises InputError where `run_dir` holds no epoch.
    """
    try:
        batch = yaml.safe_load((run_dir / "config.yaml").read_text(encoding="utf-8"))["training"].get("batch_size", 1)
        steps = read_steps(run_dir / "metrics.jsonl", ("epoch", "step_s", "huber", "samples_per_s"))
        epochs, lengths = np.unique(steps["epoch"], return_counts=True)
        whole = [steps["epoch"] == epoch for epoch in epochs[lengths == lengths.max()]]
        return {
            "run": run_dir.resolve().name,
            "ranks": round(steps["samples_per_s"][-1] * steps["step_s"][-1] / batch),
            "epoch_s": [float(steps["step_s"][epoch].sum()) for epoch in whole],
            "huber": [_mean(steps["huber"][epoch]) for epoch in whole],
        }
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError) as error:
        raise InputError(f"{run_dir} has no whole epoch to compare ({error!r}): give directories of runs") from None


def compare(runs: Sequence[Row]) -> Row:
    """Speed-ups over the run with the fewest ranks, as Yoginath et al. (2019) have them.

    runs: as `read_run` gives them

    epoch_speedup: of an epoch's time; learning_speedup: of the time until an epoch's mean training Huber loss is down
    to `target_huber`, the lowest that all runs have reached. More ranks take fewer steps an epoch, and may need more
    epochs: the second number counts both.
    """
    runs = sorted(runs, key=lambda run: run["ranks"])
    target = max(min(run["huber"]) for run in runs)
    rows: list[Row] = []
    for run in runs:
        needed = next(index for index, huber in enumerate(run["huber"], start=1) if huber <= target)
        row = {
            "run": run["run"],
            "ranks": run["ranks"],
            "epoch_s": float(np.median(run["epoch_s"][1:] or run["epoch_s"])),
            "epochs_to_target": needed,
            "seconds_to_target": float(sum(run["epoch_s"][:needed])),
        }
        first = rows[0] if rows else row
        row["epoch_speedup"] = first["epoch_s"] / row["epoch_s"]
        row["efficiency"] = row["epoch_speedup"] * first["ranks"] / row["ranks"]
        row["learning_speedup"] = first["seconds_to_target"] / row["seconds_to_target"]
        rows.append(row)
    return {"target_huber": target, "runs": rows}


def comparison_table(found: Row) -> Table:
    """`compare`'s rows for people."""
    table = Table(title=f"Time until the mean training Huber loss is {found['target_huber']:.4g}", box=box.SIMPLE_HEAD)
    heads = ("ranks", "an epoch", "speed-up", "efficiency", "epochs", "time", "learning speed-up")
    table.add_column("run", overflow="fold")
    for head in heads:
        table.add_column(head, justify="right")
    for row in found["runs"]:
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
    """Without the steps that had none. Raises ValueError where no step has."""
    return statistics.fmean(values[~np.isnan(values)])
