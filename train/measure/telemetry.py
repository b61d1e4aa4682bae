"""What a running job tells: metrics.jsonl, TensorBoard's events, and its progress on the terminal.

metrics.jsonl has a line a step. A number that is not finite (a step skipped by the loss scale) is null there.
"""

import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from namsa.files import write_text_atomic

Row = dict[str, Any]

COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())


@contextmanager
def recorder(run_dir: Path, done: int) -> Iterator[Callable[[Row], None]]:
    """Yields `record(row)`, which appends a step's row to metrics.jsonl and to TensorBoard's events.

    What either has of steps after `done` counts no longer: a job killed since its last checkpoint takes them again.
    """
    path = run_dir / "metrics.jsonl"
    forget_after(path, done)
    with path.open("a", buffering=1, encoding="utf-8") as file, _events(run_dir / "tensorboard", done) as add:

        def record(row: Row) -> None:
            finite = {key: value if math.isfinite(value) else None for key, value in row.items()}
            file.write(json.dumps(finite, allow_nan=False) + "\n")
            add(finite)

        yield record


@contextmanager
def _events(directory: Path, done: int) -> Iterator[Callable[[Row], None]]:
    """Yields `add(row)`, which writes one event to a new file, after one that says that steps after `done` come again.

    The latter is what makes TensorBoard drop them, and what tf.summary cannot write.
    """
    event, log, summary = tf.compat.v1.Event, tf.compat.v1.SessionLog, tf.compat.v1.Summary
    directory.mkdir(exist_ok=True)
    seconds, rest = divmod(time.time_ns(), 10**9)  # TensorBoard reads files in the order of their names
    name = f"events.out.tfevents.{seconds}.{rest:09d}.{platform.node()}"
    with tf.io.TFRecordWriter(str(directory / name)) as file:

        def write(**content: Any) -> None:
            file.write(event(wall_time=time.time(), **content).SerializeToString())
            file.flush()

        def add(row: Row) -> None:
            numbers = {tag: number for tag, number in row.items() if tag != "step" and number is not None}
            values = [summary.Value(tag=tag, simple_value=number) for tag, number in numbers.items()]
            write(step=row["step"], summary=summary(value=values))

        write(file_version="brain.Event:2")
        write(step=done + 1, session_log=log(status=log.START))
        yield add


def settle(run_dir: Path) -> None:
    """Brings metrics.jsonl to the disk, so that no checkpoint is there before the steps up to it."""
    with (run_dir / "metrics.jsonl").open("rb") as file:
        os.fsync(file.fileno())


def forget_after(path: Path, step: int) -> None:
    """Rewrites metrics.jsonl without the lines of later steps and without one that a crash cut short."""
    if not path.exists():
        return
    kept = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if _step(line) <= step]
    write_text_atomic(path, "".join(kept))


def _step(line: str) -> float:
    try:
        return json.loads(line)["step"]
    except ValueError:
        return math.inf


@contextmanager
def counter(console: Console, what: str) -> Iterator[Callable[[int, int], None]]:
    """Yields `count(done, total)`: a live bar on a terminal, elsewhere a plain line at every tenth."""
    tenths = [0]
    with Progress(*COLUMNS, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(what, total=None)

        def count(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)
            if not console.is_terminal and (tenth := 10 * done // max(total, 1)) > tenths[-1]:
                tenths.append(tenth)
                console.print(f"{what}: {done} of {total}", highlight=False)

        yield count


@contextmanager
def display(console: Console, epochs: int, steps: int) -> Iterator[Callable[[Row, bool], None]]:
    """Yields `show(row, last)`: a live line on a terminal, and everywhere a plain one at the end of an epoch."""
    epoch: list[Row] = []
    with Progress(*COLUMNS, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("training", total=steps)

        def show(row: Row, last: bool) -> None:
            epoch.append(row)
            progress.update(task, completed=len(epoch), description=f"epoch {row['epoch'] + 1}  loss {row['loss']:.4g}")
            if last:
                console.print(summary(epoch, epochs), highlight=False, soft_wrap=True)
                epoch.clear()

        yield show


def summary(rows: Sequence[Row], epochs: int) -> str:
    """One line about one epoch."""
    seconds = sum(row["step_s"] for row in rows)
    share = {name: 100 * sum(row[name] for row in rows) / seconds for name in ("data_s", "comm_s")}
    rate = sum(row["samples_per_s"] * row["step_s"] for row in rows) / seconds
    mean = {name: sum(row[name] for row in rows) / len(rows) for name in ("loss", "huber")}
    return (
        f"epoch {rows[0]['epoch'] + 1}/{epochs}  loss {mean['loss']:.4g}  huber {mean['huber']:.4g}  "
        f"lr {rows[-1]['lr']:.3g}  {rate:.1f} samples/s  {seconds:.1f} s "
        f"({share['data_s']:.0f}% waiting for data, {share['comm_s']:.0f}% for ranks)"
    )


def simulated(summaries: Sequence[Row], directory: Path) -> str:
    """One line about what all ranks have simulated, from the summaries of `namsa.dataset.factory.produce`."""
    written, present, failed = (sum(each[key] for each in summaries) for key in ("written", "present", "failed"))
    text = f"samples: {written} simulated, {present} there before"
    if failed:
        text += f", {failed} failed and left out (why: {directory}/failed-*.jsonl)"
    if any(each["time_limit_reached"] for each in summaries):
        text += "; stopped by training.simulate_seconds, run again for the rest"
    return text


def results(evaluation: Row, run_dir: Path, report: Path | None) -> Table:
    """What the job found, beside what the mean image would have scored, and where the rest is."""
    table = Table(
        title=f"Held-out materials ({evaluation['split'] or 'none'})",
        caption=f"report: {report}\neverything: {run_dir}",
    )
    for heading in ("", "network", "mean image"):
        table.add_column(heading, justify="right")
    for name, value in evaluation["mean"].items():
        table.add_row(name, *(_number(number) for number in (value, evaluation["mean_predictor"][name])))
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
