"""Writes `report.html`: what a run learned, in one file that needs no network and no script.

The page is made only from `config.yaml`, `metrics.jsonl`, `evaluation.json`, `predictions.npz` and `profile.json`, so
that it can be written again later and elsewhere. A part whose file is missing says so.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from string import Template
from typing import Any, TypeVar

from namsa.config.loading import LARGEST_FILE_BYTES, read_yaml
from namsa.errors import InputError
from namsa.files import read_text, write_text_atomic
from namsa.text import shorten

from ..measure import profile_results, validation_rows
from . import depth_section, performance_section
from . import report_sections as sections
from .pictures import read_predictions
from .report_tables import missing
from .results import read_evaluation
from .runs import read_steps

FILES = ("config.yaml", "metrics.jsonl", "evaluation.json", "predictions.npz")
STEP_COLUMNS = ("step", "epoch", "loss", "lr", "step_s", "data_s", "comm_s")
MEASURED_COLUMNS = ("sync_s", "wall_s", "flop_per_s", "energy_j", "energy_gpu_j")  # some rows lack these

T = TypeVar("T")


@dataclass(frozen=True)
class ResultPart:
    """What a task contributes to the report, as HTML.

    Attributes:
        kind: What the report is of.
        title: Its short form, for the browser.
        results: From the headline to the results in detail.
        samples: A table of every held-out sample.
        run: Facts about the run; empty if there is no evaluation.
        terms: Columns of metrics.jsonl that are drawn with the loss, and their labels.
        settings: Columns of metrics.jsonl that are drawn below it, as the learning rate is, and their labels.
    """

    kind: str
    title: str
    results: str
    samples: str
    run: Mapping[str, Any]
    terms: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


def write_report(run_dir: Path, result_part: Callable[[Path], ResultPart] | None = None) -> Path:
    """Writes the report of a run.

    Args:
        run_dir: Directory of the run; see `FILES`.
        result_part: Returns the task's part for a run directory; `None` for that of a density.

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
    part = (result_part or density_part)(run_dir)
    optional = (*part.terms, *part.settings, *MEASURED_COLUMNS)
    steps = _read(paths[1], lambda path: read_steps(path, STEP_COLUMNS, optional))
    profile = _read(run_dir / profile_results.FILE_NAME, profile_results.read_profile)
    validations = _read(run_dir / validation_rows.FILE_NAME, validation_rows.read)
    if steps and not len(steps["step"]):
        steps = None
    no_step = missing("No step has been recorded in metrics.jsonl.")
    template = Template(Path(__file__).with_name("report_page.html").read_text(encoding="utf-8"))
    page = template.substitute(
        name=escape(config[0] if config else run_dir.resolve().name),
        kind=part.kind,
        title=part.title,
        results=part.results,
        training=(sections.training(steps, part.terms, part.settings) if steps else no_step)
        + sections.validation(validations or []),
        time=sections.time(steps) if steps else no_step,
        power=performance_section.power_over_time(steps),
        profile=performance_section.profiled(profile),
        facts=sections.facts(part.run, steps, profile),
        samples=part.samples,
        config=f"<pre>{escape(config[1])}</pre>" if config else missing("config.yaml is missing."),
    )
    path = run_dir / "report.html"
    write_text_atomic(path, page)
    return path


def density_part(run_dir: Path) -> ResultPart:
    """Returns the part of a density: scores beside those of the mean image, and pictures."""
    evaluation = _read(run_dir / "evaluation.json", read_evaluation)
    predictions = _read(run_dir / "predictions.npz", read_predictions)
    run: Mapping[str, Any] = evaluation["run"] if evaluation else {}
    if evaluation and not evaluation["samples"]:
        evaluation = None
    no_sample = missing("No held-out sample has been evaluated.")
    pictures = missing("No pictures: predictions.npz is missing.")
    if predictions:
        pictures = sections.reconstructions(*predictions, evaluation)
    parts: tuple[str, ...] = (
        sections.headline(evaluation) if evaluation else no_sample,
        sections.means(evaluation) if evaluation else "",
        "<h2>Reconstructions</h2>",
        pictures,
        "<h2>By condition and material</h2>",
        sections.groups(evaluation) if evaluation else no_sample,
    )
    by_depth = evaluation.get("by_depth") if evaluation else None
    bins = _read(run_dir / depth_section.FILE_NAME, depth_section.read_bins)
    if by_depth:
        parts = (*parts, depth_section.section(by_depth, predictions[0] if predictions else [], bins or {}))
    samples = sections.samples(evaluation["samples"]) if evaluation else missing("None.")
    kind, title = "Electron density from 4D-STEM: reconstruction report", "reconstruction report"
    terms, settings = {"huber": "its Huber term"}, {"delta": "Huber\ndelta"}
    return ResultPart(kind, title, "\n".join(parts), samples, run, terms, settings)


def _read_config(path: Path) -> tuple[str, str]:
    """The name of the experiment and the text of the file."""
    return shorten(read_yaml(path).get("name", path.parent.name)), read_text(path, largest_bytes=LARGEST_FILE_BYTES)


def _read(path: Path, reader: Callable[[Path], T]) -> T | None:
    """What `reader` returns for the file; `None` if there is no file."""
    return reader(path) if path.is_file() else None
