"""Writes `report.html`: what a run learned, in one file that needs no network and no script.

The page is made only from `config.yaml`, `metrics.jsonl`, `evaluation.json`, `predictions.npz` and
`profile.json`, so that it can be written again later and elsewhere. A part whose file is missing
says so.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from matplotlib.figure import Figure

from namsa.base.errors import InputError
from namsa.base.files import read_text, write_text_atomic
from namsa.base.text import duration, shorten
from namsa.config.loading import LARGEST_FILE_BYTES, read_yaml
from namsa.figures.document import (
    Block,
    Document,
    DocumentSection,
    Fold,
    Note,
    Paragraph,
    Picture,
    Preformatted,
    Table,
    page_html,
)

from ..measure import profile_results, rows
from ..measure.profile_results import Profile
from ..measure.results import RunFacts
from ..measure.rows import PLACE, Row
from . import figures, performance_section
from .held_out import held_out_words
from .performance_section import performance
from .runs import Steps, read_steps
from .words import count, number, plain

FILE = "report.html"  # what is written
FILES = ("config.yaml", "metrics.jsonl", "evaluation.json", "predictions.npz")
STEP_COLUMNS = ("step", "epoch", "loss", "lr", "step_s", "data_s", "comm_s")
# Rows of earlier versions, and of machines without meters, lack these.
MEASURED_COLUMNS = ("sync_s", "wall_s", "flop_per_s", "energy_j", "energy_gpu_j")

T = TypeVar("T")


@dataclass(frozen=True)
class ResultPart:
    """The task's contribution to the report."""

    kind: str  # what the report is of, a colon, and its short form for the browser
    results: Sequence[Block]  # from the headline to the results in detail
    samples: Block  # a table of every held-out sample
    run: RunFacts | None  # facts about the run; `None` if there is no evaluation
    # Columns of metrics.jsonl that are drawn with the loss, and their labels.
    terms: Mapping[str, str] = field(default_factory=dict)
    # Columns of metrics.jsonl that are drawn below it, as the learning rate is, and their labels.
    settings: Mapping[str, str] = field(default_factory=dict)


class RunConfig(NamedTuple):
    """The configuration of a run as its report shows it."""

    name: str  # name of the experiment
    text: str  # contents of the file, without folders of absolute paths


# Folders of an absolute path that is the value of a key or an item of a list, and its last part.
ABSOLUTE_PATH = re.compile(r"""(?m)^(\s*(?:[\w.-]+:|-) ['"]?)/.*/([^/\n]+)$""")


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
    if not any((run_dir / name).is_file() for name in FILES):
        raise InputError(f"{run_dir} is no run directory: it has none of {', '.join(FILES)}")
    config = read_if_there(run_dir / "config.yaml", _read_config)
    result = result_part(run_dir)
    steps = _read_steps(run_dir / "metrics.jsonl", result)
    profile = read_if_there(run_dir / profile_results.FILE_NAME, profile_results.read_profile)
    validations = read_if_there(run_dir / rows.VALIDATIONS, rows.read)
    name = config.name if config else run_dir.resolve().name
    document = Document(
        name,
        (
            *result.results,
            DocumentSection("Training", training_blocks(steps, result, validations or [])),
            DocumentSection("Where the time went", time_blocks(steps)),
            DocumentSection("What a step consists of", performance_section.profiled(profile)),
            DocumentSection("The run", (run_facts(result.run, steps, profile),)),
            DocumentSection("Details", _details(result, config)),
        ),
        kind=result.kind,
        window_title=f"{name}: {result.kind.rpartition(': ')[2]}",
    )
    path = run_dir / FILE
    write_text_atomic(path, page_html(document))
    return path


def _read_config(path: Path) -> RunConfig:
    """Returns the configuration of a run as it is shown."""
    name = shorten(read_yaml(path).get("name", path.parent.name))
    text = read_text(path, largest_bytes=LARGEST_FILE_BYTES)
    return RunConfig(name, ABSOLUTE_PATH.sub(r"\1…/\2", text))


def _read_steps(path: Path, result: ResultPart) -> Steps | None:
    """Returns the columns of a `metrics.jsonl`; `None` if no step has been recorded."""
    if not path.is_file():
        return None
    optional = (*result.terms, *result.settings, *MEASURED_COLUMNS)
    steps = read_steps(path, STEP_COLUMNS, optional)
    return steps if len(steps["step"]) else None


