"""Scores of classes, of samples and together: the contents of `evaluation.json` of the task
classify.
"""

from collections.abc import Sequence
from typing import NotRequired

import numpy as np
import numpy.typing as npt
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from ...measure.results import RunFacts
from ...measure.rows import Row
from ..splits import HeldOutPatterns, Split, by_split

TOP = 5  # most probable classes, of which one must be right for the top-5 error

_OfClass = TypedDict("_OfClass", {"class": int | None})  # a keyword of Python


class ClassRow(HeldOutPatterns, _OfClass):
    """The patterns of one sample.

    Attributes:
        class: Index of the sample's class; `None` where each position has a class of its own.
        counts: Rows of class, class that the network gives, and the number of such patterns, if
            there are any.
        probability: Mean probability of each class over the patterns. Its maximum is the vote of
            the scan.
        cross_entropy: Mean over the patterns.
        baseline_counts: `counts` of the baseline.
        top5: Patterns whose class is among the five most probable ones.
    """

    counts: list[list[int]]
    probability: list[float]
    cross_entropy: float
    baseline_counts: NotRequired[list[list[int]]]
    top5: NotRequired[int]


class ClassScores(TypedDict):
    """Scores of some samples. Accuracies are balanced: means over the classes that have
    samples.
    """

    samples: int  # number of samples
    patterns: int  # number of patterns
    error: float  # fraction of all patterns that are not right, not balanced: the paper's measure
    # fraction of all patterns whose class is not among the five most probable ones (Zhuang et al.
    # 2020); absent of up to five classes, where it is 0, and in files of earlier versions
    top5_error: NotRequired[float]
    balanced_accuracy: float  # of patterns
    macro_f1: NotRequired[float]  # of patterns, see `macro_f1`; absent in files of earlier versions
    # of scans by the vote of their patterns; `None` where scans have no class
    vote_balanced_accuracy: float | None
    cross_entropy: float  # mean over the samples
    chance: float  # balanced accuracy of an answer that is always the same
    # of patterns, by the baseline; absent while training
    baseline_balanced_accuracy: NotRequired[float]
    # of scans, by the class that most patterns have
    baseline_vote_balanced_accuracy: NotRequired[float | None]


class ClassEvaluation(TypedDict):
    """Contents of `evaluation.json`."""

    task: str  # "classify"
    label: str  # what the classes are
    classes: list[str]  # their names
    by_split: dict[Split, ClassScores]  # scores of each split that has samples
    # By split, patterns of each class (rows) that are given to each class (columns).
    confusion: dict[Split, list[list[int]]]
    samples: list[ClassRow]  # one row per sample, ordered by id
    run: RunFacts  # facts about the run


def summarise(
    rows: Sequence[ClassRow], label: str, classes: Sequence[str], run: RunFacts
) -> ClassEvaluation:
    """Returns the scores by split."""
    scores_of: dict[Split, ClassScores] = {}
    confusion_of: dict[Split, list[list[int]]] = {}
    for split, rows_of_split in by_split(rows).items():
        scores_of[split] = scores(rows_of_split, len(classes))
        confusion_of[split] = confusion(rows_of_split, "counts", len(classes)).tolist()
    return {
        "task": "classify",
        "label": label,
        "classes": list(classes),
        "by_split": scores_of,
        "confusion": confusion_of,
        "samples": list(rows),
        "run": run,
    }


def scores(rows: Sequence[Row], classes: int) -> ClassScores:
    """Returns what samples, of which there is one at least, score together. Rows have the keys of
    `ClassRow`.
    """
    table = confusion(rows, "counts", classes)
    votes = [int(np.argmax(row["probability"])) for row in rows]
    scores: ClassScores = {
        "samples": len(rows),
        "patterns": int(table.sum()),
        "error": 1 - float(np.trace(table) / table.sum()),
        "balanced_accuracy": balanced_accuracy(table),
        "macro_f1": macro_f1(table),
        "vote_balanced_accuracy": _of_scans(rows, votes, classes),
        "cross_entropy": float(np.mean([row["cross_entropy"] for row in rows])),
        "chance": 1 / int((table.sum(axis=1) > 0).sum()),
    }
    if classes > TOP and _all_have(rows, "top5"):
        in_top_five = sum(row["top5"] for row in rows)
        scores["top5_error"] = 1 - in_top_five / int(table.sum())
    if _all_have(rows, "baseline_counts"):
        baseline = confusion(rows, "baseline_counts", classes)
        baseline_votes = [_baseline_vote(row, classes) for row in rows]
        scores["baseline_balanced_accuracy"] = balanced_accuracy(baseline)
        scores["baseline_vote_balanced_accuracy"] = _of_scans(rows, baseline_votes, classes)
    return scores


def _all_have(rows: Sequence[Row], key: str) -> bool:
    """Returns whether all rows have a key."""
    return all(key in row for row in rows)


def _baseline_vote(row: Row, classes: int) -> int:
    """Returns the class that the baseline gives to most patterns of a sample."""
    patterns_of_class = confusion([row], "baseline_counts", classes).sum(axis=0)
    return int(patterns_of_class.argmax())


def counts(true: npt.NDArray[np.int64], given: npt.NDArray[np.int64]) -> list[list[int]]:
    """Returns the `counts` of a sample."""
    pairs, numbers = np.unique(np.stack([true, given], axis=1), axis=0, return_counts=True)
    return [[*pair, count] for pair, count in zip(pairs.tolist(), numbers.tolist(), strict=True)]


def in_top(true: npt.NDArray[np.int64], logits: npt.NDArray[np.float64]) -> int:
    """Returns the number of patterns whose class has one of the `TOP` largest logits."""
    most_probable = np.argsort(-logits, axis=1, kind="stable")[:, :TOP]
    return int((most_probable == true[:, None]).any(axis=1).sum())


def confusion(rows: Sequence[Row], key: str, classes: int) -> npt.NDArray[np.int64]:
    """Returns the number of patterns of each class (rows) that are given to each class
    (columns).
    """
    table = np.zeros((classes, classes), np.int64)
    for row in rows:
        for true, given, count in row[key]:
            table[true, given] += count
    return table


def balanced_accuracy(table: npt.NDArray[np.int64]) -> float:
    """Returns the mean over the classes that have samples of the fraction that is right, from a
    `confusion`.
    """
    sizes = table.sum(axis=1)
    return float(np.mean(np.diag(table)[sizes > 0] / sizes[sizes > 0]))


def macro_f1(table: npt.NDArray[np.int64]) -> float:
    """Returns the mean over classes of F1 = 2 · right / (patterns of the class + patterns that are
    given it).

    Classes that no pattern has or is given are left out of the `confusion`, as scikit-learn does.
    """
    sizes = table.sum(axis=0) + table.sum(axis=1)
    return float(np.mean(2 * np.diag(table)[sizes > 0] / sizes[sizes > 0]))


def _of_scans(rows: Sequence[Row], votes: Sequence[int], classes: int) -> float | None:
    """The balanced accuracy of whole scans, each with one vote."""
    if any(row["class"] is None for row in rows):
        return None
    table = np.zeros((classes, classes), np.int64)
    for row, vote in zip(rows, votes, strict=True):
        table[row["class"], vote] += 1
    return balanced_accuracy(table)
