"""The evaluation and the report of a run of any task."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from namsa.config.loading import read_yaml
from namsa.errors import InputError

from ..reports import report
from ..reports.report import ResultPart
from ..reports.results import read_evaluation
from .class_report import class_part, read_classes
from .embed_report import embed_part, read_embedding
from .estimate_report import estimate_part, read_estimates
from .segment_report import read_segments, segment_part

PARTS: dict[str, Callable[[Path], ResultPart]] = {
    "density": report.density_part,
    "classify": class_part,
    "segment": segment_part,
    "embed": embed_part,
    "estimate": estimate_part,
}
READERS: dict[str, Callable[[Path], Mapping[str, Any]]] = {
    "density": read_evaluation,
    "classify": read_classes,
    "segment": read_segments,
    "embed": read_embedding,
    "estimate": read_estimates,
}

OF_STEPS = ("ranks", "device", "machine", "seconds", "performance")  # facts of the start that took a run's steps


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
    return report.write_report(run_dir, PARTS.get(_task(run_dir), report.density_part))


def read_results(run_dir: Path) -> Mapping[str, Any]:
    """Returns the contents of the `evaluation.json` of a run.

    Raises:
        InputError: If the file cannot be read or holds something else.
    """
    return READERS[_task(run_dir)](run_dir / "evaluation.json")


def facts_of_steps(run_dir: Path) -> dict[str, Any]:
    """Returns the facts of the last start of a job that took steps, which an evaluation alone must not replace.

    Args:
        run_dir: Directory of the run.

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
