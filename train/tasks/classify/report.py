"""The results of the task classify on the terminal and in the report."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from namsa.figures.document import Block, DocumentSection, Table, Text, strong

from ...measure.results import Evaluation
from ...reports.tables import confusion_table
from ...reports.words import count, number
from ..reporting import ScoreTable, TaskReport, sample_table
from ..splits import Split, last, meanings
from .labels import in_words
from .scores import ClassEvaluation, ClassRow, ClassScores

KIND = "Classes of 4D-STEM patterns: classification report"
MOST_COLUMNS = 30  # of a table of classes, or rows of one of errors


def score_table(evaluation: Evaluation) -> ScoreTable:
    """Returns the balanced accuracies by split, and the top-5 error of more than five classes."""
    has_top5 = all("top5_error" in row for row in evaluation["by_split"].values())
    rows = []
    for split, row in evaluation["by_split"].items():
        cells = [split, f"{row['samples']:,}", f"{row['patterns']:,}"]
        cells += _accuracies(row)
        cells.append(number(row["error"], ".3f"))
        if has_top5:
            cells.append(number(row["top5_error"], ".3f"))
        cells.append(number(row["cross_entropy"], ".3g"))
        rows.append(cells)
    head = [
        "split",
        "samples",
        "patterns",
        "network",
        "baseline",
        "chance",
        "vote",
        "baseline's vote",
        "macro F1",
        "wrong patterns",
        "cross-entropy",
    ]
    if has_top5:
        head.insert(-1, "wrong in the top 5")
    title = f"{in_words(evaluation['label'])}: balanced accuracy"
    notes = meanings(evaluation["run"])
    return ScoreTable(title, "nearest mean radial profile", head, rows, notes=notes)


class Accuracies(NamedTuple):
    """Balanced accuracies of a split, and the macro F1, as text."""

    network: str
    baseline: str
    chance: str
    vote: str  # of scans, by the vote of their patterns
    baseline_vote: str
    macro_f1: str


def _accuracies(row: ClassScores) -> Accuracies:
    return Accuracies(
        network=number(row["balanced_accuracy"], ".3f"),
        baseline=number(row["baseline_balanced_accuracy"], ".3f"),
        chance=number(row["chance"], ".3f"),
        vote=number(row["vote_balanced_accuracy"], ".3f"),
        baseline_vote=number(row["baseline_vote_balanced_accuracy"], ".3f"),
        macro_f1=number(row.get("macro_f1"), ".3f"),
    )


def headline(evaluation: ClassEvaluation) -> Text:
    """Returns the balanced accuracy of the network and the baseline on the last split."""
    split, row = last(evaluation["by_split"])
    accuracies = _accuracies(row)
    by_vote: Text = ""
    if row["vote_balanced_accuracy"] is not None:
        by_vote = (" By the vote of all patterns of a scan it is ", strong(accuracies.vote), ".")
    return (
        f"On {count(row['patterns'], 'pattern')} of {count(row['samples'], 'sample')} "
        f"({split}: {meanings(evaluation['run'])[split]}) the network finds the "
        f"{evaluation['label'].replace('_', ' ')} with a balanced accuracy of ",
        strong(accuracies.network),
        "; the nearest mean radial profile has ",
        strong(accuracies.baseline),
        ", chance ",
        strong(accuracies.chance),
        ".",
        by_vote,
        " The macro F1 is ",
        strong(accuracies.macro_f1),
        ".",
    )


def details(evaluation: ClassEvaluation, run_dir: Path) -> Sequence[Block]:
    """Returns a confusion matrix for each split; of many classes, the most frequent errors."""
    names = evaluation["classes"]
    tables = []
    for split, counts in evaluation["confusion"].items():
        if len(names) > MOST_COLUMNS:
            tables.append(_most_frequent(evaluation, split))
        else:
            caption = f"Patterns of a row given to a column, {split}"
            tables.append(confusion_table(caption, "Patterns", names, counts, ".2f"))
    return (DocumentSection("Classes", tables),)


def _most_frequent(evaluation: ClassEvaluation, split: Split) -> Table:
    """Returns the classes that are most often taken for others."""
    names = evaluation["classes"]
    confusion = evaluation["confusion"][split]
    errors = []
    for true, row in enumerate(confusion):
        for given, patterns in enumerate(row):
            if patterns and true != given:
                errors.append((patterns, true, given))
    errors.sort(key=lambda error: (-error[0], error[1:]))
    rows = []
    for patterns, true, given in errors[:MOST_COLUMNS]:
        total = sum(confusion[true])
        rows.append((names[true], names[given], f"{patterns:,}", f"{total:,}"))
    head = ("Class", "Given", "Patterns", "of")
    return Table(head, rows, text_columns=2, caption=f"The most frequent errors, {split}")


def samples(evaluation: ClassEvaluation) -> Table:
    """Returns the class of every held-out sample, and how many of its patterns are given it."""
    names = evaluation["classes"]

    def cells(row: ClassRow) -> Sequence[str]:
        right = sum(patterns for true, given, patterns in row["counts"] if true == given)
        numbers = (f"{right:,}", f"{row['patterns']:,}")
        if row["class"] is None:
            return "–", "–", *numbers
        probabilities = row["probability"]
        vote = max(range(len(probabilities)), key=lambda index: probabilities[index])
        return names[row["class"]], names[vote], *numbers

    return sample_table(evaluation, ("Class", "Vote", "Right", "Patterns"), cells, texts=2)


REPORT = TaskReport(KIND, ClassEvaluation, score_table, headline, samples, details)
