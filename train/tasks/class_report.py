"""The results of the task classify on the terminal and in the report."""

from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from rich.table import Table

from namsa.dataset.typed_values import read_typed

from ..reports.report import ResultPart
from ..reports.report_tables import count, missing, number, table
from ..reports.results import EVALUATE_AGAIN
from .class_scores import SPLITS, ClassEvaluation, ClassRow, ClassScores

KIND = "Classes of 4D-STEM patterns: classification report"
TITLE = "classification report"
MOST_COLUMNS = 30  # of a table of classes, or rows of one of errors
MEANINGS = {
    "images": "held-out patterns of specimens that were trained on, which leak",
    "dev": "materials that training never saw",
    "test": "materials that training never saw",
}


def read_classes(path: Path) -> ClassEvaluation:
    """Returns the contents of an `evaluation.json` of the task classify.

    Raises:
        InputError: If the file cannot be read or holds something else.
    """
    return read_typed(_adapter(), path, EVALUATE_AGAIN)


def class_table(evaluation: Mapping[str, Any], run_dir: Path, report: Path | None) -> Table:
    """Returns the balanced accuracies by split for the terminal.

    Args:
        evaluation: Results on held-out patterns.
        run_dir: The run directory.
        report: The report, if one was written.
    """
    found = Table(
        title=f"{evaluation['label'].replace('_', ' ')}: balanced accuracy",
        caption=f"baseline: nearest mean radial profile\nreport: {report}\neverything: {run_dir}",
    )
    for heading in ("split", "patterns", "network", "baseline", "chance", "scans, by vote", "baseline, by vote"):
        found.add_column(heading, justify="right")
    for split, row in evaluation["by_split"].items():
        found.add_row(split, f"{row['patterns']:,}", *(number(value, ".3f") for value in _accuracies(row)))
    return found


def class_part(run_dir: Path) -> ResultPart:
    """Returns the part of the report: balanced accuracies by split, and who is taken for whom."""
    path = run_dir / "evaluation.json"
    evaluation = read_classes(path) if path.is_file() else None
    if evaluation is None or not evaluation["samples"]:
        run: Mapping[str, Any] = evaluation["run"] if evaluation else {}
        return ResultPart(KIND, TITLE, missing("No held-out sample has been evaluated."), missing("None."), run)
    parts = (_headline(evaluation), _by_split(evaluation), "<h2>Classes</h2>", *_confusions(evaluation))
    return ResultPart(KIND, TITLE, "\n".join(parts), _samples(evaluation), evaluation["run"])


def _accuracies(row: ClassScores) -> tuple[float | None, ...]:
    """The network's, the baseline's and chance, of patterns and of scans by vote."""
    return (
        row["balanced_accuracy"],
        row["baseline_balanced_accuracy"],
        row["chance"],
        row["vote_balanced_accuracy"],
        row["baseline_vote_balanced_accuracy"],
    )


def _headline(evaluation: ClassEvaluation) -> str:
    split = [name for name in SPLITS if name in evaluation["by_split"]][-1]
    row = evaluation["by_split"][split]
    network, baseline, chance, vote, _ = (f"<strong>{number(value, '.3f')}</strong>" for value in _accuracies(row))
    by_vote = "" if row["vote_balanced_accuracy"] is None else f" By the vote of all patterns of a scan it is {vote}."
    return (
        f'<p class="headline">On {count(row["patterns"], "pattern")} of {count(row["samples"], "sample")} '
        f"({escape(split)}: {MEANINGS[split]}) the network finds the {escape(evaluation['label'].replace('_', ' '))} "
        f"with a balanced accuracy of {network}; the nearest mean radial profile has {baseline}, chance "
        f"{chance}.{by_vote}</p>"
    )


def _by_split(evaluation: ClassEvaluation) -> str:
    rows = [
        (
            f'{escape(split)}<span class="note">{MEANINGS.get(split, "")}</span>',
            f"{row['samples']:,}",
            f"{row['patterns']:,}",
            *(number(value, ".3f") for value in _accuracies(row)),
            number(row["error"], ".3f"),
            number(row["cross_entropy"], ".3g"),
        )
        for split, row in evaluation["by_split"].items()
    ]
    head = ("Split", "Samples", "Patterns", "Network", "Baseline", "Chance", "Vote", "Baseline's vote")
    return table("Balanced accuracy", (*head, "Error, not balanced", "Cross-entropy"), rows, text_columns=1)


def _confusions(evaluation: ClassEvaluation) -> list[str]:
    """A table for each split: of the patterns of each class, the fractions that are given to each class."""
    if len(evaluation["classes"]) > MOST_COLUMNS:
        return [_most_frequent(evaluation, split) for split in evaluation["confusion"]]
    names = [escape(name) for name in evaluation["classes"]]
    tables = []
    for split, counts in evaluation["confusion"].items():
        rows = [
            (name, f"{sum(row):,}", *(number(value / sum(row), ".2f") if sum(row) else "–" for value in row))
            for name, row in zip(names, counts, strict=True)
        ]
        tables.append(table(f"Patterns of a row given to a column, {split}", ("", "Patterns", *names), rows, 1))
    return tables


def _most_frequent(evaluation: ClassEvaluation, split: str) -> str:
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


def _samples(evaluation: ClassEvaluation) -> str:
    names = evaluation["classes"]

    def voted(values: Sequence[float]) -> str:
        return escape(names[max(range(len(values)), key=lambda index: values[index])])

    def right(row: ClassRow) -> int:
        return sum(number for true, given, number in row["counts"] if true == given)

    rows = [
        (
            escape(row["id"]),
            escape(row["formula"]),
            escape(row["split"]),
            "–" if row["class"] is None else escape(names[row["class"]]),
            "–" if row["class"] is None else voted(row["probability"]),
            f"{right(row):,}",
            f"{row['patterns']:,}",
        )
        for row in evaluation["samples"]
    ]
    return table("", ("Sample", "Formula", "Split", "Class", "Vote", "Right", "Patterns"), rows, text_columns=5)


@cache
def _adapter() -> TypeAdapter[ClassEvaluation]:
    return TypeAdapter(ClassEvaluation)
