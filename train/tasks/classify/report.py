"""The results of the task classify on the terminal and in the report."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ...reports.report_tables import confusion_table, count, number, table
from ..reporting import ScoreTable, TaskReport, sample_table
from ..splits import MEANINGS, Split, last
from .labels import in_words
from .scores import ClassEvaluation, ClassRow

KIND = "Classes of 4D-STEM patterns: classification report"
MOST_COLUMNS = 30  # of a table of classes, or rows of one of errors


def score_table(evaluation: Mapping[str, Any]) -> ScoreTable:
    """Returns the balanced accuracies by split."""
    rows = [
        (
            split,
            f"{row['samples']:,}",
            f"{row['patterns']:,}",
            *(number(value, ".3f") for value in _accuracies(row)),
            number(row["error"], ".3f"),
            number(row["cross_entropy"], ".3g"),
        )
        for split, row in evaluation["by_split"].items()
    ]
    head = ("split", "samples", "patterns", "network", "baseline", "chance", "vote", "baseline's vote")
    title = f"{in_words(evaluation['label'])}: balanced accuracy"
    more = ("macro F1", "wrong patterns", "cross-entropy")
    return ScoreTable(title, "nearest mean radial profile", (*head, *more), rows, notes=MEANINGS)


def _accuracies(row: Mapping[str, Any]) -> tuple[float | None, ...]:
    """The network's, the baseline's and chance, of patterns and of scans by vote, and the macro F1."""
    return (
        row["balanced_accuracy"],
        row["baseline_balanced_accuracy"],
        row["chance"],
        row["vote_balanced_accuracy"],
        row["baseline_vote_balanced_accuracy"],
        row.get("macro_f1"),
    )


def headline(evaluation: ClassEvaluation) -> str:
    """Returns the balanced accuracy of the network and the baseline on the last split."""
    split, row = last(evaluation["by_split"])
    network, baseline, chance, vote, _, f1 = (f"<strong>{number(value, '.3f')}</strong>" for value in _accuracies(row))
    by_vote = "" if row["vote_balanced_accuracy"] is None else f" By the vote of all patterns of a scan it is {vote}."
    return (
        f"On {count(row['patterns'], 'pattern')} of {count(row['samples'], 'sample')} "
        f"({escape(split)}: {MEANINGS[split]}) the network finds the {escape(evaluation['label'].replace('_', ' '))} "
        f"with a balanced accuracy of {network}; the nearest mean radial profile has {baseline}, chance "
        f"{chance}.{by_vote} The macro F1 is {f1}."
    )


def details(evaluation: ClassEvaluation, run_dir: Path) -> Sequence[str]:
    """Returns a table for each split: of the patterns of each class, the fractions that are given to each class."""
    names, title = evaluation["classes"], "Patterns of a row given to a column"
    if len(names) > MOST_COLUMNS:
        tables = [_most_frequent(evaluation, split) for split in evaluation["confusion"]]
    else:
        confusions = evaluation["confusion"].items()
        tables = [
            confusion_table(f"{title}, {split}", "Patterns", names, counts, ".2f") for split, counts in confusions
        ]
    return "<h2>Classes</h2>", *tables


def _most_frequent(evaluation: ClassEvaluation, split: Split) -> str:
    """A table of the classes that are most often taken for others."""
    names, table_of_counts = evaluation["classes"], evaluation["confusion"][split]
    wrong = sorted(
        ((count, true, given) for true, row in enumerate(table_of_counts) for given, count in enumerate(row) if count),
        key=lambda each: (-each[0], each[1:]),
    )
    rows = [
        (escape(names[true]), escape(names[given]), f"{count:,}", f"{sum(table_of_counts[true]):,}")
        for count, true, given in wrong
        if true != given
    ]
    head = ("Class", "Given", "Patterns", "of")
    return table(f"The most frequent errors, {escape(split)}", head, rows[:MOST_COLUMNS], text_columns=2)


def samples(evaluation: ClassEvaluation) -> str:
    names = evaluation["classes"]

    def voted(values: Sequence[float]) -> str:
        return escape(names[max(range(len(values)), key=lambda index: values[index])])

    def right(row: ClassRow) -> int:
        return sum(number for true, given, number in row["counts"] if true == given)

    def cells(row: ClassRow) -> Sequence[str]:
        found = ("–", "–") if row["class"] is None else (escape(names[row["class"]]), voted(row["probability"]))
        return *found, f"{right(row):,}", f"{row['patterns']:,}"

    return sample_table(evaluation, ("Class", "Vote", "Right", "Patterns"), cells, texts=2)


REPORT = TaskReport(KIND, ClassEvaluation, score_table, headline, samples, details)
