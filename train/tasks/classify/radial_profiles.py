"""The trivial baseline of a classifier: the class whose mean radial profile is nearest.

A radial profile is the mean of a pattern, as the network sees it, over rings of one pixel about the optic axis. It has
no free parameter, and knows neither angles within a ring nor more than one mean of each class.
"""

import numpy as np
import numpy.typing as npt

from namsa.arrays import Floats

from ...experiment.conditions import Conditions


def ring_averages(conditions: Conditions) -> Floats:
    """Returns the weights `(pixels, rings)` that average a pattern over rings. Pixels in the corners are left out."""
    y, x = (
        (np.arange(size) + 0.5 + first) * pixel
        for size, first, pixel in zip(
            conditions.detector_shape, conditions.first_edge, conditions.pixel_mrad, strict=True
        )
    )
    width = max(conditions.pixel_mrad)
    ring = np.floor(np.hypot(*np.meshgrid(y, x, indexing="ij")).ravel() / width).astype(int)
    rings = max(1, int(conditions.reach_mrad / width))
    inside = (ring[:, None] == np.arange(rings)).astype(np.float64)
    sizes = inside.sum(axis=0)
    return np.asarray(inside[:, sizes > 0] / sizes[sizes > 0])


def centroids(statistic: Floats) -> Floats:
    """Returns the mean profile `(classes, rings)` of each class; infinite for a class without patterns.

    Args:
        statistic: `(classes, 1 + rings)`, the mean over samples of the sum of [1, profile] over each class's
            patterns.
    """
    patterns = statistic[:, :1]
    return np.where(patterns > 0, statistic[:, 1:] / np.where(patterns > 0, patterns, 1), np.inf)


def nearest(profiles: Floats, means: Floats) -> npt.NDArray[np.int64]:
    """Returns the class of each profile whose mean is nearest, `(n,)`.

    Args:
        profiles: `(n, rings)`.
        means: `(classes, rings)`.
    """
    return np.asarray(np.argmin(((profiles[:, None] - means) ** 2).sum(axis=-1), axis=1))
