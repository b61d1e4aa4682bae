"""The report of a run of any task."""

from collections.abc import Callable
from pathlib import Path

from namsa.config.loading import read_yaml
from train.reports import report
from train.reports.report import ResultPart
from train.tasks.class_report import class_part

PARTS: dict[str, Callable[[Path], ResultPart]] = {"density": report.density_part, "classify": class_part}


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
    path = run_dir / "config.yaml"
    training = read_yaml(path).get("training") if path.is_file() else None
    task = training.get("task", "density") if isinstance(training, dict) else "density"
    return report.write_report(run_dir, PARTS.get(str(task), report.density_part))
