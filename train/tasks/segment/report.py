"""The results of the task segment on the terminal and in the report."""

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from ...reports.figures import data_uri
from ...reports.report_tables import confusion_table, count, missing, number, table
from ..reporting import ScoreTable, TaskReport
from .pictures import FILE_NAME, examples_figure, read_examples
from .scores import SegmentEvaluation

KIND = "Parts of 4D-STEM scans: segmentation report"
TITLE = "segmentation report"
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


def results(evaluation: SegmentEvaluation, run_dir: Path) -> str:
    """Returns intersections over unions, pictures, and who is taken for whom."""
    shown = missing(f"No pictures: {FILE_NAME} is missing.")
    if (pictures := run_dir / FILE_NAME).is_file():
        figure = examples_figure(read_examples(pictures), evaluation["classes"])
        shown = f'<img src="{data_uri(figure, "png")}" alt="Held-out scans with true and predicted classes">'
    parts = (
        _headline(evaluation),
        score_table(evaluation).html() + _fractions(evaluation),
        "<h2>Scans</h2>",
        shown,
        "<h2>Classes</h2>",
    )
    return "\n".join([*parts, *_confusions(evaluation)])


def _headline(evaluation: SegmentEvaluation) -> str:
    sentences = []
    for source, by_split in evaluation["scores"].items():
        for split, row in list(by_split.items())[-1:]:
            sentences.append(
                f"On {count(row['scans'], source)} of the {escape(split)} split the mean intersection over union is "
                f"<strong>{row['mean_iou']:.3f}</strong>; calling every position matrix has "
                f"<strong>{row['baseline_mean_iou']:.3f}</strong>."
            )
    return f'<p class="headline">{" ".join(sentences)}</p>'


def _fractions(evaluation: SegmentEvaluation) -> str:
    fractions = ", ".join(
        f"{escape(name)} {100 * first:.3g} % ({100 * expected:.3g} % expected)"
        for name, first, expected in zip(
            evaluation["classes"], evaluation["first_epoch_fractions"], evaluation["expected_fractions"], strict=True
        )
    )
    return f"<p>Positions of the first epoch: {fractions}. Weights: {escape(evaluation['weights'])}.</p>"


def _confusions(evaluation: SegmentEvaluation) -> list[str]:
    """A table for each group of scans."""
    names, caption = evaluation["classes"], "Positions of a row given to a column"
    return [
        confusion_table(f"{caption}, {source}s, {split}", "Positions", names, counts, ".3f")
        for source, by_split in evaluation["confusion"].items()
        for split, counts in by_split.items()
    ]


def samples(evaluation: SegmentEvaluation) -> str:
    rows = []
    for row in evaluation["samples"]:
        found = sum(map(sum, row["confusion"]))
        right = sum(line[index] for index, line in enumerate(row["confusion"]))
        texts = (row["id"], row["formula"], row["split"], row["kind"].replace("_", " "))
        rows.append(
            (*map(escape, texts), f"{found:,}", f"{sum(row['confusion'][0]) / found:.3f}", f"{right / found:.3f}")
        )
    head = ("Sample", "Formula", "Split", "Kind", "Positions", "Matrix", "Right")
    return table("", head, rows, text_columns=4)


REPORT = TaskReport(KIND, TITLE, SegmentEvaluation, score_table, results, samples)
