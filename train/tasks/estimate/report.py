"""The results of the task estimate on the terminal and in the report."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ...reports.report_tables import count, number
from ..reporting import ScoreTable, TaskReport, sample_table
from .quantities import QUANTITIES
from .scores import EstimateEvaluation, EstimateRow

KIND = "Thickness, defocus and tilt from 4D-STEM: estimation report"


def check(evaluation: EstimateEvaluation) -> None:
    """Raises ValueError if the quantities of an evaluation are not those of its ranges."""
    by_name: list[Mapping[str, Any]] = [evaluation["medians"], *evaluation["by_split"].values()]
    for row in evaluation["samples"]:
        by_name += row["true"], row["estimate"], row["deviation"]
    by_name += [evaluation["calibration"]] if evaluation["samples"] else []
    names = set(evaluation["ranges"])
    if not names <= set(QUANTITIES) or any(set(each) != names for each in by_name):
        raise ValueError("its quantities do not fit together")


def score_table(evaluation: Mapping[str, Any]) -> ScoreTable:
    """Returns the errors by split and quantity, and how many are within the calibrated ones."""
    rows = []
    for split, scores in evaluation["by_split"].items():
        for name, row in scores.items():
            facts, (low, high) = QUANTITIES[name], evaluation["ranges"][name]
            errors = (number(row[key], ".3g") for key in ("mae", "baseline_mae"))
            others = (number(row[key], ".2f") for key in ("r2", "coverage_68", "coverage_95"))
            limits = f"{number(low, 'g')} … {number(high, 'g')}"
            rows.append(
                (split, str(_size(evaluation, split)), f"{facts.title}, {facts.unit}", limits, *errors, *others)
            )
    head = ("split", "samples", "quantity", "trained for", "error", "baseline", "R²", "in 1 σ", "in 2 σ")
    baseline = f"the training samples' median; errors are calibrated on {evaluation['calibrated_on']}"
    return ScoreTable("Mean absolute errors", baseline, head, rows, 3)


def headline(evaluation: EstimateEvaluation) -> str:
    """Returns the errors of the network and of the median on the last split."""
    split = list(evaluation["by_split"])[-1]
    words = [
        f"{QUANTITIES[name].title} <strong>{number(row['mae'], '.3g')}</strong> "
        f"({number(row['baseline_mae'], '.3g')}) {QUANTITIES[name].unit}"
        for name, row in evaluation["by_split"][split].items()
    ]
    return (
        f"Mean absolute errors on {count(_size(evaluation, split), 'sample')} of specimens that "
        f"training never saw ({escape(split)}), and those of the training samples’ median: {'; '.join(words)}. Errors "
        f"are calibrated on {escape(evaluation['calibrated_on'])}."
    )


def samples(evaluation: EstimateEvaluation) -> str:
    names = list(evaluation["ranges"])
    factors = {name: found["uncertainty_factor"] for name, found in evaluation["calibration"].items()}

    def cells(row: EstimateRow) -> Sequence[str]:
        return [
            f"{number(row['true'][name], '.3g')} ({number(row['estimate'][name], '.3g')} ± "
            f"{number(factors[name] * row['deviation'][name], '.2g')})"
            for name in names
        ]

    head = [f"{QUANTITIES[name].title}, {QUANTITIES[name].unit}" for name in names]
    return sample_table(evaluation, head, cells, caption="True values, and estimates")


def _size(evaluation: Mapping[str, Any], split: str) -> int:
    return sum(row["split"] == split for row in evaluation["samples"])


REPORT = TaskReport(KIND, EstimateEvaluation, score_table, headline, samples, check=check)
