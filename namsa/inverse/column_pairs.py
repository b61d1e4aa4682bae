"""Pairs of columns that are one maximum of a density.

The image is fitted by an atom at each maximum and derivatives of its density: the first by places,
the second by spreads along the axes. Two columns at a distance d are spread by d²/4 along their
axis.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Floats

LARGEST_PAIR_ANGSTROM = 1.0  # beyond it two columns are two maxima
_FAINT = 0.3  # of the median of the maxima's electrons: fainter ones are no pairs
# of the columns after a pair was found, Å
_MOVES = 3
_LARGEST_MOVE = 0.1
_REGULARISATION = 1e-6  # of the mean square: columns beyond the edge are hardly seen
_LEAST_AMPLITUDE = 1e-3  # of the largest, in what derivatives are relative to


class AtomShape(NamedTuple):
    """The density of an atom over the distance, with its derivatives."""

    distances: Floats  # `(n,)`, Å
    density: Floats
    slope: Floats  # first derivative
    bend: Floats  # second derivative

    @classmethod
    def of(cls, distances: Floats, density: Floats) -> "AtomShape":
        """Returns the shape of a density."""
        slope = np.gradient(density, distances)
        return cls(distances, density, slope, np.gradient(slope, distances))


class AtomTerms(NamedTuple):
    """Atoms at some maxima as seen from some places, each `(places, maxima)`."""

    density: Floats
    slope: Floats  # derivative along the distance
    bend: Floats  # second derivative along the distance
    across: Floats  # second derivative across the distance
    y: Floats  # direction from the maximum, y
    x: Floats  # direction from the maximum, x


class Spread(NamedTuple):
    """Amplitudes and spreads of the atoms at some maxima."""

    amplitudes: Floats  # `(n,)`
    matrices: Floats  # mean squares along the axes, `(n, 2, 2)` as (y, x), Å²


def split_pairs(
    image: Floats,  # `(ny, nx)`
    places: Floats,  # (y, x) of its pixels, `(2, ny·nx)`, Å
    maxima: Floats,  # `(n, 2)` as (y, x), Å
    atom: AtomShape,
    least_angstrom: float,  # distance of a pair
) -> Floats:
    """Returns maxima with a pair in place of each that is longer than wide.

    If there is a pair, all are moved to where they fit best.
    """
    spread = _fit_spread(image, places, maxima, atom)
    lengths, axes = np.linalg.eigh(spread.matrices)
    distance = 2 * np.sqrt(np.maximum(lengths[:, 1] - lengths[:, 0], 0))
    strong = spread.amplitudes > _FAINT * np.median(spread.amplitudes)
    long = (distance > least_angstrom) & (distance < LARGEST_PAIR_ANGSTROM)
    is_pair = _far_from_edges(maxima, places) & strong & long
    if not is_pair.any():
        return maxima
    half = axes[is_pair, :, 1] * distance[is_pair, None] / 2
    yx = np.concatenate([maxima[~is_pair], maxima[is_pair] - half, maxima[is_pair] + half])
    for _ in range(_MOVES):
        yx = _moved(image, places, yx, atom)
    return yx


def _far_from_edges(maxima: Floats, places: Floats) -> npt.NDArray[np.bool_]:
    """Returns which maxima are so far from the image's edges that their spread is known, `(n,)`."""
    low = places.min(axis=1) + LARGEST_PAIR_ANGSTROM
    high = places.max(axis=1) - LARGEST_PAIR_ANGSTROM
    return np.asarray(((maxima > low) & (maxima < high)).all(axis=1))


def _fit_spread(image: Floats, places: Floats, maxima: Floats, atom: AtomShape) -> Spread:
    """Fits amplitude, place and spread of an atom at each maximum."""
    terms = _terms(places, maxima, atom)
    coefficients = _fit(
        image,
        [
            terms.density,
            terms.slope * terms.y,
            terms.slope * terms.x,
            terms.bend * terms.y**2 + terms.across * terms.x**2,
            terms.bend * terms.x**2 + terms.across * terms.y**2,
            2 * (terms.bend - terms.across) * terms.x * terms.y,
        ],
    )
    amplitudes, _, _, along_y, along_x, mixed = coefficients
    matrices = np.empty((len(maxima), 2, 2))
    matrices[:, 0, 0] = 2 * along_y
    matrices[:, 1, 1] = 2 * along_x
    matrices[:, 0, 1] = 2 * mixed
    matrices[:, 1, 0] = 2 * mixed
    return Spread(amplitudes, matrices)


def _moved(image: Floats, places: Floats, yx: Floats, atom: AtomShape) -> Floats:
    """Returns positions of columns that are moved to where they fit the image better."""
    terms = _terms(places, yx, atom)
    coefficients = _fit(image, [terms.density, terms.slope * terms.y, terms.slope * terms.x])
    return yx - np.clip(coefficients[1:].T, -_LARGEST_MOVE, _LARGEST_MOVE)


def _terms(places: Floats, yx: Floats, atom: AtomShape) -> AtomTerms:
    """Returns atoms and their derivatives at some places."""
    away = places[:, :, None] - yx.T[:, None, :]
    distance = np.maximum(np.hypot(*away), 1e-6)
    y, x = away / distance
    density = np.interp(distance, atom.distances, atom.density, right=0.0)
    slope = np.interp(distance, atom.distances, atom.slope, right=0.0)
    bend = np.interp(distance, atom.distances, atom.bend, right=0.0)
    return AtomTerms(density, slope, bend, slope / distance, y, x)


def _fit(image: Floats, terms: list[Floats]) -> Floats:
    """Fits an image by terms of each column.

    Returns:
        `(terms, columns)`: amplitudes, then the coefficients of the other terms relative to them.
    """
    matrix = np.concatenate(terms, axis=1)
    normal = matrix.T @ matrix
    normal += _REGULARISATION * np.trace(normal) / len(normal) * np.eye(len(normal))
    solution = np.linalg.solve(normal, matrix.T @ image.ravel()).reshape(len(terms), -1)
    amplitudes = solution[0]
    solution[1:] /= np.maximum(amplitudes, _LEAST_AMPLITUDE * amplitudes.max())
    return np.asarray(solution)
