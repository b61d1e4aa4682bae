"""Output of several commands: progress bars, tables, estimates and failures."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from namsa.base.console import output_console
from namsa.base.text import printable
from namsa.cli.stage_log import StageLog
from namsa.dataset.estimate import DatasetEstimate, SampleEstimate, table_rows

HDF5_SUFFIXES = (".h5", ".hdf5", ".emd")


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Shows progress on stderr if that is a terminal, and nothing elsewhere."""
    console = Console(file=sys.stderr)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        yield progress


@contextmanager
def stage_bars() -> Iterator[Callable[[str, int, int | None], None]]:
    """Yields a function `on_progress(stage, done, total)`.

    On a terminal it shows a bar for each stage. Elsewhere, as in the log of a batch job, it writes
    a line from time to time.
    """
    if not sys.stderr.isatty():
        yield StageLog(sys.stderr)
        return
    with progress_bars() as progress:
        tasks: dict[str, TaskID] = {}

        def on_progress(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = progress.add_task(stage)
            progress.update(tasks[stage], completed=done, total=total)

        yield on_progress


def print_line(line: str, file: TextIO | None = None) -> None:
    """Prints one line. What a terminal would act on is escaped: names and reasons come from files
    of others.
    """
    print(printable(line), file=file)


def print_json(value: object) -> None:
    """Prints a value as one line of JSON, in one write: lines of several ranks stay whole without
    Python's buffer.
    """
    text = json.dumps(value, ensure_ascii=False)
    if not _is_encodable(text):
        text = json.dumps(value)
    # JSON allows most characters that a terminal would act on, as those which turn the direction of
    # writing.
    print("".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text) + "\n", end="")


def _is_encodable(text: str) -> bool:
    """Returns whether stdout can take a text without replacing characters."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def print_table(rows: Iterable[Sequence[str]], columns: Sequence[str] = ()) -> None:
    """Prints rows of cells, under a header if `columns` names the columns."""
    table = Table(*columns, box=None, show_header=bool(columns))
    for row in rows:
        table.add_row(*row)
    output_console().print(table)


def print_estimate(estimate: SampleEstimate | DatasetEstimate, as_json: bool) -> None:
    """Prints what `namsa.dataset.estimate` expects of a simulation."""
    if as_json:
        print_json(asdict(estimate))
    else:
        print_table(table_rows(estimate))


def print_failures(failures: Mapping[str, str]) -> None:
    """Prints the samples whose simulation failed, with the reasons."""
    for sample_id, reason in failures.items():
        print_line(f"failed {sample_id}: {reason}")
