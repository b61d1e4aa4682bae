"""Calibration of the error that a network states, on crystals that it was not trained on.

A window is predicted in all views that keep it valid (`train.tasks.density.scan.ensemble`):
mirrored, and otherwise with dropout. The variance of an error is estimated as s² + w p². s² is the
variance of the predictions between the views, and p² the mean over the views of the variances that
the network predicts, if it was trained with a likelihood. Predicted errors are those of crystals
that were learnt, the spread says what is not known of others. The weight w makes them equal: it is
the squared ratio of the factors by which p alone and s alone would cover 68.27 % of the errors.

The uncertainty is the root of the sum times one factor. The factor is chosen on windows of the dev
split, as stored and as training would see them (`train.apply.known_windows`), so that 68.27 % of
the pixels have an error within the uncertainty. Errors have heavier tails than a Gaussian: a second
number says within how many uncertainties 95.45 % of them are. The coverage that both have on the
test split is measured and stored with them, also by groups of windows. It holds in the mean over
the pixels of a group. The coverage of a single pixel is not known. That of a window varies, because
its errors have a common size, which is known roughly; the range of two thirds of the windows is
stored, too.
"""

from collections.abc import Sequence
from typing import NamedTuple, SupportsFloat

import numpy as np
from scipy import stats

from namsa.base.arrays import Array, Floats

from ....apply.known_windows import KnownWindow
from ....measure.coverage import TWO_SIGMA, Coverage, coverage, covering_factor
from ....measure.groups import Facts, groups
from ....measure.metrics import image_metrics
from ....reports.calibration_results import (
    CoverageGroup,
    OutsideSeparation,
    UncertaintyCalibration,
    WrongWindows,
)
from ..scan.ensemble import Prediction
from .familiarity import UNFAMILIAR, Familiarity, PatternStatistics, window_features

MIDDLE = (1 / 6, 5 / 6)  # quantiles between which two thirds of the windows are
WRONG = 0.5  # mean absolute error, in standard deviations of the true density


class WindowError(NamedTuple):
    """The error of a window and what the network says about it."""

    error: Array  # absolute error of the mean prediction, `(pixels,)`, e/Å²
    # standard deviation of the predictions, `(pixels,)`, e/Å². Zero for one prediction
    spread: Array
    # Standard deviation of the error as the network predicts it, `(pixels,)`, e/Å². Zero if it does
    # not.
    predicted: Array
    features: Array  # what familiarity is measured by, `(k,)`
    facts: Facts  # those of the window
    # structural similarity of the mean prediction; `None` where it is not defined
    ssim: float | None = None
    # Standard deviations of the mean prediction and of the true density, e/Å².
    contrast: tuple[float, float] = (0.0, 0.0)

    def deviation(self, predicted_weight: float) -> Floats:
        """Returns the standard deviation of the error before calibration, `(pixels,)`, e/Å²."""
        return np.asarray(np.sqrt(self.spread**2 + predicted_weight * self.predicted**2))


def window_error(
    window: KnownWindow, prediction: Prediction, statistics: PatternStatistics
) -> WindowError:
    """Compares what is predicted of a window, with maps, as `Prediction.of_each` gives it, with its
    density.
    """
    density = prediction.density.mean(axis=0, dtype=np.float64)
    error = np.abs(density - window.density)
    ssim = image_metrics(density, window.density, huber_delta=1)["ssim"]
    (features,) = window_features(statistics, window.patterns, prediction.maps)
    spread, predicted = deviations(prediction)
    contrast = float(density.std()), float(window.density.std())
    return WindowError(
        error.ravel(), spread.ravel(), predicted.ravel(), features, window.facts, ssim, contrast
    )


def deviations(prediction: Prediction) -> tuple[Floats, Floats]:
    """Returns the spread of predictions and the standard deviation that they predict, `(..., h,
    w)`, e/Å².
    """
    density = prediction.density.astype(np.float64)
    variance = prediction.variance
    spread = density.std(axis=0, ddof=1) if len(density) > 1 else np.zeros(density.shape[1:])
    if variance is None:
        predicted = np.zeros_like(spread)
    else:
        predicted = np.sqrt(variance.mean(axis=0, dtype=np.float64))
    return spread, predicted


