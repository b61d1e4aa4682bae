"""Writes `report.html`: what a run learned, in one file that needs no network and no script.

The page is made only from `config.yaml`, `metrics.jsonl`, `evaluation.json`, `predictions.npz` and `profile.json`, so
that it can be written again later and elsewhere. A part whose file is missing says so.
"""

from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import Any, TypeVar

from namsa.config.loading import LARGEST_FILE_BYTES, read_yaml
from namsa.errors import InputError
from namsa.files import read_text, write_text_atomic
from namsa.text import shorten
from train.measure import profile_results
from train.reports import performance_section
from train.reports import report_sections as sections
from train.reports.pictures import read_predictions
from train.reports.report_tables import missing
from train.reports.results import read_evaluation
from train.reports.runs import read_steps

FILES = ("config.yaml", "metrics.jsonl", "evaluation.json", "predictions.npz")
STEP_COLUMNS = ("step", "epoch", "loss", "huber", "lr", "delta", "step_s", "data_s", "comm_s")
MEASURED_COLUMNS = ("wall_s", "flop_per_s", "energy_j", "energy_gpu_j")  # some rows lack these

T = TypeVar("T")


def write_report(run_dir: Path) -> Path:
    """Writes the report of a run.

    Args:
        run_dir: Directory of the run; see `FILES`.

    Returns:
        Path of the page, `run_dir`/report.html.

    Raises:
        InputError: If `run_dir` holds none of `FILES`, or one of them is damaged.
        WorkError: If the page cannot be written.
    """
    paths = [run_dir / name for name in FILES]
    if not any(path.is_file() for path in paths):
        raise InputError(f"{run_dir} is no run directory: it has none of {', '.join(FILES)}")
    config = _read(paths[0], _read_config)
    steps = _read(paths[1], lambda path: read_steps(path, STEP_COLUMNS, MEASURED_COLUMNS))
    evaluation = _read(paths[2], read_evaluation)
    predictions = _read(paths[3], read_predictions)
    profile = _read(run_dir / profile_results.FILE_NAME, profile_results.read_profile)
    run: Mapping[str, Any] = evaluation["run"] if evaluation else {}
    if evaluation and not evaluation["samples"]:
        evaluation = None
    if steps and not len(steps["step"]):
        steps = None
    no_sample = missing("No held-out sample has been evaluated.")
    no_step = missing("No step has been recorded in metrics.jsonl.")
    template = Template(Path(__file__).with_name("report_page.html").read_text(encoding="utf-8"))
    page = template.substitute(
        name=escape(config[0] if config else run_dir.resolve().name),
        headline=sections.headline(evaluation) if evaluation else no_sample,
        means=sections.means(evaluation) if evaluation else "",
        pictures=sections.reconstructions(*predictions, evaluation)
        if predictions
        else missing("No pictures: predictions.npz is missing."),
        groups=sections.groups(evaluation) if evaluation else no_sample,
        training=sections.training(steps) if steps else no_step,
        time=sections.time(steps) if steps else no_step,
        power=performance_section.power_over_time(steps),
        profile=performance_section.profiled(profile),
        facts=sections.facts(run, steps, profile),
        samples=sections.samples(evaluation["samples"]) if evaluation else missing("None."),
        config=f"<pre>{escape(config[1])}</pre>" if config else missing("config.yaml is missing."),
    )
    path = run_dir / "report.html"
    write_text_atomic(path, page)
    return path


def _read_config(path: Path) -> tuple[str, str]:
    """The name of the experiment and the text of the file."""
    return shorten(read_yaml(path).get("name", path.parent.name)), read_text(path, largest_bytes=LARGEST_FILE_BYTES)


def _read(path: Path, reader: Callable[[Path], T]) -> T | None:
    """What `reader` returns for the file; `None` if there is no file."""
    return reader(path) if path.is_file() else None
