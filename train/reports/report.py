"""Writes `report.html`: what a run learned, in one file that needs no network and no script.

The page is made only from `config.yaml`, `metrics.jsonl`, `evaluation.json`, `predictions.npz` and `profile.json`, so
that it can be written again later and elsewhere. A part whose file is missing says so.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from string import Template
from typing import Any, TypeVar

import numpy as np

from namsa.config.loading import LARGEST_FILE_BYTES, read_yaml
from namsa.errors import InputError
from namsa.files import read_text, write_text_atomic
from namsa.text import duration, shorten

from ..measure import profile_results, rows
from ..measure.profile_results import Profile
from ..measure.rows import PLACE
from . import figures, performance_section
from .performance_section import performance
from .report_tables import count, missing, number, plain, table
from .runs import Steps, read_steps

FILES = ("config.yaml", "metrics.jsonl", "evaluation.json", "predictions.npz")
STEP_COLUMNS = ("step", "epoch", "loss", "lr", "step_s", "data_s", "comm_s")
MEASURED_COLUMNS = ("sync_s", "wall_s", "flop_per_s", "energy_j", "energy_gpu_j")  # some rows lack these

T = TypeVar("T")


@dataclass(frozen=True)
class ResultPart:
    """What a task contributes to the report, as HTML."""

    kind: str  # what the report is of, a colon, and its short form for the browser
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
    validations = read_if_there(run_dir / rows.VALIDATIONS, rows.read)
    if steps and not len(steps["step"]):
        steps = None
    no_step = missing("No step has been recorded in metrics.jsonl.")
    template = Template(Path(__file__).with_name("report_page.html").read_text(encoding="utf-8"))
    page = template.substitute(
        name=escape(config[0] if config else run_dir.resolve().name),
        kind=part.kind,
        title=part.kind.rpartition(": ")[2],
        results=part.results,
        training=(training_section(steps, part.terms, part.settings) if steps else no_step)
        + validation_section(validations or []),
        time=time_section(steps) if steps else no_step,
        power=performance_section.power_over_time(steps),
        profile=performance_section.profiled(profile),
        facts=facts_section(part.run, steps, profile),
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


def training_section(steps: Steps, terms: Mapping[str, str], settings: Mapping[str, str]) -> str:
    """Returns how the loss developed. The arguments are those of `train.reports.figures.loss_figure`."""
    _, loss = figures.epoch_means(steps, "loss")
    skipped = int(np.count_nonzero(~np.isfinite(steps["loss"])))
    length = f"{count(len(loss), 'epoch')}, {count(len(steps['step']), 'step')}"
    text = f"The mean loss per epoch went from {loss[0]:.3g} to {loss[-1]:.3g} in {length}."
    if skipped:
        text += f" {count(skipped, 'step')} had no finite loss."
    below = ", ".join(["Loss", "learning rate", *(label.replace("\n", " ") for label in settings.values())])
    return f"<p>{text}</p>{_plot(figures.loss_figure(steps, terms, settings), f'{below} over the steps')}"


def validation_section(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the rows of validation.jsonl as a table; nothing if there are none."""
    if not rows:
        return ""
    names = [name for name in rows[-1] if name not in PLACE]
    cells = [
        (f"{row['epoch']}", f"{row['step']}", f"{row['samples']}", *(number(row.get(name), ".4g") for name in names))
        for row in rows
    ]
    head = ("Epochs", "Steps", "Samples", *(escape(name.replace("_", " ")) for name in names))
    return table("Validation, dev split", head, cells, text_columns=0)


def time_section(steps: Steps) -> str:
    """Returns where the time of the steps went, without the first step, which builds the graph."""
    later = {name: column[1:] for name, column in steps.items()} if len(steps["step"]) > 1 else steps
    parts = {name: float(np.nansum(seconds)) for name, seconds in figures.time_parts(later).items()}
    whole = sum(parts.values()) or 1.0
    shares = ", ".join(f"{seconds / whole:.1%} {name}" for name, seconds in parts.items())
    text = (
        f"The time per step is {shares}. The median step takes {np.nanmedian(later['step_s']) * 1e3:.3g} ms on rank 0. "
        "Communication is the part that did not overlap with computing, including the wait for the slowest rank. The "
        "first step, which builds the graph, is left out."
    )
    return f"<p>{text}</p>{_plot(figures.time_figure(later), 'The parts of the time per step, over the steps')}"


def facts_section(run: Mapping[str, Any], steps: Steps | None, profile: Profile | None = None) -> str:
    """Returns the facts about the run, and its steps if there are some, as a table."""
    known: dict[str, Any] = {key: value for key, value in run.items() if key != "performance"}
    if run.get("performance"):
        known |= performance(run, profile)
    if steps:
        known |= {"steps": len(steps["step"]), "time in steps": duration(float(np.nansum(steps["step_s"])))}
    if not known:
        return missing("Nothing about the run has been recorded.")
    rows = [(escape(key.replace("_", " ")), escape(plain(value))) for key, value in known.items()]
    return table("", (), rows, text_columns=2)


def _plot(figure: Any, alt: str) -> str:
    return f'<figure><img class="plot" src="{figures.data_uri(figure, "svg")}" alt="{alt}"></figure>'
