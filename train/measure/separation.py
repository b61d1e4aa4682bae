"""How well a number tells two groups apart."""

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
from scipy import stats


def auroc(high: Sequence[float] | npt.NDArray[Any], low: Sequence[float] | npt.NDArray[Any]) -> float:
    """Returns the probability that one of `high` is larger than one of `low`; equal ones count half.

    Args:
        high: Numbers of the group that is expected to have larger ones, `(n,)`.
        low: Numbers of the other group, `(m,)`.
    """
    return float(stats.mannwhitneyu(high, low).statistic) / (len(high) * len(low))