def equalising_weight(rows: Sequence[WindowError]) -> float:
    """Returns the weight of the predicted variance with which it counts as much as that of the
    predictions.

    It is 1 where there is only one of them.
    """
    error = np.concatenate([row.error for row in rows])
    spread = np.concatenate([row.spread for row in rows])
    predicted = np.concatenate([row.predicted for row in rows])
    if not spread.any() or not predicted.any():
        return 1.0
    return (covering_factor(error, predicted) / covering_factor(error, spread)) ** 2


def coverage_by_group(
    rows: Sequence[WindowError], familiarity: Familiarity, covered: Sequence[Coverage]
) -> list[CoverageGroup]:
    """Returns the coverage by kind of specimen, by each quantity that differs, and by
    familiarity.
    """
    scores = familiarity.familiarity(np.stack([row.features for row in rows]))
    facts = []
    for row, score in zip(rows, scores, strict=True):
        look = "flagged" if score < UNFAMILIAR else "as learnt"
        facts.append(row.facts | {"familiarity": look})
    by_group: list[CoverageGroup] = []
    for name, label, indices in groups(facts):
        group_rows = [rows[index] for index in indices]
        group_covered = [covered[index] for index in indices]
        by_group.append(_coverage_of_group(name, label, group_rows, group_covered))
    return by_group


def _coverage_of_group(
    name: str, label: str, rows: Sequence[WindowError], covered: Sequence[Coverage]
) -> CoverageGroup:
    """Returns the coverage and the structural similarity of the windows of a group."""
    covered_68 = [window["coverage_68"] for window in covered]
    covered_95 = [window["coverage_95"] for window in covered]
    group: CoverageGroup = {
        "by": name,
        "group": label,
        "windows": len(rows),
        "least_68": _rounded(min(covered_68)),
        "coverage_68": _rounded(np.mean(covered_68)),
        "coverage_95": _rounded(np.mean(covered_95)),
    }
    ssims = [row.ssim for row in rows if row.ssim is not None]
    if ssims:
        group["ssim"] = _rounded(np.mean(ssims))
        group["least_ssim"] = _rounded(min(ssims))
        group["tenth_ssim"] = _rounded(np.quantile(ssims, 0.1))
    return group


def _rounded(share: SupportsFloat) -> float:
    """Returns a share of many in the digits that a card shows, and one more: the file ships with
    the network.
    """
    return round(float(share), 4)


class UncertaintyFactors(NamedTuple):
    """The factors from the deviations of windows to uncertainties, chosen on the dev split."""

    scale: float  # from the deviation to the uncertainty
    two_sigma: float  # multiple of the uncertainty that covers two standard deviations
    predicted_weight: float  # weight of the predicted variance in the deviation

    @classmethod
    def fit(cls, rows: Sequence[WindowError]) -> "UncertaintyFactors":
        """Chooses the factors with which the errors of windows are covered."""
        weight = equalising_weight(rows)
        error = np.concatenate([row.error for row in rows])
        deviation = np.concatenate([row.deviation(weight) for row in rows])
        scale = covering_factor(error, deviation)
        return cls(scale, covering_factor(error, scale * deviation, TWO_SIGMA), weight)

    def uncertainty(self, row: WindowError) -> Floats:
        """Returns the uncertainty of the pixels of a window, `(pixels,)`, e/Å²."""
        return self.scale * row.deviation(self.predicted_weight)

    def coverage(self, rows: Sequence[WindowError]) -> Coverage:
        """Returns the coverage of all pixels of windows."""
        error = np.concatenate([row.error for row in rows])
        uncertainty = np.concatenate([self.uncertainty(row) for row in rows])
        return coverage(error, uncertainty, self.two_sigma)


