"""Classes of probe positions: clusters of the projected potential around the probe.

Yoginath et al. (2019) bin the atomic potentials of their simulations into 27 clusters, and do not
say how. Here the surroundings of a position are the projected potential at it after blurring with
Gaussians of several widths, which do not change where a specimen is mirrored or turned. k-means,
from the start of Arthur & Vassilvitskii (2007), divides the surroundings of the training samples,
each width in units of its standard deviation. A class is the nearest mean.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import ndimage
from scipy.cluster.vq import ClusterError, kmeans2

from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.base.pixels import potential_grid, raster_shape
from namsa.dataset.entry import Entry
from namsa.dataset.records import Record

from ...input import selection
from ...input.views import Readable
from .section import Classify

WIDTHS_ANGSTROM = (0.25, 0.5, 1.0, 2.0)  # standard deviations of the Gaussians
# from which clusters are found
MOST_SAMPLES = 1000
MOST_POSITIONS = 20_000
ITERATIONS = 100
DIGITS = 4  # of what is kept, so that processors which round differently agree


class Clusters(NamedTuple):
    """Clusters of surroundings, in the order of the potential at the probe."""

    centres: Floats  # mean blurred potentials of each cluster, `(clusters, widths)`, V·Å
    # standard deviations of the blurred potentials over all positions, `(widths,)`, V·Å
    spreads: Floats

    @classmethod
    def of(cls, config: Classify) -> "Clusters":
        """Returns the clusters that a configuration holds. Raises InputError if they are of other
        widths.
        """
        if len(config.potential_spreads) != len(WIDTHS_ANGSTROM):
            raise InputError(
                f"training.classify.potential_spreads has {len(config.potential_spreads)} widths, "
                f"not the {len(WIDTHS_ANGSTROM)} of this version: train again"
            )
        return cls(np.array(config.potential_centres), np.array(config.potential_spreads))

    def nearest(self, record: Record) -> npt.NDArray[np.int64]:
        """Returns the cluster of each position of a sample, `(positions,)`, from 0."""
        return nearest(surroundings(record) / self.spreads, self.centres / self.spreads)

    def image(self, record: Record) -> npt.NDArray[np.float32]:
        """Returns the clusters in the shape of the scan, which has the density at the positions."""
        scan = raster_shape(record.header["provenance"], len(record.cbed))
        return self.nearest(record).reshape(scan).astype(np.float32)


def nearest(points: Floats, centres: Floats) -> npt.NDArray[np.int64]:
    """Returns which of the centres `(m, k)` is nearest to each of the points `(n, k)`, `(n,)`."""
    return np.asarray(np.argmin(((points[:, None] - centres) ** 2).sum(axis=-1), axis=1))


def surroundings(record: Record) -> Floats:
    """Returns the blurred potential at the positions of a sample of a periodic cell, `(positions,
    widths)`, V·Å.
    """
    step = np.array(potential_grid(record.header["provenance"]).step)
    pixels = (record.positions_angstrom / step).T
    transform = np.fft.fft2(record.projected_potential.astype(np.float64))
    blurred = (
        np.fft.ifft2(ndimage.fourier_gaussian(transform, width / step)).real
        for width in WIDTHS_ANGSTROM
    )
    return np.stack(
        [ndimage.map_coordinates(image, pixels, order=1, mode="grid-wrap") for image in blurred],
        axis=1,
    )


def find_clusters(
    dataset: Readable, entries: Sequence[Entry], clusters: int, seed: int
) -> Clusters:
    """Finds the clusters of the surroundings of samples, of some if they are many.

    Args:
        seed: Of the choice of positions and the start of k-means.

    Raises:
        InputError: If there are fewer different surroundings than clusters.
    """
    rng = np.random.default_rng(seed)
    vectors = []
    for entry in selection.limit(entries, MOST_SAMPLES):
        with dataset.view(entry.id) as record:
            vectors.append(surroundings(record))
    points = np.concatenate(vectors) if vectors else np.zeros((0, len(WIDTHS_ANGSTROM)))
    points = points[np.sort(rng.permutation(len(points))[:MOST_POSITIONS])]
    spreads = points.std(axis=0) if len(points) else np.zeros(len(WIDTHS_ANGSTROM))
    too_few = InputError(
        f"the training samples have {len(points)} positions, whose potentials do not form "
        f"{clusters} clusters: lower network.classes, or add samples"
    )
    if len(points) < clusters or not spreads.all():
        raise too_few
    try:
        means, _ = kmeans2(
            points / spreads, clusters, iter=ITERATIONS, minit="++", missing="raise", seed=rng
        )
    except ClusterError:
        raise too_few from None
    centres = means * spreads
    return Clusters(_rounded(centres[np.argsort(centres[:, 0])]), _rounded(spreads))


def settings(clusters: Clusters) -> dict[str, object]:
    """Returns what the section training.classify holds about clusters. Their names are numbers from
    1.
    """
    return {
        "classes": tuple(map(str, range(1, 1 + len(clusters.centres)))),
        "potential_centres": tuple(map(tuple, clusters.centres.tolist())),
        "potential_spreads": tuple(clusters.spreads.tolist()),
    }


def _rounded(values: Floats) -> Floats:
    return np.vectorize(lambda value: float(f"{value:.{DIGITS}g}"))(values)
