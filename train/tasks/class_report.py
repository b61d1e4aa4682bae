"""The results of the task classify on the terminal and in the report."""

from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from rich.table import Table

from namsa.dataset.typed_values import read_typed
from train.reports.report import ResultPart
from train.reports.report_tables import count, missing, number, table
from train.reports.results import EVALUATE_AGAIN
from train.tasks.class_scores import SPLITS, ClassEvaluation, ClassScores

KIND = "Classes of 4D-STEM patterns: classification report"
TITLE = "classification report"
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
        found.add_row(split, f"{row['patterns']:,}", *(f"{value:.3f}" for value in _accuracies(row)))
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


def _accuracies(row: ClassScores) -> tuple[float, ...]:
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
    network, baseline, chance, vote, _ = (f"<strong>{value:.3f}</strong>" for value in _accuracies(row))
    return (
        f'<p class="headline">On {count(row["patterns"], "pattern")} of {count(row["samples"], "sample")} '
        f"({escape(split)}: {MEANINGS[split]}) the network finds the {escape(evaluation['label'].replace('_', ' '))} "
        f"with a balanced accuracy of {network}; the nearest mean radial profile has {baseline}, chance {chance}. By "
        f"the vote of all patterns of a scan it is {vote}.</p>"
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
    names = [escape(name) for name in evaluation["classes"]]
    tables = []
    for split, counts in evaluation["confusion"].items():
        rows = [
            (name, f"{sum(row):,}", *(number(value / sum(row), ".2f") if sum(row) else "–" for value in row))
            for name, row in zip(names, counts, strict=True)
        ]
        tables.append(table(f"Patterns of a row given to a column, {split}", ("", "Patterns", *names), rows, 1))
    return tables


def _samples(evaluation: ClassEvaluation) -> str:
    names = evaluation["classes"]

    def voted(values: Sequence[float]) -> str:
        return escape(names[max(range(len(names)), key=lambda index: values[index])])

    rows = [
        (
            escape(row["id"]),
            escape(row["formula"]),
            escape(row["split"]),
            escape(names[row["class"]]),
            voted(row["probability"]),
            f"{row['votes'][row['class']]:,}",
            f"{row['patterns']:,}",
        )
        for row in evaluation["samples"]
    ]
    return table("", ("Sample", "Formula", "Split", "Class", "Vote", "Right", "Patterns"), rows, text_columns=5)


@cache
def _adapter() -> TypeAdapter[ClassEvaluation]:
    return TypeAdapter(ClassEvaluation)
