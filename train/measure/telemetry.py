"""Output of a running job: metrics.jsonl, TensorBoard's events, and progress on the terminal.

A file of events is written without TensorFlow. It is a sequence of records, each a protocol buffer
`Event` between its length and checksums (tensorflow/core/lib/io/record_writer.h and
tensorflow/core/util/event.proto).

metrics.jsonl has one line per step. A number that is not finite (of a step that the loss scale
skipped) is null there.
"""

import json
import math
import os
import platform
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from namsa.base.errors import InputError, WorkError
from namsa.base.files import (
    Closing,
    open_in_place,
    read_text,
    system_errors,
    write_text_atomic,
    write_whole,
)
from namsa.base.json_files import parse_json
from namsa.base.text import duration

from .results import LARGEST_METRICS_BYTES, StepRow
from .rows import PLACE, Row

_START = 1  # SessionLog.START: TensorBoard drops the steps from this event's on


def _crc_table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ 0x82F63B78 * (value & 1) for value in table]
    return table


_TABLE = _crc_table()  # of CRC-32C (Castagnoli)


class EventFile(Closing):
    """A new file of events in a folder.

    Args:
        folder: Is made if it does not exist. TensorBoard reads its files in the order of their
            names.
        first_step: Steps of earlier files from this one on are dropped by TensorBoard.
    """

    def __init__(self, folder: Path, first_step: int) -> None:
        """Opens the file.

        Raises:
            WorkError: If it cannot be written, or the folder is a link, which would lead elsewhere.
        """
        if folder.is_symlink():
            raise WorkError(f"cannot write to {folder}: it is a link: remove it")
        seconds, nanoseconds = divmod(time.time_ns(), 10**9)
        path = folder / f"events.out.tfevents.{seconds}.{nanoseconds:09d}.{platform.node()}"
        with system_errors(f"cannot write {path}"):
            folder.mkdir(exist_ok=True)
            self._file = path.open("xb", buffering=0)
        self._path = path
        self._write(_bytes(3, b"brain.Event:2"))
        self._write(_integer(2, first_step) + _bytes(7, _integer(1, _START)))

    def close(self) -> None:
        self._file.close()

    def add(self, step: int, numbers: Mapping[str, float | None]) -> None:
        """Writes numbers of a step. Those that are `None` are left out."""
        values = [
            _bytes(1, _bytes(1, tag.encode()) + struct.pack("<Bf", 2 << 3 | 5, value))
            for tag, value in numbers.items()
            if value is not None
        ]
        self._write(_integer(2, step) + _bytes(5, b"".join(values)))

    def _write(self, content: bytes) -> None:
        event = struct.pack("<Bd", 1 << 3 | 1, time.time()) + content
        length = struct.pack("<Q", len(event))
        record = length + _checksum(length) + event + _checksum(event)
        write_whole(self._file, self._path, record)


def _integer(field: int, value: int) -> bytes:
    """Returns a field with a whole number that is not negative."""
    return bytes([field << 3]) + _varint(value)


