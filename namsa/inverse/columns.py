"""Columns of atoms in a band-limited density: where they are, how many electrons they hold, and of which elements.

A column is a maximum of the density, and of what the columns found before leave of it. A maximum that is longer than
wide may be two. Electrons are fitted by non-negative least squares with the density that an atom has in the band, so
that the tail of a strong column is not counted for its neighbours. Elements are shared out from the heaviest on: in
the order of their electrons, columns take what the formula holds, those that are alike in equal parts. It is exact
for SrTiO3 along [001], whose columns have 38, 30 and 8 electrons.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.ndimage import map_coordinates
from scipy.optimize import nnls
from scipy.spatial import KDTree
from scipy.special import j0
from skimage.feature import peak_local_max

from namsa.arrays import Floats
from namsa.physics import density_target
from namsa.physics.form_factors import xray
from namsa.pixels import PixelGrid

RADIUS_ANGSTROM = 0.4  # of a maximum: half of the least distance of two
MIN_HEIGHT = 0.05  # of maxima above the image's minimum, in units of the image's range
MAX_PIXEL_ANGSTROM = 0.1  # of the interpolated image in which maxima are looked for
REPEATS = 0.9  # correlation of an image with itself from which on a translation repeats it
LARGEST_PAIR_ANGSTROM = 1.0  # beyond it two columns are two maxima
_FAINT = 0.3  # of the median of the maxima's electrons: fainter ones are no pairs
_MOVES, _LARGEST_MOVE = 3, 0.1  # of the columns after a pair was found, Å
_ROUNDS = 3  # of looking for maxima of what is left
SAME_KIND = 1.08  # ratio of the electrons of two columns up to which they are alike
_PAD = 4  # pixels that the image is continued by
_OUTSIDE_ANGSTROM = 0.2  # of the image's edge, where maxima still are columns
_REACH_ANGSTROM = 5.0  # of the density of an atom in the band
_Q_POINTS, _R_POINTS = 400, 500


class Columns(NamedTuple):
    """Columns of atoms."""

    yx: Floats  # positions, `(n, 2)` as (y, x), Å
    electrons: Floats  # electrons along the beam, `(n,)`
    left: float  # rms of what the columns leave of the density, over the density's standard deviation
    pairs: int = 0  # maxima in whose place two columns are


def find_columns(
    density: npt.NDArray[Any],  # `(ny, nx)`, e/Å²
    pixels: PixelGrid,  # its pixels, Å
    composition: Mapping[int, float],  # number of atoms of each atomic number
    max_q: float,  # where the window of the density ends, 1/Å
    rms_displacement_angstrom: float = 0.0,  # thermal, along one axis
    least_pair_angstrom: float = np.inf,  # two columns take the place of a maximum that is as long as such a pair
) -> Columns:
    """Finds the columns of a density."""
    image = np.asarray(density, np.float64)
    span = float(np.ptp(image))
    y, x = (axis.ravel() for axis in np.meshgrid(*pixels.coordinates(image.shape), indexing="ij"))
    padded = PixelGrid(pixels.step, [o - _PAD * step for o, step in zip(pixels.origin, pixels.step, strict=True)])
    low, high = (np.array([axis[end] for axis in pixels.coordinates(image.shape)]) for end in (0, -1))
    r = np.linspace(0, _REACH_ANGSTROM, _R_POINTS)
    of_element = {number: atom_density(r, number, max_q, rms_displacement_angstrom) for number in composition}
    left, found, electrons, pairs = image, np.empty((0, 2)), np.empty(0), 0
    for _ in range(_ROUNDS):
        peaks, heights = local_maxima(np.pad(left, _PAD, "reflect"), padded)
        inside = np.all((peaks > low - _OUTSIDE_ANGSTROM) & (peaks < high + _OUTSIDE_ANGSTROM), axis=1)
        peaks = peaks[inside & (heights > MIN_HEIGHT * span)]
        if len(peaks) and not len(found) and np.isfinite(least_pair_angstrom):
            maxima, atom = len(peaks), (r, of_element[max(composition)])
            peaks = _split(image, (y, x), peaks, atom, least_pair_angstrom)
            pairs = len(peaks) - maxima
        if len(found) and len(peaks):
            peaks = peaks[KDTree(found).query(peaks)[0] > RADIUS_ANGSTROM]
        found = np.concatenate([found, peaks])
        if not len(found):
            break
        electrons = np.concatenate([electrons, np.full(len(peaks), electrons.min(initial=1.0))])
        distance = np.hypot(y[:, None] - found[:, 0], x[:, None] - found[:, 1])
        shares = share_out(electrons, composition)
        matrix = np.zeros_like(distance)
        for number, share in shares.items():
            matrix += np.interp(distance, r, of_element[number], right=0.0) * share / electrons
        electrons = nnls(matrix, image.ravel())[0]
        left = image - (matrix @ electrons).reshape(image.shape)
        found, electrons = found[electrons > 0], electrons[electrons > 0]
    return Columns(found, electrons, float(left.std() / image.std()) if span else 0.0, pairs)


def _split(
    image: Floats,
    places: tuple[Floats, Floats],  # of its pixels, (y, x), Å
    yx: Floats,  # `(n, 2)`, maxima
    atom: tuple[Floats, Floats],  # distances, and the density of an atom there
    least: float,  # distance of a pair, Å
) -> Floats:
    """Returns maxima with a pair in place of each that is longer than wide, and all moved to where they fit best.

    The image is fitted by an atom at each maximum, and the first and second derivatives of its density: by places, and
    by spreads along the axes. Two columns at a distance d are spread by d²/4 along their axis.
    """
    distances, density = atom
    slope = np.gradient(density, distances)
    radial = density, slope, np.gradient(slope, distances)
    for attempt in range(1 + _MOVES):
        away = np.stack([place[:, None] - each for place, each in zip(places, yx.T, strict=True)])
        distance = np.maximum(np.hypot(*away), 1e-6)
        values, first, second = (np.interp(distance, distances, each, right=0.0) for each in radial)
        (y, x), across = away / distance, first / distance
        terms = [values, first * y, first * x]
        if not attempt:
            terms += [second * y**2 + across * x**2, second * x**2 + across * y**2, 2 * (second - across) * x * y]
        matrix = np.concatenate(terms, axis=1)
        normal = matrix.T @ matrix
        normal += 1e-6 * np.trace(normal) / len(normal) * np.eye(len(normal))  # columns beyond the edge are hardly seen
        found = np.linalg.solve(normal, matrix.T @ image.ravel()).reshape(len(terms), -1)
        found[1:] /= np.maximum(found[0], 1e-3 * found[0].max())
        if attempt:
            yx = yx - np.clip(found[1:3].T, -_LARGEST_MOVE, _LARGEST_MOVE)
            continue
        spread = 2 * np.moveaxis(found[[[3, 5], [5, 4]]], -1, 0)  # in the mean square along each axis
        lengths, axes = np.linalg.eigh(spread)
        pair = 2 * np.sqrt(np.maximum(lengths[:, 1] - lengths[:, 0], 0))
        edges = np.array([[place.min(), place.max()] for place in places])  # near which the spread is not known
        inner = (abs(yx - edges.mean(axis=1)) < np.diff(edges).T / 2 - LARGEST_PAIR_ANGSTROM).all(axis=1)
        strong = found[0] > _FAINT * np.median(found[0])
        two = inner & strong & (pair > least) & (pair < LARGEST_PAIR_ANGSTROM)
        if not two.any():
            return yx
        half = axes[two, :, 1] * pair[two, None] / 2
        yx = np.concatenate([yx[~two], yx[two] - half, yx[two] + half])
    return yx


def average_over_lattice(image: Floats, pixels: PixelGrid) -> Floats:
    """Returns the mean of an image over the translations that repeat it; the image, if none does.

    Noise displaces columns of atoms, makes equal ones unequal and adds others: they scatter otherwise than a crystal's.

    Args:
        image: `(ny, nx)`.
        pixels: Its pixels, Å.
    """
    moved = [translated(image, pixels, vector) for vector in repeating_translations(image, pixels)]
    return np.asarray(np.nanmean([image, *moved], axis=0))


def repeating_translations(image: Floats, pixels: PixelGrid) -> Floats:
    """Returns the translations that repeat an image `(ny, nx)`, by at most half of it: `(n, 2)` as (y, x), Å."""
    shape = image.shape
    padded, half = (2 * shape[0], 2 * shape[1]), [n // 2 for n in shape]
    products, pairs = (
        np.fft.fftshift(np.fft.irfft2(np.abs(np.fft.rfft2(each, padded)) ** 2, padded))
        for each in (image - image.mean(), np.ones(shape))
    )
    view = tuple(slice(n - reach, n + reach + 1) for n, reach in zip(shape, half, strict=True))  # half of it in common
    correlation = products[view] / pairs[view] / image.var()
    around = PixelGrid(pixels.step, [-reach * step for reach, step in zip(half, pixels.step, strict=True)])
    vectors, heights = local_maxima(correlation, around)
    return np.asarray(vectors[(heights > REPEATS) & (np.hypot(*vectors.T) > RADIUS_ANGSTROM)])


def translated(image: Floats, pixels: PixelGrid, vector: Sequence[float]) -> Floats:
    """Returns what an image has at the distance `vector`, (y, x), Å, from each pixel; NaN beyond its edges."""
    at = np.indices(image.shape) + np.divide(vector, pixels.step)[:, None, None]
    inside = np.all((at >= 0) & (at <= np.reshape(image.shape, (2, 1, 1)) - 1), axis=0)
    return np.where(inside, map_coordinates(image, at, order=5, mode="mirror"), np.nan)


def atom_density(r: Floats, number: int, max_q: float, rms_displacement_angstrom: float = 0.0) -> Floats:
    """Returns the projected density of an atom in the band at distances `r` (Å), per electron, 1/Å²."""
    q = (np.arange(_Q_POINTS) + 0.5) * max_q / _Q_POINTS
    thermal = np.exp(-2 * (np.pi * rms_displacement_angstrom * q) ** 2)
    spectrum = xray(number, q**2) / number * thermal * density_target.window(q, max_q) * 2 * np.pi * q
    return np.asarray(j0(2 * np.pi * np.multiply.outer(r, q)) @ spectrum * (max_q / _Q_POINTS))


def share_out(electrons: Floats, composition: Mapping[int, float]) -> dict[int, Floats]:
    """Returns the electrons of each element in each column, `(n,)`, by atomic number.

    Args:
        electrons: Electrons of the columns, `(n,)`.
        composition: Number of atoms of each atomic number.
    """
    order = np.argsort(-electrons, kind="stable")
    edges = np.concatenate([[0.0], np.cumsum(electrons[order])]) / electrons.sum()
    alike = np.abs(np.subtract.outer(np.log(electrons), np.log(electrons))) < np.log(SAME_KIND)
    mean = alike * electrons / (alike @ electrons)[:, None]  # over the columns that are like one
    whole = sum(number * count for number, count in composition.items())
    shares, begin = {}, 0.0
    for number in sorted(composition, reverse=True):
        end = begin + number * composition[number] / whole
        part = np.clip(np.minimum(edges[1:], end) - np.maximum(edges[:-1], begin), 0, None) / np.diff(edges)
        own = np.empty_like(part)
        own[order] = part
        shares[number] = (mean @ own) * electrons
        begin = end
    return shares


def local_maxima(image: npt.NDArray[Any], pixels: PixelGrid) -> tuple[Floats, Floats]:
    """Finds the local maxima of an image; returns positions `(m, 2)`, (y, x), Å, and heights `(m,)`.

    They are found in an image that is interpolated by splines, and refined by the parabola through each maximum and
    its two neighbours along each axis.

    Args:
        image: `(h, w)`.
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
