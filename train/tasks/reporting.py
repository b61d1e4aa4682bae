"""The evaluation and the report of a run of any task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

from rich.console import Group
from rich.table import Table as TerminalTable
from rich.text import Text as TerminalText

from namsa.base.errors import InputError
from namsa.base.folders import finish_switch
from namsa.base.json_files import read_typed
from namsa.base.text import shorten
from namsa.config.loading import read_yaml
from namsa.figures.document import Block, Note, Paragraph, Table, Text, note

from ..measure.results import Evaluation
from ..reports import report
from ..reports.report import ResultPart
from ..reports.results import EVALUATE_AGAIN
from . import registry

# Facts of the start that took a run's steps.
OF_STEPS = ("ranks", "device", "machine", "seconds", "performance")


@runtime_checkable
class RunReport(Protocol):
    """The results of a run as a task shows them."""

    def read(self, path: Path) -> Evaluation:
        """Returns the contents of an `evaluation.json`.

        Raises:
            InputError: If the file cannot be read or holds something else.
        """

    def part(self, run_dir: Path) -> ResultPart:
        """Returns the part of the report of a run."""

    def table(self, evaluation: Evaluation, run_dir: Path, page: Path | None) -> Group:
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

    def terminal(self) -> TerminalTable:
        """Returns the table for the terminal, with a column for each row if it is too wide for 80
        characters.
        """
        table = TerminalTable(title=self.title, caption=f"baseline: {self.baseline}\n")
        head = self.head
        rows = self.rows
        if self.text_columns == 1 and len(head) > MOST_COLUMNS:
            head, *rows = zip(head, *rows, strict=True)
        for column, heading in enumerate(head):
            table.add_column(heading, justify="left" if column < self.text_columns else "right")
        for row in rows:
            table.add_row(*row)
        return table

    def of_report(self) -> Table:
        """Returns the table of the report, with the notes on its rows below their names."""
        rows: list[Sequence[Text]] = []
        for name, *cells in self.rows:
            title: Text = name
            if name in self.notes:
                title = (name, note(self.notes[name]))
            rows.append((title, *cells))
        head = [f"{name[:1].upper()}{name[1:]}" for name in self.head]
        caption = f"{self.title}; baseline: {self.baseline}"
        return Table(head, rows, self.text_columns, caption)

    def of_card(self) -> Table:
        """Returns the table of the model card, with the notes on its rows in a column."""
        if not self.notes:
            return Table(self.head, self.rows, self.text_columns)
        title, *titles = self.head
        rows = []
        for name, *cells in self.rows:
            rows.append((name, self.notes.get(name, ""), *cells))
        return Table((title, "", *titles), rows, self.text_columns + 1)


Results = TypeVar("Results", bound=Evaluation)  # the contents of a task's `evaluation.json`


@dataclass(frozen=True)
class TaskReport(Generic[Results]):
    """A `RunReport` that is made from `evaluation.json`."""

    kind: str  # as of `ResultPart`
    evaluation: type[Results]
    scores: Callable[[Results], ScoreTable]  # returns the main results
    headline: Callable[[Results], Text]  # returns the sentences above the main results
    samples: Callable[[Results], Table]  # returns a table of every held-out sample
    # Returns what follows the main results of a run directory.
    details: Callable[[Results, Path], Sequence[Block]] = lambda evaluation, run_dir: ()
    # Raises ValueError, with what is wrong, if parts of an evaluation do not fit together.
    check: Callable[[Results], None] = lambda evaluation: None

    def read(self, path: Path) -> Results:
        evaluation = read_typed(self.evaluation, path, EVALUATE_AGAIN)
        try:
            self.check(evaluation)
        except ValueError as error:
            raise InputError(f"{path}: {error}: {EVALUATE_AGAIN}") from None
        return evaluation

    def part(self, run_dir: Path) -> ResultPart:
        path = run_dir / "evaluation.json"
        evaluation = self.read(path) if path.is_file() else None
        if evaluation is None or not evaluation["samples"]:
            run = evaluation["run"] if evaluation else None
            nothing = Note("No held-out sample has been evaluated.")
            return ResultPart(self.kind, (nothing,), Note("None."), run)
        try:
            results = (
                Paragraph(self.headline(evaluation), role="headline"),
                self.scores(evaluation).of_report(),
                *self.details(evaluation, run_dir),
            )
            samples = self.samples(evaluation)
        except (LookupError, ArithmeticError, ValueError) as error:
            # Numbers are missing, or fit nothing.
            raise InputError(
                f"{path} contradicts itself ({shorten(repr(error))}): {EVALUATE_AGAIN}"
            ) from error
        return ResultPart(self.kind, results, samples, evaluation["run"])

    def table(self, evaluation: Evaluation, run_dir: Path, page: Path | None) -> Group:
        return with_places(self.scores(cast(Results, evaluation)).terminal(), run_dir, page)


def sample_table(
    evaluation: Evaluation,
    head: Sequence[str],
    cells: Callable[[Any], Sequence[Text]],
    texts: int = 0,
    caption: str = "",
) -> Table:
    """Returns a table of every held-out sample: its id, its formula, its split, and some cells.

    Args:
        head: Headings of the cells.
        cells: Returns the cells of a row of the evaluation.
        texts: Number of leading cells that hold text.
    """
    rows = []
    for row in evaluation["samples"]:
        rows.append((row["id"], row["formula"], row["split"], *cells(row)))
    return Table(("Sample", "Formula", "Split", *head), rows, 3 + texts, caption)


def with_places(table: TerminalTable, run_dir: Path, page: Path | None) -> Group:
    """Returns a table, and below it its caption and where report and run directory are. These lines
    are wrapped at the width of the output, not at that of the table, which divides paths.
    """
    lines = f"{table.caption}report: {page}\neverything: {run_dir}"
    table.caption = None
    return Group(table, TerminalText(lines))


def report_of(task: str) -> RunReport:
    """Returns what a task shows of a run; that of a density for a name that is no task's."""
    name = task if registry.is_known(task) else "density"
    shown: RunReport = registry.part(name, "report").REPORT
    return shown


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
    finish_switch(run_dir)
    return report.write_report(run_dir, report_of(_task(run_dir)).part)


def read_results(run_dir: Path) -> Evaluation:
    """Returns the contents of a run's `evaluation.json`. Raises InputError if it holds something
    else.
    """
    finish_switch(run_dir)
    return report_of(_task(run_dir)).read(run_dir / "evaluation.json")


def facts_of_steps(run_dir: Path) -> dict[str, object]:
    """Returns facts of the last start that took steps, which no evaluation replaces; none if they
    cannot be read.
    """
    try:
        run = read_results(run_dir)["run"]
    except InputError:
        return {}
    if run.get("performance"):
        return {name: run[name] for name in OF_STEPS if name in run}
    return {}


def _task(run_dir: Path) -> str:
    """The task that a run's configuration names; "density" without one."""
    path = run_dir / "config.yaml"
    training = read_yaml(path).get("training") if path.is_file() else None
    if isinstance(training, dict):
        return str(training.get("task", "density"))
    return "density"
