"""The results of the task segment on the terminal and in the report."""

from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from rich.table import Table

from namsa.dataset.typed_values import read_typed

from ..reports.figures import data_uri
from ..reports.report import ResultPart
from ..reports.report_tables import count, missing, number, table
from ..reports.results import EVALUATE_AGAIN
from .segment_pictures import FILE_NAME, examples_figure, read_examples
from .segment_scores import SegmentEvaluation, SegmentScores

KIND = "Parts of 4D-STEM scans: segmentation report"
TITLE = "segmentation report"
MEANINGS = {
    "composite": "patterns of several held-out samples, put together",
    "specimen": "simulated as a whole, with the class that fills most of the thickness as label",
}


def read_segments(path: Path) -> SegmentEvaluation:
    """Returns the contents of an `evaluation.json` of the task segment.

    Raises:
        InputError: If the file cannot be read or holds something else.
    """
    return read_typed(_adapter(), path, EVALUATE_AGAIN)


def segment_table(evaluation: Mapping[str, Any], run_dir: Path, report: Path | None) -> Table:
    """Returns the intersections over unions for the terminal.

    Args:
        evaluation: Results on held-out scans.
        run_dir: The run directory.
        report: The report, if one was written.
    """
    found = Table(
        title=f"intersection over union, weights {evaluation['weights']}",
        caption=f"baseline: every position is matrix\nreport: {report}\neverything: {run_dir}",
    )
    for heading in ("scans", "split", "positions", "mean", "baseline", *evaluation["classes"]):
        found.add_column(heading, justify="right")
    for source, split, row in _groups(evaluation):
        numbers = (row["mean_iou"], row["baseline_mean_iou"], *row["iou"].values())
        found.add_row(f"{source}s", split, f"{row['positions']:,}", *(number(value, ".3f") for value in numbers))
    return found


def segment_part(run_dir: Path) -> ResultPart:
    """Returns the part of the report: intersections over unions, pictures, and who is taken for whom."""
    path = run_dir / "evaluation.json"
    evaluation = read_segments(path) if path.is_file() else None
    if evaluation is None or not evaluation["samples"]:
        run: Mapping[str, Any] = evaluation["run"] if evaluation else {}
        return ResultPart(KIND, TITLE, missing("No held-out scan has been evaluated."), missing("None."), run)
    pictures = run_dir / FILE_NAME
    shown = missing(f"No pictures: {FILE_NAME} is missing.")
    if pictures.is_file():
        figure = examples_figure(read_examples(pictures), evaluation["classes"])
        shown = f'<img src="{data_uri(figure, "png")}" alt="Held-out scans with true and predicted classes">'
    parts = (_headline(evaluation), _scores(evaluation), "<h2>Scans</h2>", shown, "<h2>Classes</h2>")
    return ResultPart(
        KIND, TITLE, "\n".join([*parts, *_confusions(evaluation)]), _samples(evaluation), evaluation["run"]
    )


def _groups(evaluation: Mapping[str, Any]) -> Iterator[tuple[str, str, SegmentScores]]:
    for source, by_split in evaluation["scores"].items():
        for split, row in by_split.items():
            yield source, split, row


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


def _scores(evaluation: SegmentEvaluation) -> str:
    rows = [
        (
            f'{escape(source)}s<span class="note">{MEANINGS.get(source, "")}</span>',
            escape(split),
            f"{row['scans']:,}",
            f"{row['positions']:,}",
            number(row["mean_iou"], ".3f"),
            number(row["baseline_mean_iou"], ".3f"),
            *(
                f"{number(iou, '.3f')} <small>{100 * row['fractions'][name]:.2g} %</small>"
                for name, iou in row["iou"].items()
            ),
            number(row["accuracy"], ".4f"),
        )
        for source, split, row in _groups(evaluation)
    ]
    names = [escape(name) for name in evaluation["classes"]]
    head = ("Scans", "Split", "Number", "Positions", "Mean IoU", "All matrix", *names, "Accuracy")
    fractions = ", ".join(
        f"{name} {100 * first:.3g} % ({100 * expected:.3g} % expected)"
        for name, first, expected in zip(
            names, evaluation["first_epoch_fractions"], evaluation["expected_fractions"], strict=True
        )
    )
    note = f"<p>Positions of the first epoch: {fractions}. Weights: {escape(evaluation['weights'])}.</p>"
    return table("Intersection over union, with the fraction of each class", head, rows, text_columns=2) + note


def _confusions(evaluation: SegmentEvaluation) -> list[str]:
    """A table for each group of scans: the fractions of each class's positions that are given to each class."""
    names = [escape(name) for name in evaluation["classes"]]
    tables = []
    for source, by_split in evaluation["confusion"].items():
        for split, counts in by_split.items():
            rows = [
                (name, f"{sum(row):,}", *(number(value / sum(row), ".3f") if sum(row) else "–" for value in row))
                for name, row in zip(names, counts, strict=True)
            ]
            caption = f"Positions of a row given to a column, {source}s, {split}"
            tables.append(table(caption, ("", "Positions", *names), rows, 1))
    return tables


def _samples(evaluation: SegmentEvaluation) -> str:
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


@cache
def _adapter() -> TypeAdapter[SegmentEvaluation]:
    return TypeAdapter(SegmentEvaluation)
