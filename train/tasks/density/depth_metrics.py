"""Scores of a density by depth, `(bins, h, w)`, beside estimates that know nothing of the depth.

- network: the density of each bin as the network estimates it.
- own_projected: the network's own projected density, in equal parts in all bins.
- true_projected: the true projected density, in equal parts in all bins: what a perfect projection
  tells of the depth.
- mean_predictor: the mean of the training targets.

The errors of a sample are those of all voxels: r_factor is Σ|p − t| / Σ|t| and rmse the root of the
mean square, e/Å². mae is the mean of |p − t| in each bin, e/Å². `explained` is 1 − Σ(p − t)² / Σ(q
− t)², with q the true projected density in equal parts: the share of what varies along the beam
that the network finds, 0 for true_projected. It is `None` where nothing varies. Where little does
it is far below 0, so that a summary has its median.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.base.arrays import Array

Estimate = Literal["network", "own_projected", "true_projected", "mean_predictor"]


class DepthErrors(TypedDict):
    """Errors of one estimate; see the module."""

    r_factor: float | None  # Σ|p − t| / Σ|t| of all voxels; `None` if t is zero everywhere
    rmse: float  # root mean square of all voxels, e/Å²
    mae: list[float]  # mean of |p − t| in each bin, e/Å²


class DepthScores(TypedDict):
    """Scores of one sample, or their means over samples. The estimates are those of the module."""

    network: DepthErrors
    own_projected: DepthErrors
    true_projected: DepthErrors
    mean_predictor: DepthErrors
    explained: float | None


class DepthSummary(DepthScores):
    """Means over samples; of `explained` the median."""

    bins: int  # number of bins
    samples: int  # number of samples
    # the mean r_factor of own_projected over that of the network
    factor_own_projected: float | None
    # the mean r_factor of true_projected over that of the network
    factor_true_projected: float | None


def depth_scores(prediction: Array, truth: Array, mean_target: Array) -> DepthScores:
    """Returns the scores of a sample, from densities `(bins, h, w)`, e/Å²."""
    p, t, mean = (np.asarray(volume, np.float64) for volume in (prediction, truth, mean_target))
    even = _even(t)
    varying = float(((even - t) ** 2).sum())
    explained = None
    if varying > 1e-12 * float((t**2).sum()):
        explained = 1 - float(((p - t) ** 2).sum()) / varying
    return {
        "network": _errors(p, t),
        "own_projected": _errors(_even(p), t),
        "true_projected": _errors(even, t),
        "mean_predictor": _errors(mean, t),
        "explained": explained,
    }


def summarise(scores: Sequence[DepthScores], bins: int) -> DepthSummary:
    """Returns means over samples, of which there is one at least."""
    network = _mean_errors(scores, "network")
    own_projected = _mean_errors(scores, "own_projected")
    true_projected = _mean_errors(scores, "true_projected")
    return {
        "network": network,
        "own_projected": own_projected,
        "true_projected": true_projected,
        "mean_predictor": _mean_errors(scores, "mean_predictor"),
        "factor_own_projected": _factor(own_projected, network),
        "factor_true_projected": _factor(true_projected, network),
        "explained": _defined(np.median, [score["explained"] for score in scores]),
        "bins": bins,
        "samples": len(scores),
    }


def _factor(errors: DepthErrors, of_network: DepthErrors) -> float | None:
    """Returns how many times the error of the network another one is."""
    numerator = errors["r_factor"]
    denominator = of_network["r_factor"]
    if numerator is None or not denominator:
        return None
    return numerator / denominator


def _mean_errors(scores: Sequence[DepthScores], estimate: Estimate) -> DepthErrors:
    """Returns the means over samples of the errors of an estimate."""
    errors = [score[estimate] for score in scores]
    return {
        "r_factor": _defined(np.mean, [error["r_factor"] for error in errors]),
        "rmse": float(np.mean([error["rmse"] for error in errors])),
        "mae": np.mean([error["mae"] for error in errors], axis=0).tolist(),
    }


def _even(density: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns a density whose projection is in equal parts in all bins."""
    return np.broadcast_to(density.mean(axis=0), density.shape)


def _errors(p: npt.NDArray[np.float64], t: npt.NDArray[np.float64]) -> DepthErrors:
    error = np.abs(p - t)
    return {
        "r_factor": float(error.sum() / np.abs(t).sum()) if t.any() else None,
        "rmse": float(np.sqrt((error**2).mean())),
        "mae": error.mean(axis=(1, 2)).tolist(),
    }


def _defined(
    reduce: Callable[[Sequence[float]], float], values: Sequence[float | None]
) -> float | None:
    """Returns what `reduce` makes of the values that are defined."""
    defined = [value for value in values if value is not None]
    return float(reduce(defined)) if defined else None