def calibrate_uncertainty(
    dev: Sequence[WindowError],
    test: Sequence[WindowError],
    familiarity: Familiarity,
    method: str,
    members: int,
) -> UncertaintyCalibration:
    """Chooses the factors on dev windows, and measures their coverage on these and on test windows,
    if any.
    """
    factors = UncertaintyFactors.fit(dev)
    rows = test or dev
    covered = [factors.coverage([row]) for row in rows]
    covered_68 = [window["coverage_68"] for window in covered]
    calibration: UncertaintyCalibration = {
        "scale": factors.scale,
        "uncertainty_factor": factors.scale,
        "two_sigma_factor": factors.two_sigma,
        "predicted_weight": factors.predicted_weight,
        "method": method,
        "members": members,
        "split": "dev",
        "samples": len(dev),
        **factors.coverage(dev),
        "groups": coverage_by_group(rows, familiarity, covered),
        "groups_split": "test" if test else "dev",
        "windows_68": np.quantile(covered_68, MIDDLE).tolist(),
    }
    if not test:
        return calibration
    calibration["test"] = _mean_coverage(covered)
    features = np.stack([row.features for row in test])
    flagged = familiarity.familiarity(features) < UNFAMILIAR
    calibration["test_flagged"] = float(np.mean(flagged))
    wrong = wrong_windows(test, familiarity, factors.predicted_weight)
    if wrong is not None:
        calibration["wrong_windows"] = wrong
    return calibration


def _mean_coverage(windows: Sequence[Coverage]) -> Coverage:
    """Returns the mean of the coverage of windows."""
    return {
        "coverage_68": float(np.mean([window["coverage_68"] for window in windows])),
        "coverage_95": float(np.mean([window["coverage_95"] for window in windows])),
    }


def wrong_windows(
    rows: Sequence[WindowError], familiarity: Familiarity, predicted_weight: float
) -> WrongWindows | None:
    """Returns how well windows whose density is wrong are told from others; `None` where none or
    all are wrong.
    """
    rows = [row for row in rows if all(row.contrast)]
    wrong = np.array([row.error.mean() > WRONG * row.contrast[1] for row in rows], bool)
    if wrong.all() or not wrong.any():
        return None
    stated = np.zeros(len(rows))
    for index, row in enumerate(rows):
        rms = np.sqrt(np.mean(row.deviation(predicted_weight) ** 2))
        stated[index] = rms / row.contrast[0]
    distances = familiarity.distance(np.stack([row.features for row in rows]))
    return {
        "windows": len(rows),
        "wrong": int(wrong.sum()),
        "auroc_contrast": auroc(stated[wrong], stated[~wrong]),
        "auroc_familiarity": auroc(distances[wrong], distances[~wrong]),
    }


def told_apart(
    familiarity: Familiarity, alike: Familiarity, inside: Sequence[Array], outside: Sequence[Array]
) -> OutsideSeparation:
    """Returns how well familiarity tells windows outside from those inside, which it was not made
    from.

    Args:
        familiarity: What the network has learnt, and what lies outside of that.
        alike: The same without windows outside, so that all features count alike.
        inside: Features of windows under conditions that were learnt, `(k,)` each.
        outside: Features of windows outside, `(k,)` each.
    """
    near = np.stack(inside)
    far = np.stack(outside)
    return {
        "windows_inside": len(near),
        "windows_outside": len(far),
        "auroc": auroc(familiarity.distance(far), familiarity.distance(near)),
        "auroc_alike": auroc(alike.distance(far), alike.distance(near)),
        "flagged_outside": float(np.mean(familiarity.familiarity(far) < UNFAMILIAR)),
    }


def auroc(high: Sequence[float] | Array, low: Sequence[float] | Array) -> float:
    """Returns the probability that one of `high`, `(n,)`, exceeds one of `low`, `(m,)`; equal ones
    count half.
    """
    return float(stats.mannwhitneyu(high, low).statistic) / (len(high) * len(low))
