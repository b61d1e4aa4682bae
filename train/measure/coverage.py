"""Share of errors that are within a multiple of their stated deviation."""

import numpy as np
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.base.arrays import Array
from namsa.base.errors import WorkError

ONE_SIGMA = 0.6827
TWO_SIGMA = 0.9545


class Coverage(TypedDict):
    """Fractions of errors within one and two standard deviations."""

    coverage_68: float
    coverage_95: float


def covering_factor(error: Array, deviation: Array, share: float = ONE_SIGMA) -> float:
    """Returns the factor of the deviation within which at least a part of the errors lies, also
    after rounding.

    Errors are absolute, `(n,)`, as standard deviations.

    Raises:
        WorkError: If no factor suffices, because too many pixels have no deviation.
    """
    ratio = np.divide(error, deviation, out=np.full(len(error), np.inf), where=deviation > 0)
    factor = float(np.quantile(ratio, share, method="higher"))
    if not np.isfinite(factor):
        raise WorkError(
            f"the network's answers do not differ in {1 - share:.0%} of the pixels: their spread "
            "says nothing"
        )
    # rounding leaves out the error that the factor is made from
    if np.mean(error <= factor * deviation) < share:
        real = np.result_type(error, deviation).type
        factor = float(np.nextafter(real(factor), real(np.inf)))
    return factor


def coverage(error: Array, uncertainty: Array, two_sigma_factor: float = 2.0) -> Coverage:
    """Returns the fractions of absolute errors, `(n,)`, within one standard deviation and within a
    multiple for two.

    They are 0.683 and 0.954 for a Gaussian.
    """
    within_one, within_two = (
        float(np.mean(error <= k * uncertainty)) for k in (1, two_sigma_factor)
    )
    return {"coverage_68": within_one, "coverage_95": within_two}
