"""Metrics of atomic columns in an image: their positions, whether they are visible, and their
relative strength.

Columns that are closer than an image resolves merge, and the position of the maximum of a pair is a
matter of definition. Therefore only columns that are isolated by `MIN_SEPARATION_ANGSTROM` or more
are looked for.

- column_error_angstrom: median distance of the maximum of a found column from the column.
- columns_found: fraction of the columns with a maximum within `RADIUS_ANGSTROM`.
- columns_spurious: fraction of the maxima with no column, isolated or not, within
  `RADIUS_ANGSTROM`.
- column_rank: Spearman's correlation of the peak heights of found columns with their electrons
  along the beam, divided by the correlation of heights in the right order: heights of equal columns
  are never equal to the last bit.

Amorphous specimens, and crystals under an amorphous layer, have no isolated columns and are not
scored: even the true density of such a specimen would have next to none of its "columns" found.

All are finite, or None if there is nothing to measure or to rank.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import ase
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree
from scipy.stats import rankdata, spearmanr

from namsa.base.arrays import Array, Booleans, Floats, Integers
from namsa.base.pixels import PixelGrid
from namsa.inverse.maxima import RADIUS_ANGSTROM, local_maxima

from .metrics import Metrics, mean_metrics
from .rows import Row

NAMES = ("column_error_angstrom", "columns_found", "columns_spurious", "column_rank")
# from a column to the next, at least twice the radius: a maximum has one column
MIN_SEPARATION_ANGSTROM = 0.8
SAME_COLUMN_ANGSTROM = 0.1  # atoms that are closer, in projection, are of one column


@dataclass(frozen=True)
class AtomicColumns:
    """Atomic columns of a specimen."""

    positions: Floats  # `(n, 2)`, (y, x), Å
    electrons: Floats  # `(n,)`, number of electrons along the beam
    isolated: Booleans  # `(n,)`, whether no other column is within `MIN_SEPARATION_ANGSTROM`


def specimen_columns(atoms: ase.Atoms, pixels: PixelGrid, shape: Sequence[int]) -> AtomicColumns:
    """Returns the columns of a periodic specimen in an image, and those up to
    `MIN_SEPARATION_ANGSTROM` outside.

    A column is at the centroid of its electrons. Occupancies count.

    Args:
        atoms: With an orthogonal cell, the beam along +z.
        pixels: Positions of the image's pixels.
    """
    lx, ly, _ = atoms.cell.lengths()
    extent = np.array([ly, lx])
    weights = atoms.numbers * atoms.arrays.get("occupancy", np.ones(len(atoms)))
    # Most atoms are exactly above each other: reduce them to one point before points are compared.
    rounded = np.round(atoms.positions[:, 1::-1] % extent, 3) % extent
    points, point = np.unique(rounded, axis=0, return_inverse=True)
    electrons = np.bincount(point.ravel(), weights)

    pairs = KDTree(points, boxsize=extent).query_pairs(SAME_COLUMN_ANGSTROM, output_type="ndarray")
    links = coo_array((np.ones(len(pairs)), pairs.T), shape=(len(points), len(points)))
    count, column = connected_components(links, directed=False)
    first_atom = points[np.unique(column, return_index=True)[1]]
    offset = points - first_atom[column]
    offset -= extent * np.round(offset / extent)
    total = np.bincount(column, electrons)
    centroid = first_atom + np.stack(
        [np.bincount(column, electrons * along) / total for along in offset.T], axis=1
    )

    y, x = pixels.coordinates(shape)
    low = np.array([y[0], x[0]]) - MIN_SEPARATION_ANGSTROM
    high = np.array([y[-1], x[-1]]) + MIN_SEPARATION_ANGSTROM
    shifts = [
        extent[i] * np.arange(np.floor(low[i] / extent[i]) - 1, np.ceil(high[i] / extent[i]) + 1)
        for i in (0, 1)
    ]
    lattice = np.stack(np.meshgrid(*shifts, indexing="ij"), axis=-1).reshape(-1, 1, 2)
    everywhere = (centroid + lattice).reshape(-1, 2)
    inside = np.all((everywhere >= low) & (everywhere <= high), axis=1)
    nearest = np.asarray(KDTree(everywhere).query(everywhere, k=2)[0])[:, 1]
    electrons_everywhere = np.tile(total, len(everywhere) // count)
    return AtomicColumns(
        everywhere[inside], electrons_everywhere[inside], nearest[inside] >= MIN_SEPARATION_ANGSTROM
    )


def column_metrics(image: Array, pixels: PixelGrid, truth: AtomicColumns) -> Metrics:
    """Computes the metrics `NAMES` of an image, `(h, w)`, without a border of `RADIUS_ANGSTROM`."""
    y, x = pixels.coordinates(image.shape)
    low = np.array([y[0], x[0]]) + RADIUS_ANGSTROM
    high = np.array([y[-1], x[-1]]) - RADIUS_ANGSTROM

    def inside(positions: Floats) -> Booleans:
        return np.all((positions >= low) & (positions <= high), axis=1)

    peaks, heights = local_maxima(image, pixels)
    expected = inside(truth.positions) & truth.isolated
    numbers: Metrics = dict.fromkeys(NAMES)
    if (counted := inside(peaks)).any():
        distance = _nearest(peaks[counted], truth.positions)[0]
        numbers["columns_spurious"] = float(np.mean(distance > RADIUS_ANGSTROM))
    if not expected.any():
        return numbers
    distance, nearest_peak = _nearest(truth.positions[expected], peaks)
    near = distance <= RADIUS_ANGSTROM
    numbers["columns_found"] = float(near.mean())
    if near.any():
        numbers["column_error_angstrom"] = float(np.median(distance[near]))
        electrons = np.round(truth.electrons[expected][near], 3)
        found_heights = heights[nearest_peak[near]]
        if np.ptp(electrons) > 0 and np.ptp(found_heights) > 0:
            reached = spearmanr(electrons, found_heights).statistic
            best = spearmanr(electrons, rankdata(electrons, method="ordinal")).statistic
            numbers["column_rank"] = float(np.clip(reached / best, -1, 1))
    return numbers


def mean_column_metrics(samples: Iterable[Row]) -> Metrics:
    """Returns the mean of each metric over the samples for which it is defined. Empty if no sample
    has any.
    """
    rows = [row for row in samples if NAMES[0] in row]
    return mean_metrics(rows, NAMES) if rows else {}


def _nearest(points: Floats, among: Floats) -> tuple[Floats, Integers]:
    """Returns each point's distance to the nearest of `among`, infinite if there is none, and the
    index of that.
    """
    if not len(among):
        return np.full(len(points), np.inf), np.zeros(len(points), np.int64)
    distance, index = KDTree(among).query(points)
    return np.asarray(distance), np.asarray(index)
