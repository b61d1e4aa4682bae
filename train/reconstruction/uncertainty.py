"""Calibrates what a network says about its error, on crystals that it was not trained on.

A window is predicted in all views that keep it valid (`train.reconstruction.ensemble`): mirrored, and otherwise with
dropout. The variance of an error is estimated as the mean over the views of the variances that the network predicts, if
it was trained with a likelihood, plus the variance of the predictions between the views.

The uncertainty is the root of that times one factor. The factor is chosen on windows of the dev split, as stored and as
training would see them (`train.reconstruction.known_windows`), so that 68.27 % of the pixels have an error within the
uncertainty. Errors have heavier tails than a Gaussian: a second number says within how many uncertainties 95.45 % of
them are. The coverage that both have on the test split is measured and stored with them, also by groups of windows. It
holds in the mean over the pixels of a group: the coverage of a single pixel is not known.
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
        deviation: Its standard deviation before calibration, `(pixels,)`, e/Å².
        features: What familiarity is measured by, `(k,)`.
        facts: Those of the window.
    """

    error: Array
    deviation: Array
    features: Array
    facts: Facts


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
        rows.append(WindowError(error.ravel(), deviation(prediction)[0].ravel(), features, window.facts))
    return rows


def deviation(prediction: Prediction) -> npt.NDArray[np.float64]:
    """Returns the standard deviation of the mean prediction's error before calibration, `(n, h, w)`, e/Å²."""
    several = len(prediction.density) > 1
    variance = prediction.density.astype(np.float64).var(axis=0, ddof=1) if several else np.zeros(1)
    if prediction.variance is not None:
        variance = variance + prediction.variance.mean(axis=0, dtype=np.float64)
    return np.sqrt(variance)


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
    rows: Sequence[WindowError], familiarity: Familiarity, factor: float, two_sigma_factor: float
) -> list[CoverageGroup]:
    """Returns the coverage by kind of specimen, by each quantity that differs, and by familiarity.

    Args:
        rows: The windows.
        familiarity: What the network has learnt.
        factor: Of the deviations.
        two_sigma_factor: The multiple of the uncertainty that stands for two standard deviations.
    """
    covered = [coverage(row.error, factor * row.deviation, two_sigma_factor) for row in rows]
    scores = familiarity.familiarity(np.stack([row.features for row in rows]))
    labelled: dict[str, dict[str, list[int]]] = {}
    for name in dict.fromkeys(name for row in rows for name in row.facts):
        labels = group_labels([row.facts.get(name) for row in rows])
        for index, label in enumerate(labels):
            labelled.setdefault(name, {}).setdefault(label, []).append(index)
    for index, score in enumerate(scores):
        label = "flagged" if score < UNFAMILIAR else "as learnt"
        labelled.setdefault("familiarity", {}).setdefault(label, []).append(index)
    groups: list[CoverageGroup] = []
    for name, members in labelled.items():
        for label, indices in members.items() if len(members) > 1 else ():
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
    error, spread = (np.concatenate([getattr(row, name) for row in dev]) for name in ("error", "deviation"))
    factor = covering_factor(error, spread)
    two_sigma_factor = covering_factor(error, factor * spread, TWO_SIGMA)
    rows = test or dev
    calibration: Calibration = {
        "scale": factor,
        "uncertainty_factor": factor,
        "two_sigma_factor": two_sigma_factor,
        "method": method,
        "members": members,
        "split": "dev",
        "samples": len(dev),
        **coverage(error, factor * spread, two_sigma_factor),
        "groups": coverage_by_group(rows, familiarity, factor, two_sigma_factor),
        "groups_split": "test" if test else "dev",
    }
    if test:
        error, spread = (np.concatenate([getattr(row, name) for row in test]) for name in ("error", "deviation"))
        calibration["test"] = coverage(error, factor * spread, two_sigma_factor)
        flagged = familiarity.familiarity(np.stack([row.features for row in test])) < UNFAMILIAR
        calibration["test_flagged"] = float(np.mean(flagged))
    return calibration
