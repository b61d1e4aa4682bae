"""The evaluation and the report of a run of any task."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rich.table import Table

from namsa.config.loading import read_yaml
from namsa.errors import InputError
from namsa.text import shorten

from ...namsa.json_files import read_typed
from ..reports import report
from ..reports.report import ResultPart
from ..reports.report_tables import missing
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
        """Returns the main results for the terminal.

        Args:
            evaluation: Results on held-out samples.
            page: The report, if one was written.
        """


@dataclass(frozen=True)
class TaskReport:
    """A `RunReport` that is made from `evaluation.json`."""

    kind: str  # what the report is of
    title: str  # its short form, for the browser
    evaluation: Any  # type of the contents of `evaluation.json`
    terminal: Callable[[Any], Table]  # returns the main results as a table, whose caption says what the baseline is
    # Returns the results of a run directory as HTML, from the headline to the details.
    results: Callable[[Any, Path], str]
    samples: Callable[[Any], str]  # returns a table of every held-out sample as HTML
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
            return ResultPart(self.kind, self.title, nothing, missing("None."), run)
        try:
            results, samples = self.results(evaluation, run_dir), self.samples(evaluation)
        except (LookupError, ArithmeticError, ValueError) as error:  # numbers that are missing, or fit nothing
            raise InputError(f"{path} contradicts itself ({shorten(repr(error))}): {EVALUATE_AGAIN}") from error
        return ResultPart(self.kind, self.title, results, samples, evaluation["run"])

    def table(self, evaluation: Mapping[str, Any], run_dir: Path, page: Path | None) -> Table:
        return with_places(self.terminal(evaluation), run_dir, page)


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
    """Returns the contents of the `evaluation.json` of a run.

    Raises:
        InputError: If the file cannot be read or holds something else.
    """
    return report_of(_task(run_dir)).read(run_dir / "evaluation.json")


def facts_of_steps(run_dir: Path) -> dict[str, Any]:
    """Returns the facts of the last start of a job that took steps, which an evaluation alone must not replace.

    Returns:
        Some of the facts in `evaluation.json`; none if it cannot be read or is of no such start.
    """
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
