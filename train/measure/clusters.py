"""Clusters of points, and how well two groupings of the same points agree."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.cluster.vq import kmeans, vq

Labels = npt.NDArray[np.int64]

STARTS = 20  # of k-means, of which the one with the least distortion counts
FITTED = 20_000  # largest number of points that centres are fitted to


def cluster(points: npt.NDArray[Any], count: int, seed: int = 0) -> tuple[npt.NDArray[np.float64], Labels]:
    """Divides points into clusters by k-means.

    Centres are fitted to at most `FITTED` points, which are drawn from the seed.

    Args:
        points: `(n, dimensions)`.
        count: Number of clusters. Points that coincide can make it smaller.
        seed: Of the first centres, which are points.

    Returns:
        The centres, `(clusters, dimensions)`, in the order of the numbers of their points, the largest first; and the
        cluster of each point, `(n,)`.
    """
    rng = np.random.default_rng(seed)
    exact = np.asarray(points, np.float64)
    fitted = exact if len(exact) <= FITTED else exact[rng.choice(len(exact), FITTED, replace=False)]
    centres, _ = kmeans(fitted, min(count, len(np.unique(fitted, axis=0))), iter=STARTS, rng=rng)
    labels, _ = vq(exact, centres)
    sizes = np.bincount(labels, minlength=len(centres))
    order = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)]
    rank = np.zeros(len(centres), np.int64)
    rank[order] = np.arange(len(order))
    return centres[order], rank[labels]


def normalised_mutual_information(one: npt.ArrayLike, other: npt.ArrayLike) -> float:
    """Returns how well two groupings of the same points agree, whatever the names of the groups.

    It is the mutual information over the mean of the two entropies: 0 for independent groupings, 1 for equal ones.

    Args:
        one: The group of each point, `(n,)`.
        other: The same of another grouping.
    """
    (_, first), (_, second) = (np.unique(np.asarray(groups), return_inverse=True) for groups in (one, other))
    table = np.zeros((first.max() + 1, second.max() + 1))
    np.add.at(table, (first, second), 1 / len(first))
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    mean_entropy = (_entropy(rows) + _entropy(columns)) / 2
    if mean_entropy == 0:  # both have one group only
        return 1.0
    return float(np.clip((2 * mean_entropy - _entropy(table)) / mean_entropy, 0, 1))


def _entropy(probabilities: npt.NDArray[np.float64]) -> float:
    """Returns the entropy in nat."""
    positive = probabilities[probabilities > 0]
    return -float(np.sum(positive * np.log(positive)))
