"""Metrics of atomic columns in an image: their positions, whether they are visible, and their relative strength.

Columns that are closer than an image resolves merge, and the position of the maximum of a pair is a matter of
definition. Therefore only columns that are isolated by `MIN_SEPARATION_ANGSTROM` or more are looked for.

- column_error_angstrom: median distance of the maximum of a found column from the column.
- columns_found: fraction of the columns with a maximum within `RADIUS_ANGSTROM`.
- columns_spurious: fraction of the maxima with no column, isolated or not, within `RADIUS_ANGSTROM`.
- column_rank: Spearman's correlation of the peak heights of found columns with their electrons along the beam, divided
  by the correlation of heights in the right order: heights of equal columns are never equal to the last bit.

Amorphous specimens, and crystals under an amorphous layer, have no isolated columns and are not scored: even the true
density of such a specimen would have next to none of its "columns" found.

All are finite, or None if there is nothing to measure or to rank.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ase
import numpy as np
import numpy.typing as npt
from scipy.ndimage import map_coordinates
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree
from scipy.stats import rankdata, spearmanr
from skimage.feature import peak_local_max

from namsa.arrays import Floats
from namsa.pixels import PixelGrid

Metrics = dict[str, float | None]

NAMES = ("column_error_angstrom", "columns_found", "columns_spurious", "column_rank")
RADIUS_ANGSTROM = 0.4  # from a column to its maximum
MIN_SEPARATION_ANGSTROM = 0.8  # from a column to the next, at least twice the radius: a maximum has one column
SAME_COLUMN_ANGSTROM = 0.1  # atoms that are closer, in projection, are of one column
MIN_HEIGHT = 0.05  # of maxima above the image's minimum, in units of the image's range
MAX_PIXEL_ANGSTROM = 0.1  # of the interpolated image in which maxima are looked for


@dataclass(frozen=True)
class AtomicColumns:
    """Atomic columns of a specimen."""

    positions: Floats  # `(n, 2)`, (y, x), Å
    electrons: Floats  # `(n,)`, number of electrons along the beam
    isolated: npt.NDArray[np.bool_]  # `(n,)`, whether no other column is within `MIN_SEPARATION_ANGSTROM`


def specimen_columns(atoms: ase.Atoms, pixels: PixelGrid, shape: Sequence[int]) -> AtomicColumns:
    """Returns the columns of a periodic specimen in an image, and those up to `MIN_SEPARATION_ANGSTROM` outside.

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
    first = points[np.unique(column, return_index=True)[1]]
    offset = points - first[column]
    offset -= extent * np.round(offset / extent)
    total = np.bincount(column, electrons)
    centroid = first + np.stack([np.bincount(column, electrons * along) / total for along in offset.T], axis=1)

    y, x = pixels.coordinates(shape)
    low, high = np.array([y[0], x[0]]) - MIN_SEPARATION_ANGSTROM, np.array([y[-1], x[-1]]) + MIN_SEPARATION_ANGSTROM
    shifts = [extent[i] * np.arange(np.floor(low[i] / extent[i]) - 1, np.ceil(high[i] / extent[i]) + 1) for i in (0, 1)]
    lattice = np.stack(np.meshgrid(*shifts, indexing="ij"), axis=-1).reshape(-1, 1, 2)
    everywhere = (centroid + lattice).reshape(-1, 2)
    inside = np.all((everywhere >= low) & (everywhere <= high), axis=1)
    nearest = np.asarray(KDTree(everywhere).query(everywhere, k=2)[0])[:, 1]
    electrons_everywhere = np.tile(total, len(everywhere) // count)
    return AtomicColumns(everywhere[inside], electrons_everywhere[inside], nearest[inside] >= MIN_SEPARATION_ANGSTROM)


def local_maxima(image: npt.NDArray[Any], pixels: PixelGrid) -> tuple[Floats, Floats]:
    """Finds the local maxima of an image; returns positions `(m, 2)`, (y, x), Å, and heights `(m,)`.

    They are found in an image that is interpolated by splines, and refined by the parabola through each maximum and
    its two neighbours along each axis.

    Args:
        image: `(h, w)`.
        pixels: Positions of its pixels.
    """
    if np.ptp(image) == 0 or min(image.shape) < 3:  # before a spline's rounding makes maxima of a constant
        return np.empty((0, 2)), np.empty(0)
    finer = [max(1, int(np.ceil(step / MAX_PIXEL_ANGSTROM))) for step in pixels.step]
    rows, cols = (np.arange((n - 1) * times + 1) / times for n, times in zip(image.shape, finer, strict=True))
    grid = np.meshgrid(rows, cols, indexing="ij")
    fine = map_coordinates(np.asarray(image, np.float64), grid, order=5, mode="mirror")
    threshold = fine.min() + MIN_HEIGHT * np.ptp(fine)
    fine_step = min(step / times for step, times in zip(pixels.step, finer, strict=True))
    distance = max(1, round(RADIUS_ANGSTROM / fine_step))
    peaks = peak_local_max(fine, min_distance=distance, threshold_abs=threshold, exclude_border=1)
    i, j = peaks.T
    heights, place = fine[i, j], peaks.astype(np.float64)
    for axis, (before, after) in enumerate(((fine[i - 1, j], fine[i + 1, j]), (fine[i, j - 1], fine[i, j + 1]))):
        curvature = before - 2 * heights + after
        place[:, axis] += np.where(curvature < 0, (before - after) / np.where(curvature < 0, 2 * curvature, 1), 0)
    return np.asarray(pixels.origin) + place / finer * np.asarray(pixels.step), heights


def column_metrics(image: npt.NDArray[Any], pixels: PixelGrid, truth: AtomicColumns) -> Metrics:
    """Computes the metrics of one image, without a border of `RADIUS_ANGSTROM`; returns the numbers of `NAMES`.

    Args:
        image: `(h, w)`.
        pixels: Positions of its pixels.
        truth: The columns of the specimen.
    """
    y, x = pixels.coordinates(image.shape)
    low = np.array([y[0], x[0]]) + RADIUS_ANGSTROM
    high = np.array([y[-1], x[-1]]) - RADIUS_ANGSTROM

    def inside(positions: Floats) -> npt.NDArray[np.bool_]:
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
        electrons, found_heights = np.round(truth.electrons[expected][near], 3), heights[nearest_peak[near]]
        if np.ptp(electrons) > 0 and np.ptp(found_heights) > 0:
            reached = spearmanr(electrons, found_heights).statistic
            best = spearmanr(electrons, rankdata(electrons, method="ordinal")).statistic
            numbers["column_rank"] = float(np.clip(reached / best, -1, 1))
    return numbers


def mean_column_metrics(samples: Iterable[Mapping[str, Any]]) -> Metrics:
    """Returns the mean of each metric over the samples for which it is defined. Empty if no sample has any."""
    rows = [row for row in samples if NAMES[0] in row]
    defined = {name: [v for row in rows if (v := row[name]) is not None] for name in NAMES if rows}
    return {name: float(np.mean(values)) if values else None for name, values in defined.items()}


def _nearest(points: Floats, among: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Returns each point's distance to the nearest of `among`, infinite if there is none, and the index of that."""
    if not len(among):
        return np.full(len(points), np.inf), np.zeros(len(points), np.int64)
    distance, index = KDTree(among).query(points)
    return np.asarray(distance), np.asarray(index)
