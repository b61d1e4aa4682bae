"""Calibrates the spread of a network's predictions as the error of their mean, on materials it was not trained on.

A sample is predicted in all views that keep it valid (`train.reconstruction.ensemble`): mirrored, and otherwise with
dropout. The uncertainty is the standard deviation of the predictions times one factor. The factor is chosen on the dev
split so that 68.27 % of the pixels have an error within the uncertainty; the coverage that it then has on the test
split is measured and stored with it. It holds in the mean over pixels only: the coverage of a single pixel is not
known.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.dataset.records import Record
from namsa.errors import WorkError
from namsa.pixels import raster_shape
from train.reconstruction.ensemble import Predict
from train.reports.results import Calibration, Coverage

Array = npt.NDArray[Any]

ONE_SIGMA = 0.6827


class PixelErrors(NamedTuple):
    """Errors and spreads of all pixels of some samples.

    Attributes:
        error: Absolute error of the mean prediction, `(n,)`, e/Å².
        spread: Standard deviation of the predictions, `(n,)`, e/Å².
    """

    error: Array
    spread: Array


def pixel_errors(predict: Predict, records: Iterable[Record]) -> PixelErrors:
    """Predicts samples and compares with their densities.

    Args:
        predict: Predicts densities from windows.
        records: The samples.
    """
    rows: list[PixelErrors] = []
    for record in records:
        sy, sx = raster_shape(record.header["provenance"], len(record.cbed))
        windows = record.patterns().reshape(1, sy, sx, *record.cbed.shape[1:])
        predictions = predict(windows)[:, 0].astype(np.float64)
        error = np.abs(predictions.mean(axis=0) - record.density)
        rows.append(PixelErrors(error.ravel(), predictions.std(axis=0, ddof=1).ravel()))
    if not rows:
        return PixelErrors(np.zeros(0), np.zeros(0))
    return PixelErrors(np.concatenate([row.error for row in rows]), np.concatenate([row.spread for row in rows]))


def uncertainty_factor(error: Array, spread: Array) -> float:
    """Returns the factor of the spread within which 68.27 % of the errors lie.

    Args:
        error: Absolute errors, `(n,)`.
        spread: Standard deviations of the predictions, `(n,)`.

    Raises:
        WorkError: If no factor suffices, because too many pixels have no spread.
    """
    ratio = np.divide(error, spread, out=np.full(len(error), np.inf), where=spread > 0)
    factor = float(np.quantile(ratio, ONE_SIGMA, method="higher"))
    if not np.isfinite(factor):
        raise WorkError("the network's answers do not differ in a third of the pixels: their spread says nothing")
    return factor


def coverage(error: Array, deviation: Array) -> Coverage:
    """Returns the fractions of the errors within one and two standard deviations; 0.683 and 0.954 for a Gaussian.

    Args:
        error: Absolute errors, `(n,)`.
        deviation: Standard deviations, `(n,)`.
    """
    within_one, within_two = (float(np.mean(error <= k * deviation)) for k in (1, 2))
    return {"coverage_68": within_one, "coverage_95": within_two}


def calibrate_uncertainty(
    predict: Predict, dev: Sequence[Record], test: Iterable[Record], method: str, members: int
) -> Calibration:
    """Chooses the uncertainty factor on dev samples and measures its coverage on dev and test samples.

    Args:
        predict: Predicts densities from windows.
        dev: Samples that the factor is chosen on.
        test: Samples that the coverage is measured on; may be none.
        method: How the predictions are made, in words.
        members: Number of predictions per sample.
    """
    error, spread = pixel_errors(predict, dev)
    factor = uncertainty_factor(error, spread)
    test_error, test_spread = pixel_errors(predict, test)
    calibration: Calibration = {
        "scale": factor,
        "uncertainty_factor": factor,
        "method": method,
        "members": members,
        "split": "dev",
        "samples": len(dev),
        **coverage(error, factor * spread),
    }
    if len(test_error):
        calibration["test"] = coverage(test_error, factor * test_spread)
    return calibration
