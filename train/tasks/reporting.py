"""The evaluation and the report of a run of any task."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rich.table import Table

from namsa.config.loading import read_yaml
from namsa.errors import InputError
from namsa.json_files import read_typed
from namsa.text import shorten

from ..reports import report
from ..reports.markdown import plain
from ..reports.markdown import table as markdown_table
from ..reports.report import ResultPart
from ..reports.report_tables import missing
from ..reports.report_tables import table as html_table
from ..reports.results import EVALUATE_AGAIN
from . import registry

OF_STEPS = ("ranks", "device", "machine", "seconds", "performance")  # facts of the start that took a run's steps


@runtime_checkable
class RunReport(Protocol):
    """What a task shows of the results of a run."""

    def read(self, path: Path) -> Mapping[str, Any]:
        """Returns the contents of an `evaluation.json`.

        Raises:
            InputError: If the file cannot be read or holds something else.
        """

    def part(self, run_dir: Path) -> ResultPart:
        """Returns the part of the report of a run."""

    def table(self, evaluation: Mapping[str, Any], run_dir: Path, page: Path | None) -> Table:
        """Returns the main results for the terminal."""


MOST_COLUMNS = 8  # of a table on the terminal


@dataclass(frozen=True)
class ScoreTable:
    """Scores of a network beside a baseline, for the terminal, the report and the model card."""

    title: str  # what is scored
    baseline: str  # what the baseline is
    head: Sequence[str]  # names of the columns
    rows: Sequence[Sequence[str]]  # cells, as text
    text_columns: int = 1  # leading columns that hold text
    notes: Mapping[str, str] = field(default_factory=dict)  # about a row, by its first cell

    def terminal(self) -> Table:
        """Returns the table for the terminal, with a column for each row if it is too wide for 80 characters."""
        found = Table(title=self.title, caption=f"baseline: {self.baseline}\n")
        head, rows = self.head, self.rows
        if self.text_columns == 1 and len(head) > MOST_COLUMNS:
            head, *rows = zip(head, *rows, strict=True)
        for number, heading in enumerate(head):
            found.add_column(heading, justify="left" if number < self.text_columns else "right")
        for row in rows:
            found.add_row(*row)
        return found

    def html(self) -> str:
        """Returns the table as HTML."""
        notes = {name: f'<span class="note">{escape(note)}</span>' for name, note in self.notes.items()}
        rows = [(escape(row[0]) + notes.get(row[0], ""), *map(escape, row[1:])) for row in self.rows]
        head = [escape(f"{name[:1].upper()}{name[1:]}") for name in self.head]
        return html_table(f"{self.title}; baseline: {self.baseline}", head, rows, self.text_columns)

    def markdown(self) -> Iterator[str]:
        """Yields the lines of the table as Markdown, with the notes on its rows in a column."""
        lines = [(name, self.notes.get(name, ""), *rest) if self.notes else (name, *rest) for name, *rest in self.rows]
        name, *rest = self.head
        head = (name, "", *rest) if self.notes else self.head
        return markdown_table(tuple(map(plain, head)), [tuple(map(plain, line)) for line in lines])


@dataclass(frozen=True)
class TaskReport:
    """A `RunReport` that is made from `evaluation.json`."""

    kind: str  # as of `ResultPart`
    evaluation: Any  # type of the contents of `evaluation.json`
    scores: Callable[[Any], ScoreTable]  # returns the main results
    headline: Callable[[Any], str]  # returns the sentences above the main results, as HTML
    samples: Callable[[Any], str]  # returns a table of every held-out sample as HTML
    # Returns what follows the main results of a run directory, as HTML.
    details: Callable[[Any, Path], Sequence[str]] = lambda evaluation, run_dir: ()
    # Raises ValueError, with what is wrong, if parts of an evaluation do not fit together.
    check: Callable[[Any], None] = lambda evaluation: None

    def read(self, path: Path) -> Mapping[str, Any]:
        found: Mapping[str, Any] = read_typed(self.evaluation, path, EVALUATE_AGAIN)
        try:
            self.check(found)
        except ValueError as error:
            raise InputError(f"{path}: {error}: {EVALUATE_AGAIN}") from None
        return found

    def part(self, run_dir: Path) -> ResultPart:
        path = run_dir / "evaluation.json"
        evaluation = self.read(path) if path.is_file() else None
        if evaluation is None or not evaluation["samples"]:
            run: Mapping[str, Any] = evaluation["run"] if evaluation else {}
            nothing = missing("No held-out sample has been evaluated.")
            return ResultPart(self.kind, nothing, missing("None."), run)
        try:
            headline, scores = f'<p class="headline">{self.headline(evaluation)}</p>', self.scores(evaluation).html()
            results = "\n".join([headline, scores, *self.details(evaluation, run_dir)])
            samples = self.samples(evaluation)
        except (LookupError, ArithmeticError, ValueError) as error:  # numbers that are missing, or fit nothing
            raise InputError(f"{path} contradicts itself ({shorten(repr(error))}): {EVALUATE_AGAIN}") from error
        return ResultPart(self.kind, results, samples, evaluation["run"])

    def table(self, evaluation: Mapping[str, Any], run_dir: Path, page: Path | None) -> Table:
        return with_places(self.scores(evaluation).terminal(), run_dir, page)


def sample_table(
    evaluation: Mapping[str, Any],
    head: Sequence[str],  # of the cells
    cells: Callable[[Any], Sequence[str]],  # returns those of a row of the evaluation, as HTML
    texts: int = 0,  # number of leading cells that hold text
    caption: str = "",
) -> str:
    """Returns a table of every held-out sample as HTML: which one it is, and some cells."""
    rows = [(*(escape(row[key]) for key in ("id", "formula", "split")), *cells(row)) for row in evaluation["samples"]]
    return html_table(caption, ("Sample", "Formula", "Split", *head), rows, text_columns=3 + texts)


def with_places(table: Table, run_dir: Path, page: Path | None) -> Table:
    """Adds to the caption of a table where report and run directory are."""
    table.caption = f"{table.caption}report: {page}\neverything: {run_dir}"
    return table


def report_of(task: str) -> RunReport:
    """Returns what a task shows of a run; that of a density for a name that is no task's."""
    found: RunReport = registry.part(task if task in registry.TASKS else "density", "report").REPORT
    return found


def write_report(run_dir: Path) -> Path:
    """Writes the report of a run, of the task that its configuration names.

    Args:
        run_dir: Directory of the run; see `train.reports.report.FILES`.

    Returns:
        Path of the page, `run_dir`/report.html.

    Raises:
        InputError: If `run_dir` is no run directory, or a file in it is damaged.
        WorkError: If the page cannot be written.
    """
    return report.write_report(run_dir, report_of(_task(run_dir)).part)


def read_results(run_dir: Path) -> Mapping[str, Any]:
    """Returns the contents of a run's `evaluation.json`. Raises InputError if it holds something else."""
    return report_of(_task(run_dir)).read(run_dir / "evaluation.json")


def facts_of_steps(run_dir: Path) -> dict[str, Any]:
    """Returns facts of the last start that took steps, which no evaluation replaces; none if they cannot be read."""
    try:
        run = read_results(run_dir)["run"]
    except InputError:
        return {}
    return {name: run[name] for name in OF_STEPS if name in run} if run.get("performance") else {}


def _task(run_dir: Path) -> str:
    """The task that a run's configuration names; "density" without one."""
    path = run_dir / "config.yaml"
    training = read_yaml(path).get("training") if path.is_file() else None
    return str(training.get("task", "density")) if isinstance(training, dict) else "density"