def _bytes(field: int, content: bytes) -> bytes:
    """Returns a field with text or a message."""
    return bytes([field << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    digits = []
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


def _checksum(data: bytes) -> bytes:
    """Returns the masked CRC-32C of a record."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TimeRemainingColumn(),
)


# ---- Files


class Recorder:
    """Appends rows to metrics.jsonl and to TensorBoard's events.

    Args:
        file: metrics.jsonl, open for appending.
        path: Its path, for messages.
    """

    def __init__(self, file: FileIO, path: Path, events: EventFile) -> None:
        self._file = file
        self._path = path
        self._events = events

    def __call__(self, row: StepRow) -> None:
        """Appends the row of a step."""
        numbers = cast("Mapping[str, float]", row)
        finite = {}
        drawn = {}
        for key, value in numbers.items():
            finite[key] = value if math.isfinite(value) else None
            if key not in PLACE:
                drawn[f"{_group(key)}/{key}"] = finite[key]
        line = json.dumps(finite, allow_nan=False) + "\n"
        write_whole(self._file, self._path, line.encode())
        self._events.add(row["step"], drawn)

    def validated(self, row: Row) -> None:
        """Adds the row of a validation to TensorBoard's events."""
        numbers = {f"score/{name}": value for name, value in row.items() if name not in PLACE}
        self._events.add(row["step"], numbers)


def _group(key: str) -> str:
    """Returns the group of TensorBoard's charts that a number of a step belongs to."""
    if key in ("lr", "grad_norm", "samples_per_s", "flop_per_s"):
        return "rate"
    if key.endswith("_s"):
        return "time"
    if key.startswith(("memory", "energy", "simulated")):
        return "machine"
    return "loss"


@contextmanager
def recorder(run_dir: Path, steps_done: int) -> Iterator[Recorder]:
    """Yields a `Recorder` of the steps of a job that starts from a checkpoint after some steps.

    Its files drop what they hold of later steps: a job that was killed takes the steps since its
    last checkpoint again.

    Raises:
        WorkError: If a file cannot be written, or is a link, which is not followed.
    """
    path = run_dir / "metrics.jsonl"
    drop_rows_after(path, steps_done)
    with system_errors(f"cannot write {path}"):
        descriptor = open_in_place(path, os.O_APPEND)
    with (
        FileIO(descriptor, "a") as file,
        EventFile(run_dir / "tensorboard", steps_done + 1) as events,
    ):
        yield Recorder(file, path, events)


def sync_metrics(run_dir: Path) -> None:
    """Writes metrics.jsonl to the disk, so that no checkpoint exists before the rows of the steps
    up to it.
    """
    with (run_dir / "metrics.jsonl").open("rb") as file:
        os.fsync(file.fileno())


def drop_rows_after(path: Path, step: int) -> None:
    """Rewrites metrics.jsonl without the rows of later steps and without an incomplete row that a
    crash has left.
    """
    if not path.exists():
        return
    lines = read_text(path, largest_bytes=LARGEST_METRICS_BYTES, errors="replace").splitlines(
        keepends=True
    )
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


# ---- Terminal


@contextmanager
def counter(console: Console, description: str) -> Iterator[Callable[[int, int], None]]:
    """Yields `count(done, total)`, which shows a live bar on a terminal, elsewhere a line at every
    tenth.
    """
    last_tenth = 0
    with Progress(
        *COLUMNS, console=console, disable=not console.is_terminal, transient=True
    ) as progress:
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
    """Yields `show(row, last)`, which shows a live line on a terminal, and a plain line at the end
    of each epoch.

    Both have the first term of the loss, and the time to the end of the training, by the mean time
    of a step so far.
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
                console.print(
                    epoch_line(rows, epochs, terms[0]) + until_end, highlight=False, soft_wrap=True
                )
                rows.clear()

        yield show


def epoch_line(rows: Sequence[StepRow], epochs: int, term: str) -> str:
    """Returns one line about one epoch: means of the loss and of a term, and rates weighted by
    time.
    """
    seconds = 0.0
    samples = 0.0
    for row in rows:
        seconds += row["step_s"]
        samples += row["samples_per_s"] * row["step_s"]
    shares = [
        f"{100 * _total(rows, 'data_s') / seconds:.0f}% waiting for data",
        f"{100 * _total(rows, 'comm_s') / seconds:.0f}% for ranks",
    ]
    if "sync_s" in rows[0]:
        shares.append(f"{100 * _total(rows, 'sync_s') / seconds:.0f}% to synchronise")
    loss = _total(rows, "loss") / len(rows)
    mean_term = _total(rows, term) / len(rows)
    return (
        f"epoch {rows[0]['epoch'] + 1}/{epochs}  loss {loss:.4g}  {term.replace('_', ' ')} "
        f"{mean_term:.4g}  lr {rows[-1]['lr']:.3g}  {samples / seconds:.1f} samples/s  "
        f"{seconds:.1f} s ({', '.join(shares)}){_simulator_text(rows)}"
    )


def _total(rows: Sequence[StepRow], column: str) -> float:
    """Returns the sum of a column, of which rows that lack it have 0."""
    return sum(cast("Mapping[str, float]", row).get(column, 0) for row in rows)


def _simulator_text(rows: Sequence[StepRow]) -> str:
    """Returns the part of an epoch's line about samples that are simulated beside the training."""
    if "simulated" not in rows[0]:
        return ""
    samples = _total(rows, "simulated")
    seconds = _total(rows, "simulator_s")
    waiting_s = _total(rows, "simulator_wait_s")
    rate = f" at {samples / seconds:.1f} samples/s" if seconds else ""
    return f"; {samples} simulated{rate}, {waiting_s:.1f} s of waiting for them"


def validation_line(row: Row) -> str:
    """Returns one line about a validation."""
    numbers = "  ".join(
        f"{name.replace('_', ' ')} {'–' if value is None else f'{value:.4g}'}"
        for name, value in row.items()
        if name not in PLACE
    )
    return f"after epoch {row['epoch']}, {row['samples']} dev samples: {numbers}"
