"""The results of the task estimate on the terminal and in the report."""

from collections.abc import Mapping, Sequence

from namsa.figures.document import Table, Text, strong

from ...measure.results import Evaluation
from ...reports.held_out import unseen
from ...reports.words import count, number
from ..reporting import ScoreTable, TaskReport, sample_table
from .quantities import QUANTITIES
from .scores import EstimateEvaluation, EstimateRow

KIND = "Thickness, defocus and tilt from 4D-STEM: estimation report"


def check(evaluation: EstimateEvaluation) -> None:
    """Raises ValueError if the quantities of an evaluation are not those of its ranges."""
    by_quantity: list[Mapping[str, object]] = [
        evaluation["medians"],
        *evaluation["by_split"].values(),
    ]
    for row in evaluation["samples"]:
        by_quantity += row["true"], row["estimate"], row["deviation"]
    if evaluation["samples"]:
        by_quantity.append(evaluation["calibration"])
    names = set(evaluation["ranges"])
    if not names <= set(QUANTITIES) or any(set(values) != names for values in by_quantity):
        raise ValueError("its quantities do not fit together")


def score_table(evaluation: Evaluation) -> ScoreTable:
    """Returns the errors by split and quantity, and how many are within the calibrated ones."""
    rows = []
    for split, scores in evaluation["by_split"].items():
        for name, row in scores.items():
            low, high = evaluation["ranges"][name]
            rows.append(
                (
                    split,
                    str(_size(evaluation, split)),
                    _with_unit(name),
                    f"{number(low, 'g')} … {number(high, 'g')}",
                    number(row["mae"], ".3g"),
                    number(row["baseline_mae"], ".3g"),
                    number(row["r2"], ".2f"),
                    number(row["coverage_68"], ".2f"),
                    number(row["coverage_95"], ".2f"),
                )
            )
    head = (
        "split",
        "samples",
        "quantity",
        "trained for",
        "error",
        "baseline",
        "R²",
        "in 1 σ",
        "in 2 σ",
    )
    baseline = (
        f"the training samples' median; errors are calibrated on {evaluation['calibrated_on']}"
    )
    return ScoreTable("Mean absolute errors", baseline, head, rows, 3)


def _with_unit(name: str) -> str:
    """Returns the title of a quantity with its unit."""
    quantity = QUANTITIES[name]
    return f"{quantity.title}, {quantity.unit}"


def headline(evaluation: EstimateEvaluation) -> Text:
    """Returns the errors of the network and of the median on the last split."""
    split = list(evaluation["by_split"])[-1]
    errors: list[Text] = []
    for name, row in evaluation["by_split"][split].items():
        quantity = QUANTITIES[name]
        separator = "; " if errors else ""
        baseline = number(row["baseline_mae"], ".3g")
        errors.append(
            (
                f"{separator}{quantity.title} ",
                strong(number(row["mae"], ".3g")),
                f" ({baseline}) {quantity.unit}",
            )
        )
    return (
        f"Mean absolute errors on {count(_size(evaluation, split), 'sample')} of specimens "
        f"{unseen(evaluation['run'])} ({split}), and those of the training samples’ median: ",
        errors,
        f". Errors are calibrated on {evaluation['calibrated_on']}.",
    )


def samples(evaluation: EstimateEvaluation) -> Table:
    """Returns the true and the estimated quantities of every held-out sample."""
    names = list(evaluation["ranges"])
    calibration = evaluation["calibration"]

    def cells(row: EstimateRow) -> Sequence[str]:
        texts = []
        for name in names:
            true = number(row["true"][name], ".3g")
            estimate = number(row["estimate"][name], ".3g")
            factor = calibration[name]["uncertainty_factor"]
            error = number(factor * row["deviation"][name], ".2g")
            texts.append(f"{true} ({estimate} ± {error})")
        return texts

    head = [_with_unit(name) for name in names]
    return sample_table(evaluation, head, cells, caption="True values, and estimates")


def _size(evaluation: Evaluation, split: str) -> int:
    """Returns the number of held-out samples of a split."""
    return sum(row["split"] == split for row in evaluation["samples"])


REPORT = TaskReport(KIND, EstimateEvaluation, score_table, headline, samples, check=check)
