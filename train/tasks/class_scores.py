"""Scores of classes, of samples and together: the contents of `evaluation.json` of the task classify."""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired

import numpy as np
import numpy.typing as npt
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from train.measure.results import RunFacts

SPLITS = ("images", "dev", "test")


_OfClass = TypedDict("_OfClass", {"class": int})  # a keyword of Python


class ClassRow(_OfClass):
    """The patterns of one sample.

    Attributes:
        id: Identifier of the sample in its dataset.
        material: Name of the material.
        formula: Chemical formula.
        space_group: Hermann–Mauguin symbol.
        split: "dev" or "test", from the manifest, or "images" for held-out positions of a training sample.
        class: Index of the sample's class.
        patterns: Number of patterns.
        votes: Number of patterns that the network gives to each class.
        probability: Mean probability of each class over the patterns. Its maximum is the vote of the scan.
        cross_entropy: Mean over the patterns.
        baseline_votes: `votes` of the baseline.
    """

    id: str
    material: str
    formula: str
    space_group: str
    split: str
    patterns: int
    votes: list[int]
    probability: list[float]
    cross_entropy: float
    baseline_votes: NotRequired[list[int]]


class ClassScores(TypedDict):
    """What some samples score. Accuracies are balanced: means over the classes that have samples.

    Attributes:
        samples: Number of samples.
        patterns: Number of patterns.
        error: Fraction of all patterns that are not right, not balanced: the paper's measure.
        balanced_accuracy: Of patterns.
        vote_balanced_accuracy: Of scans by the vote of their patterns.
        cross_entropy: Mean over the samples.
        chance: Balanced accuracy of an answer that is always the same.
        baseline_balanced_accuracy: Of patterns, by the baseline. Absent while training.
        baseline_vote_balanced_accuracy: Of scans, by the class that most patterns have.
    """

    samples: int
    patterns: int
    error: float
    balanced_accuracy: float
    vote_balanced_accuracy: float
    cross_entropy: float
    chance: float
    baseline_balanced_accuracy: NotRequired[float]
    baseline_vote_balanced_accuracy: NotRequired[float]


class ClassEvaluation(TypedDict):
    """Contents of `evaluation.json`.

    Attributes:
        task: "classify".
        label: What the classes are.
        classes: Their names.
        by_split: Scores of each split that has samples.
        confusion: By split, patterns of each class (rows) that are given to each class (columns).
        samples: One row per sample, ordered by id.
        run: Facts about the run.
    """

    task: str
    label: str
    classes: list[str]
    by_split: dict[str, ClassScores]
    confusion: dict[str, list[list[int]]]
    samples: list[ClassRow]
    run: RunFacts


def summarise(rows: Sequence[ClassRow], label: str, classes: Sequence[str], run: RunFacts) -> ClassEvaluation:
    """Returns the scores by split.

    Args:
        rows: All samples that were evaluated.
        label: What the classes are.
        classes: Their names.
        run: Facts about the run.
    """
    by_split = {split: [row for row in rows if row["split"] == split] for split in SPLITS}
    present = {split: found for split, found in by_split.items() if found}
    return {
        "task": "classify",
        "label": label,
        "classes": list(classes),
        "by_split": {split: scores(found, len(classes)) for split, found in present.items()},
        "confusion": {split: confusion(found, "votes", len(classes)).tolist() for split, found in present.items()},
        "samples": list(rows),
        "run": run,
    }


def scores(rows: Sequence[Mapping[str, Any]], classes: int) -> ClassScores:
    """Returns what samples score together.

    Args:
        rows: At least one sample, of the keys of `ClassRow`.
        classes: Number of classes.
    """
    table = confusion(rows, "votes", classes)
    found: ClassScores = {
        "samples": len(rows),
        "patterns": int(table.sum()),
        "error": 1 - float(np.trace(table) / table.sum()),
        "balanced_accuracy": balanced_accuracy(table),
        "vote_balanced_accuracy": balanced_accuracy(_scans(rows, "probability", classes)),
        "cross_entropy": float(np.mean([row["cross_entropy"] for row in rows])),
        "chance": 1 / int((table.sum(axis=1) > 0).sum()),
    }
    if all("baseline_votes" in row for row in rows):
        found["baseline_balanced_accuracy"] = balanced_accuracy(confusion(rows, "baseline_votes", classes))
        found["baseline_vote_balanced_accuracy"] = balanced_accuracy(_scans(rows, "baseline_votes", classes))
    return found


def confusion(rows: Sequence[Mapping[str, Any]], votes: str, classes: int) -> npt.NDArray[np.int64]:
    """Returns the number of patterns of each class (rows) that are given to each class (columns).

    Args:
        rows: The samples.
        votes: Key of the votes.
        classes: Number of classes.
    """
    table = np.zeros((classes, classes), np.int64)
    for row in rows:
        table[row["class"]] += row[votes]
    return table


def balanced_accuracy(table: npt.NDArray[np.int64]) -> float:
    """Returns the mean over the classes that have samples of the fraction that is right.

    Args:
        table: `(classes, classes)`, see `confusion`.
    """
    sizes = table.sum(axis=1)
    return float(np.mean(np.diag(table)[sizes > 0] / sizes[sizes > 0]))


def _scans(rows: Sequence[Mapping[str, Any]], key: str, classes: int) -> npt.NDArray[np.int64]:
    """The confusion of whole scans, each of which has the class with the largest number of `key`."""
    table = np.zeros((classes, classes), np.int64)
    for row in rows:
        table[row["class"], int(np.argmax(row[key]))] += 1
    return table
