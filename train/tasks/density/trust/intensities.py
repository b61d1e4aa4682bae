"""Whether each pattern of a scan was scaled by itself, which loses the specimen's own changes.

The sum of a pattern changes little along a scan, by what is scattered beyond the detector. Its
largest pixel changes more. Of patterns that were each divided by their maximum it is the other way
round. A beam whose current drifts changes both alike.
"""

from typing import TypedDict

import numpy as np

from namsa.base.arrays import Array

LEAST_SUM_VARIATION = 0.01  # relative: less is that of a scan over hardly anything
MOST_MAXIMUM_VARIATION = 0.2  # in units of that of the sum
MOMENTS = 5  # number of patterns; sums of their sums and maxima, and of the squares of both
_DARK = 1e-3  # fraction of the beam: patterns that were not recorded


def add_moments(moments: Array, strip: Array) -> None:
    """Adds patterns to the moments of a scan.

    Args:
        moments: `(MOMENTS,)`.
        strip: `(..., pixels)`, fractions of the beam; NaN where one is lost.
    """
    sums = strip.sum(axis=-1, dtype=np.float64)
    maxima = strip.max(axis=-1).astype(np.float64)
    recorded = sums > _DARK
    of_sums = sums[recorded]
    of_maxima = maxima[recorded]
    moments += (
        len(of_sums),
        of_sums.sum(),
        (of_sums**2).sum(),
        of_maxima.sum(),
        (of_maxima**2).sum(),
    )


class IntensityFacts(TypedDict):
    """Relative variations along a scan, as a result's file holds them."""

    sum_variation: float  # of the sum of a pattern
    maximum_variation: float  # of its largest pixel


def intensity_facts(moments: Array) -> IntensityFacts | None:
    """Returns the relative variations of sums and maxima; `None` if nothing was recorded."""
    count, sums, sum_squares, maxima, maximum_squares = moments.tolist()
    if not count:
        return None
    return {
        "sum_variation": _variation(count, sums, sum_squares),
        "maximum_variation": _variation(count, maxima, maximum_squares),
    }


def _variation(count: float, total: float, squares: float) -> float:
    """Returns the standard deviation over the mean."""
    mean = total / count
    variance = max(squares / count - mean**2, 0.0)
    return float(np.sqrt(variance) / max(mean, 1e-30))


def is_scaled_each(facts: IntensityFacts | None) -> bool:
    """Returns whether each pattern was scaled by itself, by the facts of `intensity_facts`."""
    if facts is None:
        return False
    of_sum = facts["sum_variation"]
    if of_sum < LEAST_SUM_VARIATION:
        return False
    return facts["maximum_variation"] < MOST_MAXIMUM_VARIATION * of_sum


def scaled_line(facts: IntensityFacts | None) -> str:
    """Returns the line about patterns that were each scaled by themselves; empty if none was."""
    if not is_scaled_each(facts):
        return ""
    assert facts is not None
    return (
        f"intensities: the largest pixel of the patterns varies by "
        f"{100 * facts['maximum_variation']:.2g} % along the scan and their sum by "
        f"{100 * facts['sum_variation']:.2g} %, as of patterns that were each divided by their "
        "maximum. Do not rely on the density: give patterns in one unit"
    )
