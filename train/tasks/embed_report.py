"""The results of the task embed on the terminal and in the report."""

import base64
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from rich.table import Table

from namsa.dataset.typed_values import read_typed
from namsa.errors import InputError

from ..reports.report import ResultPart
from ..reports.report_tables import count, missing, number, table
from ..reports.results import EVALUATE_AGAIN
from .embed_scores import SPLITS, EmbedEvaluation, EmbedScores

KIND = "Latent space of 4D-STEM patterns: embedding report"
TITLE = "embedding report"
PICTURE = "latent_space.png"  # in the run directory
LARGEST_PICTURE_BYTES = 2**24
MEANINGS = {
    "images": "held-out patterns of specimens that were trained on",
    "dev": "materials that training never saw",
    "test": "materials that training never saw",
}


def read_embedding(path: Path) -> EmbedEvaluation:
    """Returns the contents of an `evaluation.json` of the task embed.

    Raises:
        InputError: If the file cannot be read or holds something else.
    """
    return read_typed(_adapter(), path, EVALUATE_AGAIN)


def embed_table(evaluation: Mapping[str, Any], run_dir: Path, report: Path | None) -> Table:
    """Returns the errors and agreements by split for the terminal.

    Args:
        evaluation: Results on held-out patterns.
        run_dir: The run directory.
        report: The report, if one was written.
    """
    found = Table(
        title=f"{count(evaluation['latent'], 'latent number')}: rms error, and NMI of clusters with materials",
        caption=f"baseline: as many principal components\nreport: {report}\neverything: {run_dir}",
    )
    for heading in ("split", "patterns", "rms error", "baseline", "mean pattern", "NMI", "baseline"):
        found.add_column(heading, justify="right")
    for split, row in evaluation["by_split"].items():
        found.add_row(split, f"{row['patterns']:,}", *_numbers(row))
    return found


def embed_part(run_dir: Path) -> ResultPart:
    """Returns the part of the report: errors and agreements by split, and the picture of the latent space."""
    path = run_dir / "evaluation.json"
    evaluation = read_embedding(path) if path.is_file() else None
    if evaluation is None or not evaluation["by_split"]:
        run: Mapping[str, Any] = evaluation["run"] if evaluation else {}
        return ResultPart(KIND, TITLE, missing("No held-out sample has been evaluated."), missing("None."), run)
    parts = (_headline(evaluation), _by_split(evaluation), "<h2>Latent space</h2>", _picture(run_dir / PICTURE))
    return ResultPart(KIND, TITLE, "\n".join(parts), _samples(evaluation), evaluation["run"])


def _numbers(row: EmbedScores) -> tuple[str, ...]:
    """Errors and agreements of the network and the baseline, as text."""
    errors = (row["rmse"], row["baseline_rmse"], row["mean_rmse"])
    return (*(f"{value:.4g}" for value in errors), *(number(row[key], ".3f") for key in ("nmi", "baseline_nmi")))


def _headline(evaluation: EmbedEvaluation) -> str:
    split = [name for name in SPLITS if name in evaluation["by_split"]][-1]
    row = evaluation["by_split"][split]
    error, baseline, mean, nmi, baseline_nmi = (f"<strong>{text}</strong>" for text in _numbers(row))
    agreement = (
        f" Clusters of the latent numbers agree with the materials of {count(row['composites'], 'composite scan')} by "
        f"an NMI of {nmi}, those of the components with {baseline_nmi}."
        if row["composites"]
        else ""
    )
    return (
        f'<p class="headline">{count(row["patterns"], "pattern")} of {count(row["samples"], "sample")} '
        f"({escape(split)}: {MEANINGS[split]}) are decoded from {count(evaluation['latent'], 'latent number')} with an "
        f"rms error of {error}; as many principal components have {baseline}, the mean pattern {mean}.{agreement}</p>"
    )


def _by_split(evaluation: EmbedEvaluation) -> str:
    rows = [
        (
            f'{escape(split)}<span class="note">{MEANINGS.get(split, "")}</span>',
            f"{row['samples']:,}",
            f"{row['patterns']:,}",
            *_numbers(row)[:3],
            number(row["divergence"], ".3g"),
            f"{row['composites']:,}",
            *_numbers(row)[3:],
        )
        for split, row in evaluation["by_split"].items()
    ]
    head = ("Split", "Samples", "Patterns", "Network", "Components", "Mean pattern", "Divergence, nat")
    caption = "Error (rms, in units of the input), and agreement of clusters with materials"
    return table(caption, (*head, "Composites", "NMI", "Components’ NMI"), rows, text_columns=1)


def _picture(path: Path) -> str:
    if not path.is_file():
        return missing(f"No picture: {PICTURE} is missing.")
    if path.stat().st_size > LARGEST_PICTURE_BYTES:
        raise InputError(f"{path} has more than {LARGEST_PICTURE_BYTES:,} bytes: {EVALUATE_AGAIN}")
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<figure><img src="data:image/png;base64,{data}" alt="Latent space of a composite scan"></figure>'


def _samples(evaluation: EmbedEvaluation) -> str:
    rows = [
        (
            escape(row["id"]),
            escape(row["formula"]),
            escape(row["split"]),
            *(number(row[key], ".4g") for key in ("rmse", "baseline_rmse", "mean_rmse")),
            f"{row['patterns']:,}",
        )
        for row in evaluation["samples"]
    ]
    head = ("Sample", "Formula", "Split", "Network", "Components", "Mean pattern", "Patterns")
    return table("", head, rows, text_columns=3)


@cache
def _adapter() -> TypeAdapter[EmbedEvaluation]:
    return TypeAdapter(EmbedEvaluation)
