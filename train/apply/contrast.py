"""Whether a density shows more than its own stated error.

The variance of a reconstructed density over the scan is that of the specimen and that of the error together. Where the
mean square of the stated uncertainty is half of it or more, at most half of what the density shows is the specimen.
"""

import numpy as np

from namsa.arrays import Array

UNRESOLVED = 0.5**0.5  # rms uncertainty in standard deviations of the density


def error_over_contrast(density: Array, uncertainty: Array) -> float | None:
    """Returns the rms uncertainty over the standard deviation of the density; `None` for a density without contrast.

    Args:
        density: `(ny, nx)`, e/Å²; NaN where nothing is known yet.
        uncertainty: One standard deviation of its error, `(ny, nx)`, e/Å²; NaN in the same places.
    """
    known = np.isfinite(density) & np.isfinite(uncertainty)
    contrast = float(density[known].std(dtype=np.float64)) if known.any() else 0.0
    if not contrast:
        return None
    return float(np.sqrt(np.mean(uncertainty[known].astype(np.float64) ** 2))) / contrast


def is_unresolved(ratio: float) -> bool:
    """Returns whether at most half of what a density shows is the specimen, by `error_over_contrast`."""
    return ratio >= UNRESOLVED


def contrast_line(ratio: float) -> str:
    """Returns the line about an error that is as large as the contrast; empty if it is not.

    Args:
        ratio: From `error_over_contrast`.
    """
    if not is_unresolved(ratio):
        return ""
    return (
        f"the stated error is {ratio:.2f} of the density's contrast (rms; {UNRESOLVED:.2f} is the limit): at most half "
        "of what the density shows is the specimen. Do not rely on its structure; check focus, aberrations and "
        "calibration"
    )
