"""Calibrates what a network says about its error, on crystals that it was not trained on.

A window is predicted in all views that keep it valid (`train.reconstruction.ensemble`): mirrored, and otherwise with
dropout. The variance of an error is estimated as s² + w p². s² is the variance of the predictions between the views,
and p² the mean over the views of the variances that the network predicts, if it was trained with a likelihood.
Predicted errors are those of crystals that were learnt, the spread says what is not known of others. The weight w makes
them equal: it is the squared ratio of the factors by which p alone and s alone would cover 68.27 % of the errors.

The uncertainty is the root of the sum times one factor. The factor is chosen on windows of the dev split, as stored and
as training would see them (`train.reconstruction.known_windows`), so that 68.27 % of the pixels have an error within
the uncertainty. Errors have heavier tails than a Gaussian: a second number says within how many uncertainties 95.45 %
of them are. The coverage that both have on the test split is measured and stored with them, also by groups of windows.
It holds in the mean over the pixels of a group: the coverage of a single pixel is not known.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.errors import WorkError
from train.reconstruction.ensemble import Predict, Prediction
from train.reconstruction.familiarity import UNFAMILIAR, Familiarity, PatternStatistics, window_features
from train.reconstruction.known_windows import Facts, KnownWindow
from train.reports.results import Calibration, Coverage, CoverageGroup

Array = npt.NDArray[Any]

ONE_SIGMA, TWO_SIGMA = 0.6827, 0.9545
GROUPS = 3  # of equal size, into which the windows are divided by a quantity with more values than MOST_VALUES
MOST_VALUES = 12


class WindowError(NamedTuple):
    """The error of a window and what the network says about it.

    Attributes:
        error: Absolute error of the mean prediction, `(pixels,)`, e/Å².
        spread: Standard deviation of the predictions, `(pixels,)`, e/Å². Zero for one prediction.
        predicted: Standard deviation of the error as the network predicts it, `(pixels,)`, e/Å². Zero if it does not.
        features: What familiarity is measured by, `(k,)`.
        facts: Those of the window.
    """

    error: Array
    spread: Array
    predicted: Array
    features: Array
    facts: Facts

    def deviation(self, predicted_weight: float) -> npt.NDArray[np.float64]:
        """Returns the standard deviation of the error before calibration, `(pixels,)`, e/Å².

        Args:
            predicted_weight: Weight of the predicted variance, w.
        """
        return np.asarray(np.sqrt(self.spread**2 + predicted_weight * self.predicted**2))


def window_errors(predict: Predict, windows: Iterable[KnownWindow], statistics: PatternStatistics) -> list[WindowError]:
    """Predicts windows and compares with their densities.

    Args:
        predict: Predicts densities from windows, with maps.
        windows: The windows.
        statistics: Of the windows' shape.
    """
    rows = []
    for window in windows:
        prediction = predict(window.patterns)
        error = np.abs(prediction.density[:, 0].mean(axis=0, dtype=np.float64) - window.density)
        (features,) = window_features(statistics, window.patterns, prediction.maps)
        spread, predicted = deviations(prediction)
        rows.append(WindowError(error.ravel(), spread[0].ravel(), predicted[0].ravel(), features, window.facts))
    return rows


def deviations(prediction: Prediction) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Returns the spread of predictions and the standard deviation that they predict, `(n, h, w)` each, e/Å²."""
    density, variance = prediction.density.astype(np.float64), prediction.variance
    spread = density.std(axis=0, ddof=1) if len(density) > 1 else np.zeros(density.shape[1:])
    predicted = np.zeros_like(spread) if variance is None else np.sqrt(variance.mean(axis=0, dtype=np.float64))
    return spread, predicted


def equalising_weight(rows: Sequence[WindowError]) -> float:
    """Returns the weight of the predicted variance with which it counts as much as that of the predictions.

    It is 1 where there is only one of them.

    Args:
        rows: The windows.
    """
    error, spread, predicted = (np.concatenate(parts) for parts in zip(*(row[:3] for row in rows), strict=True))
    if not spread.any() or not predicted.any():
        return 1.0
    return (covering_factor(error, predicted) / covering_factor(error, spread)) ** 2


def covering_factor(error: Array, deviation: Array, part: float = ONE_SIGMA) -> float:
    """Returns the factor of the deviation within which a part of the errors lies.

    Args:
        error: Absolute errors, `(n,)`.
        deviation: Standard deviations, `(n,)`.
        part: The part.

    Raises:
        WorkError: If no factor suffices, because too many pixels have no deviation.
    """
    ratio = np.divide(error, deviation, out=np.full(len(error), np.inf), where=deviation > 0)
    factor = float(np.quantile(ratio, part, method="higher"))
    if not np.isfinite(factor):
        raise WorkError(
            f"the network's answers do not differ in {1 - part:.0%} of the pixels: their spread says nothing"
        )
    return factor


