"""Output of a running job: metrics.jsonl, TensorBoard's events, and progress on the terminal.

metrics.jsonl has one line per step. A number that is not finite (of a step that the loss scale skipped) is null there.
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from namsa.errors import InputError
from namsa.files import read_text, write_text_atomic
from namsa.json_files import parse_json
from namsa.text import duration

from .events import EventFile
from .results import LARGEST_METRICS_BYTES, StepRow
from .rows import PLACE, Row

COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())


# ---- Files ----------------------------------------------------------------------------------------------------------


class Recorder:
    """Appends rows to metrics.jsonl and to TensorBoard's events."""

    def __init__(self, file: TextIO, events: EventFile) -> None:
        self._file, self._events = file, events

    def __call__(self, row: StepRow) -> None:
        """Appends the row of a step."""
        numbers = cast("Mapping[str, float]", row)
        finite = {key: value if math.isfinite(value) else None for key, value in numbers.items()}
        self._file.write(json.dumps(finite, allow_nan=False) + "\n")
        self._events.add(row["step"], {f"{_group(key)}/{key}": n for key, n in finite.items() if key not in PLACE})

    def validated(self, row: Row) -> None:
        """Adds the row of a validation to TensorBoard's events."""
        numbers = {f"score/{name}": number for name, number in row.items() if name not in PLACE}
        self._events.add(row["step"], numbers)


def _group(key: str) -> str:
    """Returns the group of TensorBoard's charts that a number of a step belongs to."""
    if key in ("lr", "grad_norm", "samples_per_s", "flop_per_s"):
        return "rate"
    if key.endswith("_s"):
        return "time"
    return "machine" if key.startswith(("memory", "energy", "simulated")) else "loss"


@contextmanager
def recorder(run_dir: Path, steps_done: int) -> Iterator[Recorder]:
    """Yields a `Recorder` of the steps of a job.

    Its files drop what they hold of later steps: a job that was killed takes the steps since its last checkpoint again.

    Args:
        steps_done: Steps up to the checkpoint that the job starts from.
    """
    path = run_dir / "metrics.jsonl"
    drop_rows_after(path, steps_done)
    with (
        path.open("a", buffering=1, encoding="utf-8") as file,
        EventFile(run_dir / "tensorboard", steps_done + 1) as events,
    ):
        yield Recorder(file, events)


def sync_metrics(run_dir: Path) -> None:
    """Writes metrics.jsonl to the disk, so that no checkpoint exists before the rows of the steps up to it."""
    with (run_dir / "metrics.jsonl").open("rb") as file:
        os.fsync(file.fileno())


def drop_rows_after(path: Path, step: int) -> None:
    """Rewrites metrics.jsonl without the rows of later steps and without an incomplete row that a crash has left."""
    if not path.exists():
        return
    lines = read_text(path, largest_bytes=LARGEST_METRICS_BYTES, errors="replace").splitlines(keepends=True)
    kept = [line for line in lines if _step_of(line) <= step]
    write_text_atomic(path, "".join(kept))


def _step_of(line: str) -> float:
    """Returns the number of a row's step; infinity for a line that is no whole row."""
    try:
        row = parse_json(line, "the line")
    except InputError:
        return math.inf
    step = row.get("step") if isinstance(row, dict) else None
    return step if isinstance(step, int) else math.inf


# ---- Terminal -------------------------------------------------------------------------------------------------------


@contextmanager
def counter(console: Console, description: str) -> Iterator[Callable[[int, int], None]]:
    """Yields `count(done, total)`, which shows a live bar on a terminal, elsewhere a line at every tenth."""
    last_tenth = 0
    with Progress(*COLUMNS, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(description, total=None)

        def count(done: int, total: int) -> None:
            nonlocal last_tenth
            progress.update(task, completed=done, total=total)
            if not console.is_terminal and (tenth := 10 * done // max(total, 1)) > last_tenth:
                last_tenth = tenth
                console.print(f"{description}: {done} of {total}", highlight=False)

        yield count


@contextmanager
def epoch_display(
    console: Console, epochs: int, steps: int, terms: Sequence[str], end: float = math.inf
) -> Iterator[Callable[[StepRow, bool], None]]:
    """Yields `show(row, last)`, which shows a live line on a terminal, and a plain line at the end of each epoch.

    Both have the time to the end of the training, by the mean time of a step so far.

    Args:
        terms: Names of the terms of the loss, of which the first is shown.
        end: Step after which training ends within an epoch.
    """
    rows: list[StepRow] = []
    disabled = not console.is_terminal
    with Progress(
        *COLUMNS, console=console, disable=disabled, transient=True, speed_estimate_period=math.inf
    ) as progress:
        task = progress.add_task("training", total=min(epochs * steps, end))

        def show(row: StepRow, last: bool) -> None:
            rows.append(row)
            progress.update(
                task,
                completed=row["epoch"] * steps + len(rows),
                description=f"epoch {row['epoch'] + 1}/{epochs}  loss {row['loss']:.4g}",
            )
            if last:
                left = progress.tasks[0].time_remaining
                until_end = f", {duration(left)} left" if left else ""
                console.print(epoch_line(rows, epochs, terms[0]) + until_end, highlight=False, soft_wrap=True)
                rows.clear()

        yield show


def epoch_line(rows: Sequence[StepRow], epochs: int, term: str) -> str:
    """Returns one line about one epoch: means of the losses, and rates weighted by time.

    Args:
        term: Name of a term of the loss, which is shown beside it.
    """
    seconds = sum(row["step_s"] for row in rows)
    waiting = 100 * sum(row["data_s"] for row in rows) / seconds
    communication = 100 * sum(row["comm_s"] for row in rows) / seconds
    synchronisation = 100 * sum(row.get("sync_s", 0.0) for row in rows) / seconds
    local = f", {synchronisation:.0f}% to synchronise" if "sync_s" in rows[0] else ""
    rate = sum(row["samples_per_s"] * row["step_s"] for row in rows) / seconds
    loss = sum(row["loss"] for row in rows) / len(rows)
    numbers = [cast("Mapping[str, float]", row) for row in rows]
    mean_term = sum(row[term] for row in numbers) / len(rows)
    return (
        f"epoch {rows[0]['epoch'] + 1}/{epochs}  loss {loss:.4g}  "
        f"{term.replace('_', ' ')} {mean_term:.4g}  lr {rows[-1]['lr']:.3g}  {rate:.1f} samples/s  {seconds:.1f} s "
        f"({waiting:.0f}% waiting for data, {communication:.0f}% for ranks{local}){_simulator_text(rows)}"
    )


def _simulator_text(rows: Sequence[StepRow]) -> str:
    """Returns what an epoch's line says about samples that are simulated beside the training."""
    if "simulated" not in rows[0]:
        return ""
    numbers = [[row.get(name, 0) for name in ("simulated", "simulator_s", "simulator_wait_s")] for row in rows]
    made, seconds, waited = map(sum, zip(*numbers, strict=True))
    rate = f" at {made / seconds:.1f} samples/s" if seconds else ""
    return f"; {made} simulated{rate}, {waited:.1f} s of waiting for them"


def validation_line(row: Row) -> str:
    """Returns one line about a validation."""
    numbers = "  ".join(
        f"{name.replace('_', ' ')} {'–' if number is None else f'{number:.4g}'}"
        for name, number in row.items()
        if name not in PLACE
    )
    return f"after epoch {row['epoch']}, {row['samples']} dev samples: {numbers}"
