"""Scores of embeddings, of samples and together: the contents of `evaluation.json` of the task
embed.

A composite scan has the patterns of samples of different materials of one split. The patterns are
divided by k-means of their latent numbers into as many clusters as there are materials. Clusters
and materials agree by their normalised mutual information (NMI), which is 0 for clusters that know
nothing of the materials and 1 for the materials themselves.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import xxhash
from scipy import special
from scipy.cluster.vq import kmeans, vq
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from namsa.base.arrays import Array, Floats

from ...measure.results import RunFacts
from ...measure.rows import Row
from ..splits import HeldOutPatterns, Split, by_split

Labels = npt.NDArray[np.int64]

STARTS = 20  # of k-means, of which the one with the least distortion counts
FITTED = 20_000  # largest number of points that centres are fitted to
MOST_COMPOSITES = 64  # of a split
ERRORS = ("rmse", "divergence", "baseline_rmse", "mean_rmse")


class EmbedRow(HeldOutPatterns):
    """The patterns of one sample. Errors are in units of the network's input."""

    rmse: float  # mean over the patterns of the root mean square error
    # Mean divergence of the latent distributions from the standard normal one, nat, without its
    # weight.
    divergence: float
    baseline_rmse: float  # `rmse` of as many principal components of the training patterns
    mean_rmse: float  # `rmse` of the mean training pattern


class Composite(TypedDict):
    """A composite scan."""

    split: str  # of its samples
    ids: list[str]  # of its samples, each of another material
    patterns: int  # number of patterns
    nmi: float  # agreement of the clusters of latent numbers with the materials
    baseline_nmi: float  # the same of principal components


class EmbedScores(TypedDict):
    """Scores of some samples: means over samples, and over composite scans. See `EmbedRow` and
    `Composite`.
    """

    samples: int
    patterns: int
    rmse: float
    divergence: float
    baseline_rmse: float
    mean_rmse: float
    composites: int
    nmi: float | None
    baseline_nmi: float | None


class EmbedEvaluation(TypedDict):
    """Contents of `evaluation.json`."""

    task: str  # "embed"
    latent: int  # number of latent numbers, and of principal components
    by_split: dict[Split, EmbedScores]  # scores of each split that has samples
    composites: list[Composite]  # the composite scans
    samples: list[EmbedRow]  # one row per sample, ordered by id
    run: RunFacts  # facts about the run


def choose_composites(rows: Sequence[EmbedRow], materials: int) -> list[list[str]]:
    """Returns the ids of the samples of each composite scan, split by split.

    The materials of a split are ordered by a hash, and divided into composites; then the second
    samples of all materials, and so on. A split of fewer materials has composites of all of them,
    if it has two.
    """
    return [
        ids
        for rows_of_split in by_split(rows).values()
        for ids in _of_split(rows_of_split, materials)
    ]


def _of_split(rows: Sequence[EmbedRow], materials: int) -> list[list[str]]:
    samples: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: xxhash.xxh3_128_digest(row["id"].encode())):
        samples.setdefault(row["material"], []).append(row["id"])
    composites = []
    for index in range(max(map(len, samples.values()), default=0)):
        ids = [of_material[index] for of_material in samples.values() if index < len(of_material)]
        size = min(materials, len(ids))
        if size >= 2:
            composites += [
                ids[start : start + size] for start in range(0, len(ids) - size + 1, size)
            ]
    return composites[:MOST_COMPOSITES]


def score_composites(
    rows: Sequence[EmbedRow],
    composites: Iterable[Sequence[str]],
    coordinates_of: Mapping[str, Mapping[str, Floats]],
) -> list[Composite]:
    """Compares clusters with materials.

    Of some patterns of a sample, by id, there are latent numbers as "network" and components as
    "baseline", `(n, latent)`.
    """
    split_of = {row["id"]: row["split"] for row in rows}
    scored = []
    for ids in composites:
        coordinates = [coordinates_of[sample_id] for sample_id in ids]
        scored.append(_scored(ids, split_of[ids[0]], coordinates))
    return scored


def _scored(
    ids: Sequence[str], split: str, coordinates: Sequence[Mapping[str, Floats]]
) -> Composite:
    materials = np.repeat(np.arange(len(ids)), [len(sample["network"]) for sample in coordinates])

    def agreement(name: str) -> float:
        _, clusters = cluster(np.concatenate([sample[name] for sample in coordinates]), len(ids))
        return normalised_mutual_information(clusters, materials)

    return {
        "split": split,
        "ids": list(ids),
        "patterns": len(materials),
        "nmi": agreement("network"),
        "baseline_nmi": agreement("baseline"),
    }


def summarise(
    rows: Sequence[EmbedRow], composites: Sequence[Composite], latent: int, run: RunFacts
) -> EmbedEvaluation:
    """Returns the scores by split."""
    scores: dict[Split, EmbedScores] = {}
    for split, samples in by_split(rows).items():
        scans = [composite for composite in composites if composite["split"] == split]
        counts = {"samples": len(samples), "patterns": sum(row["patterns"] for row in samples)}
        agreement = {"composites": len(scans), **means(scans, ("nmi", "baseline_nmi"))}
        scores[split] = cast(EmbedScores, counts | means(samples, ERRORS) | agreement)
    return {
        "task": "embed",
        "latent": latent,
        "by_split": scores,
        "composites": list(composites),
        "samples": list(rows),
        "run": run,
    }


def means(rows: Sequence[Row], names: Sequence[str]) -> dict[str, float | None]:
    """Returns the mean over the rows of each number; `None` without rows."""
    return {name: float(np.mean([row[name] for row in rows])) if rows else None for name in names}


def cluster(points: Array, count: int, seed: int = 0) -> tuple[npt.NDArray[np.float64], Labels]:
    """Divides points into clusters by k-means.

    Centres are fitted to at most `FITTED` points, which are drawn from the seed.

    Args:
        points: `(n, dimensions)`.
        count: Number of clusters. Points that coincide can make it smaller.
        seed: Of the first centres, which are points.

    Returns:
        The centres, `(clusters, dimensions)`, in the order of the numbers of their points, the
        largest first; and the cluster of each point, `(n,)`.
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
    """Returns how well two groupings of the same points, `(n,)` each, agree, whatever the names of
    the groups.

    It is the mutual information over the mean of the two entropies: 0 for independent groupings, 1
    for equal ones.
    """
    (_, one_group), (_, other_group) = (
        np.unique(np.asarray(groups), return_inverse=True) for groups in (one, other)
    )
    table = np.zeros((one_group.max() + 1, other_group.max() + 1))
    np.add.at(table, (one_group, other_group), 1 / len(one_group))
    entropies = [
        float(special.entr(counts).sum())
        for counts in (table, table.sum(axis=1), table.sum(axis=0))
    ]
    mean_entropy = (entropies[1] + entropies[2]) / 2
    if mean_entropy == 0:  # both have one group only
        return 1.0
    return float(np.clip((2 * mean_entropy - entropies[0]) / mean_entropy, 0, 1))