def read_if_there(path: Path, reader: Callable[[Path], T]) -> T | None:
    """Returns what `reader` returns for a file; `None` if there is no file."""
    return reader(path) if path.is_file() else None


NO_STEP = Note("No step has been recorded in metrics.jsonl.")


def training_blocks(
    steps: Steps | None, result: ResultPart, validations: Sequence[Mapping[str, object]]
) -> list[Block]:
    """Returns how the loss developed, and the rows of validation.jsonl as a table."""
    blocks: list[Block] = [NO_STEP] if steps is None else _loss_blocks(steps, result)
    if validations:
        blocks.append(_validation_table(validations))
    return blocks


def _loss_blocks(steps: Steps, result: ResultPart) -> list[Block]:
    """Returns the loss in a sentence and over the steps."""
    _, loss = figures.epoch_means(steps, "loss")
    skipped = int(np.count_nonzero(~np.isfinite(steps["loss"])))
    length = f"{count(len(loss), 'epoch')}, {count(len(steps['step']), 'step')}"
    text = f"The mean loss per epoch went from {loss[0]:.3g} to {loss[-1]:.3g} in {length}."
    if skipped:
        text += f" {count(skipped, 'step')} had no finite loss."
    curves = ["Loss", "learning rate"]
    for label in result.settings.values():
        curves.append(label.replace("\n", " "))
    figure = figures.loss_figure(steps, result.terms, result.settings)
    return [Paragraph(text), plot(figure, f"{', '.join(curves)} over the steps")]


def _validation_table(validations: Sequence[Row]) -> Table:
    """Returns the scores of each validation."""
    names = [name for name in validations[-1] if name not in PLACE]
    cells = []
    for row in validations:
        scores = [number(row.get(name), ".4g") for name in names]
        cells.append((f"{row['epoch']}", f"{row['step']}", f"{row['samples']}", *scores))
    head = ["Epochs", "Steps", "Samples"]
    for name in names:
        head.append(name.replace("_", " "))
    return Table(head, cells, caption="Validation, dev split")


def time_blocks(steps: Steps | None) -> list[Block]:
    """Returns where the time of the steps went, without the first step, which builds the graph."""
    if steps is None:
        return [NO_STEP]
    later = steps
    if len(steps["step"]) > 1:
        later = {name: column[1:] for name, column in steps.items()}
    seconds_of = {}
    for name, seconds in figures.time_parts(later).items():
        seconds_of[name] = float(np.nansum(seconds))
    total_s = sum(seconds_of.values()) or 1.0
    shares = ", ".join(f"{seconds / total_s:.1%} {name}" for name, seconds in seconds_of.items())
    text = (
        f"The time per step is {shares}. The median step takes "
        f"{np.nanmedian(later['step_s']) * 1e3:.3g} ms on rank 0. Communication is the part that "
        "did not overlap with computing, including the wait for the slowest rank. The first step, "
        "which builds the graph, is left out."
    )
    return [
        Paragraph(text),
        plot(figures.time_figure(later), "The parts of the time per step, over the steps"),
        *performance_section.power_over_time(steps),
    ]


def run_facts(run: RunFacts | None, steps: Steps | None, profile: Profile | None = None) -> Block:
    """Returns the facts about the run, and its steps if there are some, as a table."""
    facts: dict[str, object] = {}
    if run:
        facts |= {
            key: value for key, value in run.items() if key not in ("performance", "held_out")
        }
        facts["held-out materials"] = held_out_words(run)
        if run.get("performance"):
            facts |= performance(run, profile)
    if steps:
        facts["steps"] = len(steps["step"])
        facts["time in steps"] = duration(float(np.nansum(steps["step_s"])))
    if not facts:
        return Note("Nothing about the run has been recorded.")
    cells = [(key.replace("_", " "), plain(value)) for key, value in facts.items()]
    return Table((), cells, text_columns=2)


def _details(result: ResultPart, config: RunConfig | None) -> list[Block]:
    """Returns what the reader opens by a click: all samples, and the configuration."""
    shown = Preformatted(config.text) if config else Note("config.yaml is missing.")
    return [
        Fold("Every held-out sample", (result.samples,)),
        Fold("Configuration", (shown,)),
    ]


def plot(figure: Figure, alt: str) -> Picture:
    """Returns a plot of the width of the page."""
    return Picture(figures.data_uri(figure, "svg"), alt, plot=True)
