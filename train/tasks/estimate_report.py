"""The results of the task estimate on the terminal and in the report."""

from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from rich.table import Table

from namsa.dataset.typed_values import read_typed
from namsa.errors import InputError

from ..experiment.quantities import QUANTITIES
from ..reports.report import ResultPart
from ..reports.report_tables import count, missing, number, table
from ..reports.results import EVALUATE_AGAIN
from .estimate_scores import EstimateEvaluation

KIND = "Thickness, defocus and tilt from 4D-STEM: estimation report"
TITLE = "estimation report"
HEAD = ("Quantity", "Range", "Mean error", "Median's", "R²", "Within 1 σ", "Within 2 σ")


def read_estimates(path: Path) -> EstimateEvaluation:
    """Returns the contents of an `evaluation.json` of the task estimate.

    Raises:
        InputError: If the file cannot be read or holds something else.
    """
    found = read_typed(_adapter(), path, EVALUATE_AGAIN)
    by_name: list[Mapping[str, Any]] = [found["medians"], *found["by_split"].values()]
    by_name += [row[key] for row in found["samples"] for key in ("true", "estimate", "deviation")]
    by_name += [found["calibration"]] if found["samples"] else []
    if not set(found["ranges"]) <= set(QUANTITIES) or any(set(each) != set(found["ranges"]) for each in by_name):
        raise InputError(f"{path}: its quantities do not fit together: {EVALUATE_AGAIN}")
    return found


def estimate_table(evaluation: Mapping[str, Any], run_dir: Path, report: Path | None) -> Table:
    """Returns the errors by split and quantity for the terminal.

    Args:
        evaluation: Results on held-out samples.
        run_dir: The run directory.
        report: The report, if one was written.
    """
    found = Table(
        title="Mean absolute errors, and how many are within the calibrated ones",
        caption=f"baseline: the training samples' median; errors are calibrated on {evaluation['calibrated_on']}\n"
        f"report: {report}\neverything: {run_dir}",
    )
    found.add_column("split")
    found.add_column("quantity", no_wrap=True)
    for heading in ("error", "baseline", "R²", "in 1 σ", "in 2 σ"):
        found.add_column(heading, justify="right")
    for split in evaluation["by_split"]:
        for quantity, _, *scores in _cells(evaluation, split):
            found.add_row(split, quantity, *scores)
    return found


def estimate_part(run_dir: Path) -> ResultPart:
    """Returns the part of the report: errors and coverage by quantity and split."""
    path = run_dir / "evaluation.json"
    evaluation = read_estimates(path) if path.is_file() else None
    if evaluation is None or not evaluation["by_split"]:
        run: Mapping[str, Any] = evaluation["run"] if evaluation else {}
        return ResultPart(KIND, TITLE, missing("No held-out sample has been evaluated."), missing("None."), run)
    captions = {
        split: f"{escape(split)}: {count(_size(evaluation, split), 'sample')}" for split in evaluation["by_split"]
    }
    parts = [_headline(evaluation)]
    parts += [table(caption, HEAD, _cells(evaluation, split), text_columns=1) for split, caption in captions.items()]
    return ResultPart(KIND, TITLE, "\n".join(parts), _samples(evaluation), evaluation["run"])


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


def _samples(evaluation: EstimateEvaluation) -> str:
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


@cache
def _adapter() -> TypeAdapter[EstimateEvaluation]:
    return TypeAdapter(EstimateEvaluation)
