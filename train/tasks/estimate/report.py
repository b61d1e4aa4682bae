"""The results of the task estimate on the terminal and in the report."""

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from rich.table import Table

from ...reports.report_tables import count, number, table
from ..reporting import TaskReport
from .quantities import QUANTITIES
from .scores import EstimateEvaluation

KIND = "Thickness, defocus and tilt from 4D-STEM: estimation report"
TITLE = "estimation report"
HEAD = ("Quantity", "Range", "Mean error", "Median's", "R²", "Within 1 σ", "Within 2 σ")


def check(evaluation: EstimateEvaluation) -> None:
    """Raises ValueError if the quantities of an evaluation are not those of its ranges."""
    by_name: list[Mapping[str, Any]] = [evaluation["medians"], *evaluation["by_split"].values()]
    for row in evaluation["samples"]:
        by_name += row["true"], row["estimate"], row["deviation"]
    by_name += [evaluation["calibration"]] if evaluation["samples"] else []
    names = set(evaluation["ranges"])
    if not names <= set(QUANTITIES) or any(set(each) != names for each in by_name):
        raise ValueError("its quantities do not fit together")


def terminal(evaluation: EstimateEvaluation) -> Table:
    """Returns the errors by split and quantity for the terminal."""
    found = Table(
        title="Mean absolute errors, and how many are within the calibrated ones",
        caption=f"baseline: the training samples' median; errors are calibrated on {evaluation['calibrated_on']}\n",
    )
    found.add_column("split")
    found.add_column("quantity", no_wrap=True)
    for heading in ("error", "baseline", "R²", "in 1 σ", "in 2 σ"):
        found.add_column(heading, justify="right")
    for split in evaluation["by_split"]:
        for quantity, _, *scores in _cells(evaluation, split):
            found.add_row(split, quantity, *scores)
    return found


def results(evaluation: EstimateEvaluation, run_dir: Path) -> str:
    """Returns errors and coverage by quantity and split."""
    captions = {
        split: f"{escape(split)}: {count(_size(evaluation, split), 'sample')}" for split in evaluation["by_split"]
    }
    tables = [table(caption, HEAD, _cells(evaluation, split), text_columns=1) for split, caption in captions.items()]
    return "\n".join([_headline(evaluation), *tables])


def _cells(evaluation: Mapping[str, Any], split: str) -> Iterator[tuple[str, ...]]:
    """Yields a row for each quantity of a split."""
    for name, row in evaluation["by_split"][split].items():
        facts, (low, high) = QUANTITIES[name], evaluation["ranges"][name]
        yield (
            f"{facts.title}, {facts.unit}",
            f"{number(low, 'g')} … {number(high, 'g')}",
            number(row["mae"], ".3g"),
            number(row["baseline_mae"], ".3g"),
            number(row["r2"], ".2f"),
            number(row["coverage_68"], ".2f"),
            number(row["coverage_95"], ".2f"),
        )


def _headline(evaluation: EstimateEvaluation) -> str:
    split = list(evaluation["by_split"])[-1]
    words = [
        f"{QUANTITIES[name].title} <strong>{number(row['mae'], '.3g')}</strong> "
        f"({number(row['baseline_mae'], '.3g')}) {QUANTITIES[name].unit}"
        for name, row in evaluation["by_split"][split].items()
    ]
    return (
        f'<p class="headline">Mean absolute errors on {count(_size(evaluation, split), "sample")} of specimens that '
        f"training never saw ({escape(split)}), and those of the training samples’ median: {'; '.join(words)}. Errors "
        f"are calibrated on {escape(evaluation['calibrated_on'])}.</p>"
    )


def samples(evaluation: EstimateEvaluation) -> str:
    names = list(evaluation["ranges"])
    factors = {name: found["uncertainty_factor"] for name, found in evaluation["calibration"].items()}
    rows = [
        (
            escape(row["id"]),
            escape(row["formula"]),
            escape(row["split"]),
            *(
                f"{number(row['true'][name], '.3g')} ({number(row['estimate'][name], '.3g')} ± "
                f"{number(factors[name] * row['deviation'][name], '.2g')})"
                for name in names
            ),
        )
        for row in evaluation["samples"]
    ]
    head = (f"{QUANTITIES[name].title}, {QUANTITIES[name].unit}" for name in names)
    return table("True values, and estimates", ("Sample", "Formula", "Split", *head), rows, text_columns=3)


def _size(evaluation: EstimateEvaluation, split: str) -> int:
    return sum(row["split"] == split for row in evaluation["samples"])


REPORT = TaskReport(KIND, TITLE, EstimateEvaluation, terminal, results, samples, check)
