"""The results of the task embed on the terminal and in the report."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from namsa.base.errors import InputError
from namsa.figures.document import Block, DocumentSection, Note, Picture, Table, Text, strong

from ...measure.results import Evaluation
from ...reports.results import EVALUATE_AGAIN
from ...reports.words import count, number
from ..reporting import ScoreTable, TaskReport, sample_table
from ..splits import last, meanings
from .scores import EmbedEvaluation, EmbedRow, EmbedScores

KIND = "Latent space of 4D-STEM patterns: embedding report"
PICTURE = "latent_space.png"  # in the run directory
LARGEST_PICTURE_BYTES = 2**24


def score_table(evaluation: Evaluation) -> ScoreTable:
    """Returns the errors and agreements by split."""
    rows = []
    for split, row in evaluation["by_split"].items():
        scores = _scores(row)
        cells = [split, f"{row['samples']:,}", f"{row['patterns']:,}"]
        cells += [scores.error, scores.baseline_error, scores.mean_error]
        cells += [number(row["divergence"], ".3g"), f"{row['composites']:,}"]
        cells += [scores.nmi, scores.baseline_nmi]
        rows.append(cells)
    head = (
        "split",
        "samples",
        "patterns",
        "rms error",
        "baseline",
        "mean pattern",
        "divergence, nat",
        "composites",
        "NMI",
        "baseline's",
    )
    latent = count(evaluation["latent"], "latent number")
    title = f"{latent}: rms error, and NMI of clusters with materials"
    notes = meanings(evaluation["run"])
    return ScoreTable(title, "as many principal components", head, rows, notes=notes)


class ScoreWords(NamedTuple):
    """Rms errors, and agreements of clusters with materials (NMI), as text."""

    error: str
    baseline_error: str  # of as many principal components
    mean_error: str  # of the mean pattern
    nmi: str
    baseline_nmi: str


def _scores(row: EmbedScores) -> ScoreWords:
    return ScoreWords(
        error=f"{row['rmse']:.4g}",
        baseline_error=f"{row['baseline_rmse']:.4g}",
        mean_error=f"{row['mean_rmse']:.4g}",
        nmi=number(row["nmi"], ".3f"),
        baseline_nmi=number(row["baseline_nmi"], ".3f"),
    )


def headline(evaluation: EmbedEvaluation) -> Text:
    """Returns the errors and agreements of the network and the baseline on the last split."""
    split, row = last(evaluation["by_split"])
    scores = _scores(row)
    latent = count(evaluation["latent"], "latent number")
    agreement: Text = ""
    if row["composites"]:
        agreement = (
            " Clusters of the latent numbers agree with the materials of "
            f"{count(row['composites'], 'composite scan')} by an NMI of ",
            strong(scores.nmi),
            ", those of the components with ",
            strong(scores.baseline_nmi),
            ".",
        )
    return (
        f"{count(row['patterns'], 'pattern')} of {count(row['samples'], 'sample')} "
        f"({split}: {meanings(evaluation['run'])[split]}) are decoded from {latent} with an rms "
        "error of ",
        strong(scores.error),
        "; as many principal components have ",
        strong(scores.baseline_error),
        ", the mean pattern ",
        strong(scores.mean_error),
        ".",
        agreement,
    )


def details(evaluation: EmbedEvaluation, run_dir: Path) -> Sequence[Block]:
    """Returns the picture of the latent space."""
    return (DocumentSection("Latent space", (_picture(run_dir / PICTURE),)),)


def _picture(path: Path) -> Block:
    if not path.is_file():
        return Note(f"No picture: {PICTURE} is missing.")
    if path.stat().st_size > LARGEST_PICTURE_BYTES:
        raise InputError(f"{path} has more than {LARGEST_PICTURE_BYTES:,} bytes: {EVALUATE_AGAIN}")
    data = base64.b64encode(path.read_bytes()).decode()
    return Picture(f"data:image/png;base64,{data}", "Latent space of a composite scan")


def samples(evaluation: EmbedEvaluation) -> Table:
    """Returns the errors of every held-out sample."""

    def cells(row: EmbedRow) -> Sequence[str]:
        return (
            number(row["rmse"], ".4g"),
            number(row["baseline_rmse"], ".4g"),
            number(row["mean_rmse"], ".4g"),
            f"{row['patterns']:,}",
        )

    return sample_table(evaluation, ("Network", "Components", "Mean pattern", "Patterns"), cells)


REPORT = TaskReport(KIND, EmbedEvaluation, score_table, headline, samples, details)
