"""Columns of atoms in a band-limited density: their places, electrons and elements.

A column is a maximum of the density, and of what the columns found before leave of it. A maximum
that is longer than wide may be two (`namsa.inverse.column_pairs`). Electrons are fitted by
non-negative least squares with the density that an atom has in the band, so that the tail of a
strong column is not counted for its neighbours. Elements are shared out from the heaviest on: in
the order of their electrons, columns take what the formula holds, those that are alike in equal
parts. It is exact for SrTiO3 along [001], whose columns have 38, 30 and 8 electrons.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls
from scipy.spatial import KDTree
from scipy.special import j0

from namsa.base.arrays import Array, Floats
from namsa.base.pixels import PixelGrid
from namsa.inverse.column_pairs import AtomShape, split_pairs
from namsa.inverse.maxima import MIN_HEIGHT, RADIUS_ANGSTROM, local_maxima
from namsa.physics import density_target
from namsa.physics.form_factors import xray

_ROUNDS = 3  # of looking for maxima of what is left
SAME_KIND = 1.08  # ratio of the electrons of two columns up to which they are alike
_PAD = 4  # pixels that the image is continued by
_OUTSIDE_ANGSTROM = 0.2  # of the image's edge, where maxima still are columns
_REACH_ANGSTROM = 5.0  # of the density of an atom in the band
_Q_POINTS = 400
_R_POINTS = 500


class Columns(NamedTuple):
    """Columns of atoms."""

    yx: Floats  # positions, `(n, 2)` as (y, x), Å
    electrons: Floats  # electrons along the beam, `(n,)`
    # rms of what the columns leave of the density, over the density's standard deviation
    left: float
    pairs: int = 0  # maxima in whose place two columns are


def find_columns(
    density: Array,  # `(ny, nx)`, e/Å²
    pixels: PixelGrid,  # its pixels, Å
    composition: Mapping[int, float],  # number of atoms of each atomic number
    max_q: float,  # where the window of the density ends, 1/Å
    rms_displacement_angstrom: float = 0.0,  # thermal, along one axis
    # two columns take the place of a maximum that is as long as such a pair
    least_pair_angstrom: float = np.inf,
) -> Columns:
    """Finds the columns of a density."""
    image = np.asarray(density, np.float64)
    span = float(np.ptp(image))
    places = np.stack(np.meshgrid(*pixels.coordinates(image.shape), indexing="ij")).reshape(2, -1)
    atoms = AtomDensities(composition, max_q, rms_displacement_angstrom)
    left = image
    yx = np.empty((0, 2))
    electrons = np.empty(0)
    pairs = 0
    for _ in range(_ROUNDS):
        maxima = _maxima_inside(left, pixels, MIN_HEIGHT * span)
        if len(maxima) and not len(yx) and np.isfinite(least_pair_angstrom):
            split = split_pairs(image, places, maxima, atoms.heaviest, least_pair_angstrom)
            pairs = len(split) - len(maxima)
            maxima = split
        if len(yx) and len(maxima):
            maxima = maxima[KDTree(yx).query(maxima)[0] > RADIUS_ANGSTROM]
        yx = np.concatenate([yx, maxima])
        if not len(yx):
            break
        guess = np.full(len(maxima), electrons.min(initial=1.0))
        matrix = atoms.density_matrix(places, yx, np.concatenate([electrons, guess]))
        electrons = nnls(matrix, image.ravel())[0]
        left = image - (matrix @ electrons).reshape(image.shape)
        yx = yx[electrons > 0]
        electrons = electrons[electrons > 0]
    return Columns(yx, electrons, float(left.std() / image.std()) if span else 0.0, pairs)


def _maxima_inside(image: Floats, pixels: PixelGrid, least_height: float) -> Floats:
    """Returns the maxima of an image that are high enough and not far beyond its edges, `(n, 2)`.

    The image is mirrored at its edges, so that a maximum on an edge is found.
    """
    origin = np.array(pixels.origin)
    step = np.array(pixels.step)
    mirrored = np.pad(image, _PAD, "reflect")
    maxima, heights = local_maxima(mirrored, PixelGrid(pixels.step, origin - _PAD * step))
    y, x = pixels.coordinates(image.shape)
    low = np.array([y[0], x[0]]) - _OUTSIDE_ANGSTROM
    high = np.array([y[-1], x[-1]]) + _OUTSIDE_ANGSTROM
    inside = np.all((maxima > low) & (maxima < high), axis=1)
    return maxima[inside & (heights > least_height)]


class AtomDensities:
    """The densities of the atoms of a composition in the band, over the distance."""

    def __init__(
        self, composition: Mapping[int, float], max_q: float, rms_displacement_angstrom: float
    ) -> None:
        self.composition = composition
        self.distances = np.linspace(0, _REACH_ANGSTROM, _R_POINTS)
        self.of_element = {}
        for atomic_number in composition:
            self.of_element[atomic_number] = atom_density(
                self.distances, atomic_number, max_q, rms_displacement_angstrom
            )

    @property
    def heaviest(self) -> AtomShape:
        """The density of an atom of the heaviest element, per electron."""
        return AtomShape.of(self.distances, self.of_element[max(self.composition)])

    def density_matrix(self, places: Floats, yx: Floats, electrons: Floats) -> Floats:
        """Returns the density of each column per electron, `(places, columns)`, 1/Å².

        Args:
            places: (y, x) of each place, `(2, places)`, Å.
            yx: Positions of the columns, `(columns, 2)`, Å.
            electrons: Their electrons, from which their elements follow.
        """
        y, x = places
        distance = np.hypot(y[:, None] - yx[:, 0], x[:, None] - yx[:, 1])
        matrix = np.zeros_like(distance)
        for atomic_number, share in share_out(electrons, self.composition).items():
            of_atom = np.interp(distance, self.distances, self.of_element[atomic_number], right=0.0)
            matrix += of_atom * share / electrons
        return matrix


def atom_density(
    r: Floats, atomic_number: int, max_q: float, rms_displacement_angstrom: float = 0.0
) -> Floats:
    """Returns the projected density of an atom in the band at distances `r` (Å).

    Returns:
        Per electron, in the shape of `r`, 1/Å².
    """
    q = (np.arange(_Q_POINTS) + 0.5) * max_q / _Q_POINTS
    thermal = np.exp(-2 * (np.pi * rms_displacement_angstrom * q) ** 2)
    per_electron = xray(atomic_number, q**2) / atomic_number
    spectrum = per_electron * thermal * density_target.window(q, max_q) * 2 * np.pi * q
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
    mean_of_alike = alike * electrons / (alike @ electrons)[:, None]
    total = sum(atomic_number * count for atomic_number, count in composition.items())
    shares = {}
    begin = 0.0
    for atomic_number in sorted(composition, reverse=True):
        end = begin + atomic_number * composition[atomic_number] / total
        overlap = np.minimum(edges[1:], end) - np.maximum(edges[:-1], begin)
        fraction = np.empty_like(electrons)
        fraction[order] = np.clip(overlap, 0, None) / np.diff(edges)
        shares[atomic_number] = (mean_of_alike @ fraction) * electrons
        begin = end
    return shares
