"""Scores of estimated quantities, of samples and together: the contents of `evaluation.json` of the
task estimate.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.base.arrays import Floats

from ...measure import coverage as measured
from ...measure.coverage import TWO_SIGMA, Coverage, covering_factor
from ...measure.results import RunFacts
from ...measure.rows import Row
from ..splits import HeldOutRow, Split, by_split


class EstimateRow(HeldOutRow):
    """The quantities of one sample, in their units, by name."""

    true: dict[str, float]  # values of the sample
    estimate: dict[str, float]  # what the network gives
    # Standard deviation of the error before calibration: as the network predicts it, or half of the
    # range if it predicts none.
    deviation: dict[str, float]


class QuantityCalibration(TypedDict):
    """From the deviation that a network says to the error of a quantity."""

    # Multiple of the deviation within which 68.27 % of the errors lie: one standard deviation.
    uncertainty_factor: float
    two_sigma_factor: float  # multiple of that within which 95.45 % lie; 2 for a Gaussian


class QuantityScores(Coverage):
    """Scores of a quantity over the samples of a split."""

    mae: float  # mean absolute error, in the quantity's unit
    baseline_mae: float  # that of an answer that is always the median of the training samples
    # 1 minus the ratio of the errors' squares to those of the deviations from the mean. `None` if
    # all are equal.
    r2: float | None


class EstimateEvaluation(TypedDict):
    """Contents of `evaluation.json`."""

    task: str  # "estimate"
    # least and largest value of each quantity in the dataset, by name
    ranges: dict[str, tuple[float, float]]
    medians: dict[str, float]  # of the training samples
    # of each quantity, from the samples of `calibrated_on`
    calibration: dict[str, QuantityCalibration]
    calibrated_on: str  # "dev", or "test" without samples of it
    by_split: dict[Split, dict[str, QuantityScores]]  # scores of each quantity, by split
    samples: list[EstimateRow]  # one row per sample, ordered by id
    run: RunFacts  # facts about the run


def summarise(
    rows: Sequence[EstimateRow],  # all samples that were evaluated
    ranges: Mapping[str, tuple[float, float]],  # of each quantity
    medians: Mapping[str, float],  # of each quantity in the training samples
    run: RunFacts,
) -> EstimateEvaluation:
    """Returns the scores by split. Errors are calibrated on the dev split, if it has samples."""
    present = by_split(rows)
    calibrated_on: Split = next(iter(present), "dev")
    calibration = calibrate(present[calibrated_on], list(ranges)) if present else {}
    return {
        "task": "estimate",
        "ranges": dict(ranges),
        "medians": dict(medians),
        "calibration": calibration,
        "calibrated_on": calibrated_on,
        "by_split": {
            split: scores(rows_of_split, medians, calibration)
            for split, rows_of_split in present.items()
        },
        "samples": list(rows),
        "run": run,
    }


def calibrate(rows: Sequence[Row], names: Sequence[str]) -> dict[str, QuantityCalibration]:
    """Returns the factors with which one standard deviation covers 68.27 % of the errors of one
    sample or more.
    """
    factors: dict[str, QuantityCalibration] = {}
    for name in names:
        error = np.abs(errors(rows, name))
        deviation = _column(rows, "deviation", name)
        one = covering_factor(error, deviation)
        two = covering_factor(error, one * deviation, TWO_SIGMA)
        factors[name] = {"uncertainty_factor": one, "two_sigma_factor": two}
    return factors


def scores(
    rows: Sequence[Row],  # at least one sample, of the keys of `EstimateRow`
    medians: Mapping[str, float],
    calibration: Mapping[str, QuantityCalibration],
) -> dict[str, QuantityScores]:
    """Returns what samples score together, by quantity."""
    scores_of_quantities: dict[str, QuantityScores] = {}
    for name, median in medians.items():
        error = errors(rows, name)
        true = _column(rows, "true", name)
        spread = float(np.sum((true - true.mean()) ** 2))
        scores_of_quantities[name] = {
            "mae": float(np.abs(error).mean()),
            "baseline_mae": float(np.abs(true - median).mean()),
            "r2": 1 - float(np.sum(error**2)) / spread if spread else None,
            **coverage(rows, name, calibration[name]),
        }
    return scores_of_quantities


def coverage(rows: Sequence[Row], name: str, calibration: QuantityCalibration) -> Coverage:
    """Returns how often the errors of a quantity are within the calibrated ones."""
    error = np.abs(errors(rows, name))
    sigma = calibration["uncertainty_factor"] * _column(rows, "deviation", name)
    return measured.coverage(error, sigma)


def errors(rows: Sequence[Row], name: str) -> Floats:
    """Returns the errors of a quantity, `(samples,)`, in its unit."""
    return _column(rows, "estimate", name) - _column(rows, "true", name)


def _column(rows: Sequence[Row], key: str, name: str) -> Floats:
    return np.array([row[key][name] for row in rows], np.float64)
