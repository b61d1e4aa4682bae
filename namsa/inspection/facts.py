"""What a file holds and how its pixels behave, as JSON values."""

from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.inspection.bad_pixels import BadPixel
from namsa.inspection.survey import Survey
from namsa.inspection.virtual_images import VirtualImages
from namsa.io.recording import Recording

COUNTER_BITS = (1, 2, 4, 6, 8, 10, 12, 14, 16, 24, 32)
OFTEN = 3  # times that the largest value of a full counter must occur to count as saturation
FLYBACK, MOST_FLYBACK = 8.0, 0.1  # steps between columns over the median one; share of the columns


def describe(
    recording: Recording, survey: Survey, bad_pixels: list[BadPixel], inside: npt.NDArray[np.bool_]
) -> dict[str, Any]:
    """Describes a scan.

    Args:
        recording: The scan.
        survey: Its statistics.
        inside: The pixels of which the variance over the mean is taken, `(dy, dx)`.
    """
    ratio = survey.variance[inside] / np.where(survey.mean[inside] > 0, survey.mean[inside], np.inf)
    saturated, sums = _saturation(survey), survey.sums[~survey.lost]
    return {
        "format": recording.format,
        "shape": list(recording.shape),
        "dtype": str(recording.dtype),
        "whole_numbers": survey.whole,
        "normalised": recording.normalised,
        "sum_per_pattern": float(sums.mean()),
        "sum_per_pattern_range": [float(sums.min()), float(sums.max())],
        "lost_patterns": np.argwhere(survey.lost).tolist(),
        "largest_value": survey.top,
        "variance_over_mean": float(np.median(ratio)) if ratio.size else None,
        "saturated_values": saturated,
        "saturated_pixels": int((survey.at_top > 0).sum()) if saturated else 0,
        "missing_values": survey.losses.values,
        "negative_values": survey.negative,
        "hot_dead_pixels": [
            {"pixel": [pixel.row, pixel.column], "kind": pixel.kind, "sigmas": round(min(pixel.sigmas, 1e6), 1)}
            for pixel in bad_pixels
        ],
        "metadata": dict(recording.metadata),
    }


def _saturation(survey: Survey) -> int:
    """Returns how many values are the largest that a counter of whole bits holds; 0 if they are no more than chance."""
    full = survey.whole and survey.top in [2**bits - 1 for bits in COUNTER_BITS]
    times = int(survey.at_top.sum())
    return times if full and times >= OFTEN else 0


def flyback_columns(images: VirtualImages) -> list[int]:
    """Returns columns at the sides of the scan that differ abruptly from the others: the beam was flying back."""
    series = [images.bright, *np.moveaxis(images.deflection, -1, 0)]
    columns = images.bright.shape[1]
    found: set[int] = set()
    most = int(MOST_FLYBACK * columns)
    if not most:
        return []
    for means in (image.mean(axis=0) for image in series):
        steps = np.abs(np.diff(means))
        usual = float(np.median(steps))
        for n in range(most):
            if (
                usual
                and steps[n] > FLYBACK * usual
                and abs(means[: n + 1].mean() - np.median(means)) > 6 * means[most:-most].std()
            ):
                found.update(range(n + 1))
            if (
                usual
                and steps[-1 - n] > FLYBACK * usual
                and abs(means[-1 - n :].mean() - np.median(means)) > 6 * means[most:-most].std()
            ):
                found.update(range(columns - 1 - n, columns))
    return sorted(found)