def coverage(error: Array, uncertainty: Array, two_sigma_factor: float = 2.0) -> Coverage:
    """Returns the fractions of the errors within one and two standard deviations; 0.683 and 0.954 for a Gaussian.

    Args:
        error: Absolute errors, `(n,)`.
        uncertainty: Standard deviations, `(n,)`.
        two_sigma_factor: The multiple of them that stands for two.
    """
    within_one, within_two = (float(np.mean(error <= k * uncertainty)) for k in (1, two_sigma_factor))
    return {"coverage_68": within_one, "coverage_95": within_two}


def coverage_by_group(
    rows: Sequence[WindowError], familiarity: Familiarity, covered: Sequence[Coverage]
) -> list[CoverageGroup]:
    """Returns the coverage by kind of specimen, by each quantity that differs, and by familiarity.

    Args:
        rows: The windows.
        familiarity: What the network has learnt.
        covered: Their coverage.
    """
    scores = familiarity.familiarity(np.stack([row.features for row in rows]))
    names = dict.fromkeys(name for row in rows for name in row.facts)
    labelled = {name: group_labels([row.facts.get(name) for row in rows]) for name in names}
    labelled["familiarity"] = ["flagged" if score < UNFAMILIAR else "as learnt" for score in scores]
    groups: list[CoverageGroup] = []
    for name, labels in labelled.items():
        by_label = {
            label: [at for at, other in enumerate(labels) if other == label]
            for label in sorted(set(labels), key=_in_order)
        }
        for label, indices in by_label.items() if len(by_label) > 1 else ():
            one, two = ([covered[index][key] for index in indices] for key in ("coverage_68", "coverage_95"))
            mean: Coverage = {"coverage_68": float(np.mean(one)), "coverage_95": float(np.mean(two))}
            groups.append({"by": name, "group": label, "windows": len(indices), "least_68": min(one), **mean})
    return groups


def group_labels(values: Sequence[str | float | None]) -> list[str]:
    """Returns the group of each value: the value itself, or one of `GROUPS` ranges of numbers if there are many.

    Args:
        values: One per window; `None` where the quantity was not drawn.
    """
    numbers = sorted({value for value in values if isinstance(value, int | float)})
    if len(numbers) <= MOST_VALUES:
        return ["none" if value is None else value if isinstance(value, str) else f"{value:g}" for value in values]
    ranges = np.array_split(numbers, GROUPS)
    label_of = {number: f"{part[0]:.3g} to {part[-1]:.3g}" for part in ranges for number in part.tolist()}
    return ["none" if value is None else label_of[float(value)] for value in values]


def _in_order(label: str) -> tuple[float, str]:
    """Returns what sorts labels by the number that they begin with, and others behind them."""
    try:
        return float(label.split(maxsplit=1)[0]), label
    except ValueError:
        return np.inf, label


def calibrate_uncertainty(
    dev: Sequence[WindowError], test: Sequence[WindowError], familiarity: Familiarity, method: str, members: int
) -> Calibration:
    """Chooses the factors on dev windows and measures their coverage on dev and test windows.

    Args:
        dev: Windows that the factors are chosen on.
        test: Windows that the coverage is measured on; may be none.
        familiarity: What the network has learnt.
        method: How the predictions are made, in words.
        members: Number of predictions per sample.
    """
    weight = equalising_weight(dev)
    error, deviation = (
        np.concatenate([row.error for row in dev]),
        np.concatenate([row.deviation(weight) for row in dev]),
    )
    factor = covering_factor(error, deviation)
    two_sigma_factor = covering_factor(error, factor * deviation, TWO_SIGMA)
    rows = test or dev
    covered = [coverage(row.error, factor * row.deviation(weight), two_sigma_factor) for row in rows]
    calibration: Calibration = {
        "scale": factor,
        "uncertainty_factor": factor,
        "two_sigma_factor": two_sigma_factor,
        "predicted_weight": weight,
        "method": method,
        "members": members,
        "split": "dev",
        "samples": len(dev),
        **coverage(error, factor * deviation, two_sigma_factor),
        "groups": coverage_by_group(rows, familiarity, covered),
        "groups_split": "test" if test else "dev",
    }
    if test:
        one, two = (float(np.mean([row[key] for row in covered])) for key in ("coverage_68", "coverage_95"))
        calibration["test"] = {"coverage_68": one, "coverage_95": two}
        flagged = familiarity.familiarity(np.stack([row.features for row in test])) < UNFAMILIAR
        calibration["test_flagged"] = float(np.mean(flagged))
    return calibration
