"""The results of the task embed on the terminal and in the report."""

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from namsa.errors import InputError

from ...reports.report_tables import count, missing, number
from ...reports.results import EVALUATE_AGAIN
from ..reporting import ScoreTable, TaskReport, sample_table
from ..splits import MEANINGS, last
from .scores import EmbedEvaluation, EmbedRow

KIND = "Latent space of 4D-STEM patterns: embedding report"
PICTURE = "latent_space.png"  # in the run directory
LARGEST_PICTURE_BYTES = 2**24


def score_table(evaluation: Mapping[str, Any]) -> ScoreTable:
    """Returns the errors and agreements by split."""
    rows = [
        (
            split,
            f"{row['samples']:,}",
            f"{row['patterns']:,}",
            *_numbers(row)[:3],
            number(row["divergence"], ".3g"),
            f"{row['composites']:,}",
            *_numbers(row)[3:],
        )
        for split, row in evaluation["by_split"].items()
    ]
    head = ("split", "samples", "patterns", "rms error", "baseline", "mean pattern", "divergence, nat", "composites")
    title = f"{count(evaluation['latent'], 'latent number')}: rms error, and NMI of clusters with materials"
    return ScoreTable(title, "as many principal components", (*head, "NMI", "baseline's"), rows, notes=MEANINGS)


def _numbers(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Errors and agreements of the network and the baseline, as text."""
    errors = (row["rmse"], row["baseline_rmse"], row["mean_rmse"])
    return (*(f"{value:.4g}" for value in errors), *(number(row[key], ".3f") for key in ("nmi", "baseline_nmi")))


def headline(evaluation: EmbedEvaluation) -> str:
    """Returns the errors and agreements of the network and the baseline on the last split."""
    split, row = last(evaluation["by_split"])
    error, baseline, mean, nmi, baseline_nmi = (f"<strong>{text}</strong>" for text in _numbers(row))
    agreement = (
        f" Clusters of the latent numbers agree with the materials of {count(row['composites'], 'composite scan')} by "
        f"an NMI of {nmi}, those of the components with {baseline_nmi}."
        if row["composites"]
        else ""
    )
    return (
        f"{count(row['patterns'], 'pattern')} of {count(row['samples'], 'sample')} "
        f"({escape(split)}: {MEANINGS[split]}) are decoded from {count(evaluation['latent'], 'latent number')} with an "
        f"rms error of {error}; as many principal components have {baseline}, the mean pattern {mean}.{agreement}"
    )


def details(evaluation: EmbedEvaluation, run_dir: Path) -> Sequence[str]:
    """Returns the picture of the latent space."""
    title, path = "<h2>Latent space</h2>", run_dir / PICTURE
    if not path.is_file():
        return title, missing(f"No picture: {PICTURE} is missing.")
    if path.stat().st_size > LARGEST_PICTURE_BYTES:
        raise InputError(f"{path} has more than {LARGEST_PICTURE_BYTES:,} bytes: {EVALUATE_AGAIN}")
    data = base64.b64encode(path.read_bytes()).decode()
    return title, f'<figure><img src="data:image/png;base64,{data}" alt="Latent space of a composite scan"></figure>'


def samples(evaluation: EmbedEvaluation) -> str:
    def cells(row: EmbedRow) -> Sequence[str]:
        errors = (number(each, ".4g") for each in (row["rmse"], row["baseline_rmse"], row["mean_rmse"]))
        return *errors, f"{row['patterns']:,}"

    return sample_table(evaluation, ("Network", "Components", "Mean pattern", "Patterns"), cells)


REPORT = TaskReport(KIND, EmbedEvaluation, score_table, headline, samples, details)
