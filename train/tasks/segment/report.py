"""The results of the task segment on the terminal and in the report."""

from collections.abc import Sequence
from pathlib import Path

from namsa.figures.document import (
    Block,
    DocumentSection,
    Note,
    Paragraph,
    Picture,
    Table,
    Text,
    strong,
)

from ...measure.results import Evaluation
from ...reports.figures import data_uri
from ...reports.tables import confusion_table
from ...reports.words import count, number
from ..reporting import ScoreTable, TaskReport, sample_table
from .pictures import FILE_NAME, examples_figure, read_examples
from .scores import SegmentEvaluation, SegmentRow

KIND = "Parts of 4D-STEM scans: segmentation report"
MEANINGS = {
    "composites": "patterns of several held-out samples, put together",
    "specimens": "simulated as a whole, with the class that fills most of the thickness as label",
}


def score_table(evaluation: Evaluation) -> ScoreTable:
    """Returns the intersections over unions, and of how many positions each class is."""
    rows = []
    for source, by_split in evaluation["scores"].items():
        for split, row in by_split.items():
            cells = [f"{source}s", split, f"{row['scans']:,}", f"{row['positions']:,}"]
            cells += [number(row["mean_iou"], ".3f"), number(row["baseline_mean_iou"], ".3f")]
            for name, iou in row["iou"].items():
                cells.append(f"{number(iou, '.3f')} of {row['fractions'][name]:.2%}")
            cells.append(number(row["accuracy"], ".4f"))
            rows.append(cells)
    head = (
        "scans",
        "split",
        "number",
        "positions",
        "mean",
        "baseline",
        *evaluation["classes"],
        "accuracy",
    )
    title = f"intersection over union, weights {evaluation['weights']}"
    return ScoreTable(title, "every position is matrix", head, rows, 2, MEANINGS)


def details(evaluation: SegmentEvaluation, run_dir: Path) -> Sequence[Block]:
    """Returns pictures and the confusion matrix."""
    names = evaluation["classes"]
    confusions = []
    for source, by_split in evaluation["confusion"].items():
        for split, counts in by_split.items():
            caption = f"Positions of a row given to a column, {source}s, {split}"
            confusions.append(confusion_table(caption, "Positions", names, counts, ".3f"))
    return (
        _fractions(evaluation),
        DocumentSection("Scans", (_picture(run_dir / FILE_NAME, names),)),
        DocumentSection("Classes", confusions),
    )


def _picture(path: Path, classes: Sequence[str]) -> Block:
    """Returns the picture of some held-out scans."""
    if not path.is_file():
        return Note(f"No pictures: {FILE_NAME} is missing.")
    figure = examples_figure(read_examples(path), classes)
    return Picture(data_uri(figure, "png"), "Held-out scans with true and predicted classes")


def headline(evaluation: SegmentEvaluation) -> Text:
    """Returns the mean intersection over union on the last split of each kind of scans."""
    sentences: list[Text] = []
    for source, by_split in evaluation["scores"].items():
        if not by_split:
            continue
        split, row = list(by_split.items())[-1]
        separator = " " if sentences else ""
        sentences.append(
            (
                f"{separator}On {count(row['scans'], source)} of the {split} split the mean "
                "intersection over union is ",
                strong(f"{row['mean_iou']:.3f}"),
                "; calling every position matrix has ",
                strong(f"{row['baseline_mean_iou']:.3f}"),
                ".",
            )
        )
    return sentences


def _fractions(evaluation: SegmentEvaluation) -> Paragraph:
    """Returns the fractions of the classes in the first epoch of training."""
    fractions = []
    for name, drawn, expected in zip(
        evaluation["classes"],
        evaluation["first_epoch_fractions"],
        evaluation["expected_fractions"],
        strict=True,
    ):
        fractions.append(f"{name} {100 * drawn:.3g} % ({100 * expected:.3g} % expected)")
    return Paragraph(
        f"Positions of the first epoch: {', '.join(fractions)}. Weights: {evaluation['weights']}."
    )


def samples(evaluation: SegmentEvaluation) -> Table:
    """Returns the fractions of positions that are matrix, and right, of every held-out sample."""

    def cells(row: SegmentRow) -> Sequence[str]:
        confusion = row["confusion"]
        positions = sum(map(sum, confusion))
        matrix = sum(confusion[0])
        right = sum(line[index] for index, line in enumerate(confusion))
        return (
            row["kind"].replace("_", " "),
            f"{positions:,}",
            f"{matrix / positions:.3f}",
            f"{right / positions:.3f}",
        )

    return sample_table(evaluation, ("Kind", "Positions", "Matrix", "Right"), cells, texts=1)


REPORT = TaskReport(KIND, SegmentEvaluation, score_table, headline, samples, details)
