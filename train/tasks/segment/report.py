"""The results of the task segment on the terminal and in the report."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ...reports.figures import data_uri
from ...reports.report_tables import confusion_table, count, missing, number
from ..reporting import ScoreTable, TaskReport, sample_table
from .pictures import FILE_NAME, examples_figure, read_examples
from .scores import SegmentEvaluation, SegmentRow

KIND = "Parts of 4D-STEM scans: segmentation report"
MEANINGS = {
    "composites": "patterns of several held-out samples, put together",
    "specimens": "simulated as a whole, with the class that fills most of the thickness as label",
}


def score_table(evaluation: Mapping[str, Any]) -> ScoreTable:
    """Returns the intersections over unions, and of how many positions each class is."""
    rows = [
        (
            f"{source}s",
            split,
            f"{row['scans']:,}",
            f"{row['positions']:,}",
            number(row["mean_iou"], ".3f"),
            number(row["baseline_mean_iou"], ".3f"),
            *(f"{number(iou, '.3f')} of {row['fractions'][name]:.2%}" for name, iou in row["iou"].items()),
            number(row["accuracy"], ".4f"),
        )
        for source, by_split in evaluation["scores"].items()
        for split, row in by_split.items()
    ]
    head = ("scans", "split", "number", "positions", "mean", "baseline", *evaluation["classes"], "accuracy")
    title = f"intersection over union, weights {evaluation['weights']}"
    return ScoreTable(title, "every position is matrix", head, rows, 2, MEANINGS)


def details(evaluation: SegmentEvaluation, run_dir: Path) -> Sequence[str]:
    """Returns pictures, and who is taken for whom."""
    shown = missing(f"No pictures: {FILE_NAME} is missing.")
    if (pictures := run_dir / FILE_NAME).is_file():
        figure = examples_figure(read_examples(pictures), evaluation["classes"])
        shown = f'<img src="{data_uri(figure, "png")}" alt="Held-out scans with true and predicted classes">'
    names, caption = evaluation["classes"], "Positions of a row given to a column"
    confusions = [
        confusion_table(f"{caption}, {source}s, {split}", "Positions", names, counts, ".3f")
        for source, by_split in evaluation["confusion"].items()
        for split, counts in by_split.items()
    ]
    return _fractions(evaluation), "<h2>Scans</h2>", shown, "<h2>Classes</h2>", *confusions


def headline(evaluation: SegmentEvaluation) -> str:
    """Returns the mean intersection over union on the last split of each kind of scans."""
    sentences = []
    for source, by_split in evaluation["scores"].items():
        for split, row in list(by_split.items())[-1:]:
            sentences.append(
                f"On {count(row['scans'], source)} of the {escape(split)} split the mean intersection over union is "
                f"<strong>{row['mean_iou']:.3f}</strong>; calling every position matrix has "
                f"<strong>{row['baseline_mean_iou']:.3f}</strong>."
            )
    return " ".join(sentences)


def _fractions(evaluation: SegmentEvaluation) -> str:
    fractions = ", ".join(
        f"{escape(name)} {100 * first:.3g} % ({100 * expected:.3g} % expected)"
        for name, first, expected in zip(
            evaluation["classes"], evaluation["first_epoch_fractions"], evaluation["expected_fractions"], strict=True
        )
    )
    return f"<p>Positions of the first epoch: {fractions}. Weights: {escape(evaluation['weights'])}.</p>"


def samples(evaluation: SegmentEvaluation) -> str:
    def cells(row: SegmentRow) -> Sequence[str]:
        found = sum(map(sum, row["confusion"]))
        right = sum(line[index] for index, line in enumerate(row["confusion"]))
        shares = (f"{share / found:.3f}" for share in (sum(row["confusion"][0]), right))
        return escape(row["kind"].replace("_", " ")), f"{found:,}", *shares

    return sample_table(evaluation, ("Kind", "Positions", "Matrix", "Right"), cells, texts=1)


REPORT = TaskReport(KIND, SegmentEvaluation, score_table, headline, samples, details)
