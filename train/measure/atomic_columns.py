"""Atomic columns in an image against those of the specimen: where they are, whether they are seen, and how strong.

Columns that are closer than an image resolves merge, and where the maximum of a pair ought to be is a matter of
definition. So only columns that stand apart by `APART_ANGSTROM` or more are looked for.

- column_error_angstrom: median distance of a found column's maximum from the column
- columns_found: the part of the columns with a maximum within `RADIUS_ANGSTROM`
- columns_spurious: the part of the maxima that have no column, of any kind, within `RADIUS_ANGSTROM`
- column_rank: Spearman's correlation of the found columns' peak heights with their electrons along the beam, as a part
  of what heights in the right order reach: of columns that are alike, no two heights are equal to the last bit

All finite or None: where there is nothing to measure, or to rank.
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

from namsa.pixels import PixelGrid

Floats = npt.NDArray[np.float64]
Metrics = dict[str, float | None]

NAMES = ("column_error_angstrom", "columns_found", "columns_spurious", "column_rank")
RADIUS_ANGSTROM = 0.4  # from a column to its maximum
APART_ANGSTROM = 0.8  # from a column to the next, no less than twice the radius: a maximum has one column
SAME_ANGSTROM = 0.1  # atoms no further apart, seen along the beam, are of one column
PROMINENCE = 0.05  # of the image's range: what maxima must rise above its minimum
FINE_ANGSTROM = 0.1  # maxima are looked for on pixels no larger


@dataclass(frozen=True)
class Columns:
    """positions: (n, 2), (y, x) in Å; electrons: (n,), along the beam; apart: (n,), whether it stands apart."""

    positions: Floats
    electrons: Floats
    apart: npt.NDArray[np.bool_]


def columns(atoms: ase.Atoms, frame: PixelGrid, shape: Sequence[int]) -> Columns:
    """The columns of a periodic specimen in an image of `shape`, and those up to `APART_ANGSTROM` outside.

    atoms: right-angled cell, the beam along +z; occupancies count. A column is at its electrons' centroid.
    """
    lx, ly, _ = atoms.cell.lengths()
    extent = np.array([ly, lx])
    weights = atoms.numbers * atoms.arrays.get("occupancy", np.ones(len(atoms)))
    # Most atoms lie straight above each other: one point for all those before any are compared.
    rounded = np.round(atoms.positions[:, 1::-1] % extent, 3) % extent
    points, point = np.unique(rounded, axis=0, return_inverse=True)
    electrons = np.bincount(point.ravel(), weights)

    pairs = KDTree(points, boxsize=extent).query_pairs(SAME_ANGSTROM, output_type="ndarray")
    links = coo_array((np.ones(len(pairs)), pairs.T), shape=(len(points), len(points)))
    count, column = connected_components(links, directed=False)
    first = points[np.unique(column, return_index=True)[1]]
    offset = points - first[column]
    offset -= extent * np.round(offset / extent)
    total = np.bincount(column, electrons)
    centroid = first + np.stack([np.bincount(column, electrons * along) / total for along in offset.T], axis=1)

    y, x = frame.coordinates(shape)
    low, high = np.array([y[0], x[0]]) - APART_ANGSTROM, np.array([y[-1], x[-1]]) + APART_ANGSTROM
    shifts = [extent[i] * np.arange(np.floor(low[i] / extent[i]) - 1, np.ceil(high[i] / extent[i]) + 1) for i in (0, 1)]
    lattice = np.stack(np.meshgrid(*shifts, indexing="ij"), axis=-1).reshape(-1, 1, 2)
    everywhere = (centroid + lattice).reshape(-1, 2)
    seen = np.all((everywhere >= low) & (everywhere <= high), axis=1)
    nearest = np.asarray(KDTree(everywhere).query(everywhere, k=2)[0])[:, 1]
    return Columns(everywhere[seen], np.tile(total, len(everywhere) // count)[seen], nearest[seen] >= APART_ANGSTROM)


def maxima(image: npt.NDArray[Any], frame: PixelGrid) -> tuple[Floats, Floats]:
    """Local maxima of `image` (H, W): positions (m, 2) as (y, x) in Å, and heights (m,).

    Found on a spline's finer pixels, and refined by the parabola through each and its two neighbours along each axis.
    """
    if np.ptp(image) == 0 or min(image.shape) < 3:  # before a spline's rounding makes maxima of a constant
        return np.empty((0, 2)), np.empty(0)
    finer = [max(1, int(np.ceil(step / FINE_ANGSTROM))) for step in frame.step]
    rows, cols = (np.arange((n - 1) * times + 1) / times for n, times in zip(image.shape, finer, strict=True))
    grid = np.meshgrid(rows, cols, indexing="ij")
    fine = map_coordinates(np.asarray(image, np.float64), grid, order=5, mode="mirror")
    least = fine.min() + PROMINENCE * np.ptp(fine)
    apart = max(1, round(RADIUS_ANGSTROM / min(step / times for step, times in zip(frame.step, finer, strict=True))))
    peaks = peak_local_max(fine, min_distance=apart, threshold_abs=least, exclude_border=1)
    i, j = peaks.T
    middle, place = fine[i, j], peaks.astype(np.float64)
    for axis, (before, after) in enumerate(((fine[i - 1, j], fine[i + 1, j]), (fine[i, j - 1], fine[i, j + 1]))):
        bend = before - 2 * middle + after
        place[:, axis] += np.where(bend < 0, (before - after) / np.where(bend < 0, 2 * bend, 1), 0)
    return np.asarray(frame.origin) + place / finer * np.asarray(frame.step), middle


def column_metrics(image: npt.NDArray[Any], frame: PixelGrid, truth: Columns) -> Metrics:
    """The numbers of `NAMES` for one image (H, W) whose pixels are at `frame`; a border of the radius is left out."""
    y, x = frame.coordinates(image.shape)
    low = np.array([y[0], x[0]]) + RADIUS_ANGSTROM
    high = np.array([y[-1], x[-1]]) - RADIUS_ANGSTROM

    def inside(positions: Floats) -> npt.NDArray[np.bool_]:
        return np.all((positions >= low) & (positions <= high), axis=1)

    found, heights = maxima(image, frame)
    wanted = inside(truth.positions) & truth.apart
    numbers: Metrics = dict.fromkeys(NAMES)
    if (judged := inside(found)).any():
        distance = _nearest(found[judged], truth.positions)[0]
        numbers["columns_spurious"] = float(np.mean(distance > RADIUS_ANGSTROM))
    if not wanted.any():
        return numbers
    distance, which = _nearest(truth.positions[wanted], found)
    near = distance <= RADIUS_ANGSTROM
    numbers["columns_found"] = float(near.mean())
    if near.any():
        numbers["column_error_angstrom"] = float(np.median(distance[near]))
        electrons, peaks = np.round(truth.electrons[wanted][near], 3), heights[which[near]]
        if np.ptp(electrons) > 0 and np.ptp(peaks) > 0:
            reached, best = spearmanr(electrons, peaks), spearmanr(electrons, rankdata(electrons, method="ordinal"))
            numbers["column_rank"] = float(np.clip(reached.statistic / best.statistic, -1, 1))
    return numbers


def mean_column_metrics(samples: Iterable[Mapping[str, Any]]) -> Metrics:
    """Each number's mean over the samples for which it is defined; nothing where no sample was measured so."""
    rows = [row for row in samples if NAMES[0] in row]
    defined = {name: [v for row in rows if (v := row[name]) is not None] for name in NAMES if rows}
    return {name: float(np.mean(values)) if values else None for name, values in defined.items()}


def _nearest(points: Floats, among: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Each point's distance to the nearest of `among`, infinite where there is none, and which that is."""
    if not len(among):
        return np.full(len(points), np.inf), np.zeros(len(points), np.int64)
    distance, which = KDTree(among).query(points)
    return np.asarray(distance), np.asarray(which)
