"""The sections of the report that do not depend on the task, as HTML."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from ..measure.profile_results import Profile
from ..measure.validation_rows import PLACE
from . import figures
from .performance_section import performance
from .report_tables import count, hours_minutes, missing, number, plain, table
from .runs import Steps


def training(steps: Steps, terms: Mapping[str, str], settings: Mapping[str, str]) -> str:
    """Returns how the loss developed. The arguments are those of `train.reports.figures.loss_figure`."""
    _, loss = figures.epoch_means(steps, "loss")
    skipped = int(np.count_nonzero(~np.isfinite(steps["loss"])))
    length = f"{count(len(loss), 'epoch')}, {count(len(steps['step']), 'step')}"
    text = f"The mean loss per epoch went from {loss[0]:.3g} to {loss[-1]:.3g} in {length}."
    if skipped:
        text += f" {count(skipped, 'step')} had no finite loss."
    below = ", ".join(["Loss", "learning rate", *(label.replace("\n", " ") for label in settings.values())])
    return f"<p>{text}</p>{_plot(figures.loss_figure(steps, terms, settings), f'{below} over the steps')}"


def validation(rows: Sequence[Mapping[str, Any]]) -> str:
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


def time(steps: Steps) -> str:
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


def facts(run: Mapping[str, Any], steps: Steps | None, profile: Profile | None = None) -> str:
    """Returns the facts about the run as a table.

    Args:
        run: Facts of `evaluation.json`; empty if there is no such file.
        steps: Columns of `metrics.jsonl`; `None` without steps.
        profile: Contents of `profile.json`; `None` without one.
    """
    known: dict[str, Any] = {key: value for key, value in run.items() if key != "performance"}
    if run.get("performance"):
        known |= performance(run, profile)
    if steps:
        known |= {"steps": len(steps["step"]), "time in steps": hours_minutes(float(np.nansum(steps["step_s"])))}
    if not known:
        return missing("Nothing about the run has been recorded.")
    rows = [(escape(key.replace("_", " ")), escape(plain(value))) for key, value in known.items()]
    return table("", (), rows, text_columns=2)


def _plot(figure: Any, alt: str) -> str:
    return f'<figure><img class="plot" src="{figures.data_uri(figure, "svg")}" alt="{alt}"></figure>'
