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
from . import performance_section
from . import report_sections as sections
from .report_tables import missing
from .runs import read_steps

FILES = ("config.yaml", "metrics.jsonl", "evaluation.json", "predictions.npz")
STEP_COLUMNS = ("step", "epoch", "loss", "lr", "step_s", "data_s", "comm_s")
MEASURED_COLUMNS = ("sync_s", "wall_s", "flop_per_s", "energy_j", "energy_gpu_j")  # some rows lack these

T = TypeVar("T")


@dataclass(frozen=True)
class ResultPart:
    """What a task contributes to the report, as HTML."""

    kind: str  # what the report is of
    title: str  # its short form, for the browser
    results: str  # from the headline to the results in detail
    samples: str  # a table of every held-out sample
    run: Mapping[str, Any]  # facts about the run; empty if there is no evaluation
    # Columns of metrics.jsonl that are drawn with the loss, and their labels.
    terms: Mapping[str, str] = field(default_factory=dict)
    # Columns of metrics.jsonl that are drawn below it, as the learning rate is, and their labels.
    settings: Mapping[str, str] = field(default_factory=dict)


def write_report(run_dir: Path, result_part: Callable[[Path], ResultPart]) -> Path:
    """Writes the report of a run.

    Args:
        run_dir: Directory of the run; see `FILES`.
        result_part: Returns the task's part for a run directory.

    Returns:
        Path of the page, `run_dir`/report.html.

    Raises:
        InputError: If `run_dir` holds none of `FILES`, or one of them is damaged.
        WorkError: If the page cannot be written.
    """
    paths = [run_dir / name for name in FILES]
    if not any(path.is_file() for path in paths):
        raise InputError(f"{run_dir} is no run directory: it has none of {', '.join(FILES)}")
    config = read_if_there(paths[0], _read_config)
    part = result_part(run_dir)
    optional = (*part.terms, *part.settings, *MEASURED_COLUMNS)
    steps = read_if_there(paths[1], lambda path: read_steps(path, STEP_COLUMNS, optional))
    profile = read_if_there(run_dir / profile_results.FILE_NAME, profile_results.read_profile)
    validations = read_if_there(run_dir / validation_rows.FILE_NAME, validation_rows.read)
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


def _read_config(path: Path) -> tuple[str, str]:
    """The name of the experiment and the text of the file."""
    return shorten(read_yaml(path).get("name", path.parent.name)), read_text(path, largest_bytes=LARGEST_FILE_BYTES)


def read_if_there(path: Path, reader: Callable[[Path], T]) -> T | None:
    """Returns what `reader` returns for a file; `None` if there is no file."""
    return reader(path) if path.is_file() else None
