"""Scores of segmented scans, of samples and together: the contents of `evaluation.json` of the task
segment.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.base.arrays import Array

from ...measure.results import RunFacts
from ...measure.rows import Row
from ..splits import HeldOutRow, Split, by_split
from .section import Segment

# positions of each class (rows) that are given to each class (columns)
Confusion = npt.NDArray[np.int64]

# of patterns: of several samples, or simulated as a whole
Source = Literal["composite", "specimen"]
SOURCES: tuple[Source, ...] = get_args(Source)


class SegmentRow(HeldOutRow):
    """The scans of one sample: the matrix of composites, or the specimen."""

    kind: str  # what was made of the crystal; "crystal" for composites
    source: str  # "composite" or "specimen"
    scans: int  # number of scans: of composites, `training.segment.draws`
    # positions of each class (rows) that are given to each class (columns)
    confusion: list[list[int]]


class SegmentScores(TypedDict):
    """Scores of some scans, from the sum of their confusion matrices."""

    scans: int  # number of scans
    positions: int  # number of positions
    fractions: dict[str, float]  # fraction of the positions that each class has
    # Intersection over union of each class, TP/(TP+FP+FN). `None` if no position is of it or is
    # given to it.
    iou: dict[str, float | None]
    mean_iou: float  # mean over the classes that have positions
    accuracy: float  # fraction of the positions that are right
    baseline_mean_iou: float  # `mean_iou` of an answer that calls every position matrix


class SegmentEvaluation(TypedDict):
    """Contents of `evaluation.json`."""

    task: str  # "segment"
    classes: list[str]  # names of the classes
    weights: str  # by which rule the loss weights the classes
    # fractions of the classes over all composites, from which the weights follow
    expected_fractions: list[float]
    first_epoch_fractions: list[float]  # those of the training composites of the first epoch
    # by source, then by split, for those that have scans
    scores: dict[Source, dict[Split, SegmentScores]]
    # by source and split, the sum of the samples' matrices
    confusion: dict[Source, dict[Split, list[list[int]]]]
    samples: list[SegmentRow]  # one row per sample, ordered by id
    run: RunFacts  # facts about the run


def summarise(
    rows: Sequence[SegmentRow],
    segment: Segment,
    first_epoch_fractions: Sequence[float],
    run: RunFacts,
) -> SegmentEvaluation:
    """Returns the scores by source and split, beside the fractions of the classes in the first
    epoch's composites.
    """
    classes = segment.classes
    of_sources: dict[Source, dict[Split, SegmentScores]] = {}
    confusion: dict[Source, dict[Split, list[list[int]]]] = {}
    for source in SOURCES:
        of_source = by_split(row for row in rows if row["source"] == source)
        of_sources[source] = {}
        confusion[source] = {}
        for split, in_split in of_source.items():
            of_sources[source][split] = scores(in_split, classes)
            confusion[source][split] = total(in_split, len(classes)).tolist()
    return {
        "task": "segment",
        "classes": list(classes),
        "weights": segment.weights,
        "expected_fractions": list(segment.fractions),
        "first_epoch_fractions": list(first_epoch_fractions),
        "scores": of_sources,
        "confusion": confusion,
        "samples": list(rows),
        "run": run,
    }


def scores(rows: Sequence[Row], classes: Sequence[str]) -> SegmentScores:
    """Returns what samples, of which there is one at least, score together. Rows have the keys of
    `SegmentRow`.
    """
    table = total(rows, len(classes))
    positions = int(table.sum())
    by_class = table.sum(axis=1)
    all_matrix = np.zeros_like(table)
    all_matrix[:, 0] = by_class
    ious: dict[str, float | None] = {}
    for name, iou in zip(classes, intersections_over_unions(table), strict=True):
        ious[name] = None if np.isnan(iou) else float(iou)
    return {
        "scans": sum(row["scans"] for row in rows),
        "positions": positions,
        "fractions": dict(zip(classes, (by_class / positions).tolist(), strict=True)),
        "iou": ious,
        "mean_iou": mean_iou(table),
        "accuracy": float(np.trace(table) / positions),
        "baseline_mean_iou": mean_iou(all_matrix),
    }


def confusion(truth: Array, labels: Array, classes: int) -> Confusion:
    """Returns the number of positions of each class from 0 on (rows) that are given to each class
    (columns).
    """
    pairs = truth.astype(np.int64).ravel() * classes + labels.astype(np.int64).ravel()
    return np.bincount(pairs, minlength=classes**2).reshape(classes, classes)


def total(rows: Sequence[Row], classes: int) -> Confusion:
    """Returns the sum of the samples' confusion matrices."""
    return np.sum(
        [np.zeros((classes, classes)), *(row["confusion"] for row in rows)], axis=0
    ).astype(np.int64)


def intersections_over_unions(table: Confusion) -> npt.NDArray[np.float64]:
    """Returns TP/(TP+FP+FN) of each class; NaN if no position is of it or is given to it."""
    right = np.diag(table)
    union = table.sum(axis=0) + table.sum(axis=1) - right
    return np.divide(right, union, out=np.full(len(table), np.nan), where=union > 0)


def mean_iou(table: Confusion) -> float:
    """Returns the mean intersection over union of the classes that have positions."""
    return float(np.mean(intersections_over_unions(table)[table.sum(axis=1) > 0]))
