"""Columns of atoms as a density and as a potential, and the vector of all that refinement fits.

The potential is that of atoms, spread along the beam, which is never negative: unlike a potential of free pixels it has
a density, for the elements of each column are known.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from namsa.arrays import Array, Floats
from namsa.inverse.columns import atom_density, find_columns, share_out
from namsa.inverse.scan_model import NAMES, ScanModel
from namsa.physics.form_factors import Table, electron
from namsa.physics.potential import POTENTIAL_CONSTANT
from namsa.pixels import PixelGrid

# Priors: standard deviations. Of the columns, then of `NAMES` but for the thickness, in units of the same.
POSITION_ANGSTROM, LOG_ELECTRONS, LOG_AMOUNT = 0.05, 0.1, 0.3
DISPLACEMENT, DISPLACEMENT_ERROR = 0.07**2, 0.07**2  # mean square along one axis, Å²
ERRORS = np.array([20.0, 10.0, 10.0, 200.0, 200.0, np.nan, 3e-3, 3e-3, *[3e-3] * 4, 0.03])
SOURCE = 0.03  # variance that the fit begins with, Å²: 0.4 Å full width at half maximum
LARGEST_SCAN_CHANGE = 0.02
_RADII = np.linspace(0, 5, 500)  # Å


class ColumnDensity:
    """Columns of atoms that were found in a density, and the density that they have elsewhere."""

    def __init__(
        self,
        density: Floats,  # `(sy, sx)`, e/Å²
        pixels: PixelGrid,  # its places, Å from the first position of the scan
        composition: Mapping[int, float],  # number of atoms of each atomic number
        max_q: float,  # where the window of the density ends, 1/Å
        least_pair_angstrom: float,  # see `find_columns`
    ) -> None:
        found = find_columns(density, pixels, composition, max_q, least_pair_angstrom=least_pair_angstrom)
        self.max_q, (self.yx, self.electrons, self.left, self.pairs) = max_q, found
        self.numbers = sorted(composition, reverse=True)
        shares = share_out(self.electrons, composition) if len(self.electrons) else {}
        self.shares = np.array([shares.get(z, np.zeros(0)) for z in self.numbers]) / np.maximum(self.electrons, 1e-9)

    def density(self, positions: Floats, yx: Floats, electrons: Floats, displacements: Floats) -> Floats:
        """Returns the density of the columns at positions `(n, 2)`, `(n,)`, e/Å²."""
        distance = np.hypot(*(positions[:, None] - yx).transpose(2, 0, 1))
        total = np.zeros(len(positions))
        for z, share, squared in zip(self.numbers, self.shares, displacements, strict=True):
            of_atom = atom_density(_RADII, z, self.max_q, float(np.sqrt(squared)))
            total += np.interp(distance, _RADII, of_atom, right=0.0) @ (share * electrons)
        return total


class ColumnPotential:
    """The potential of columns on a model's grid, with its gradient."""

    def __init__(self, columns: ColumnDensity, model: ScanModel, start: Floats, form_factors: Table) -> None:
        """Takes the columns within the grid, whose first position is at `start`, Å from that of the scan."""
        grid = model.grid
        self.shift, self.q2 = model.first - start, grid.squared_frequency()
        factors = [electron(z, self.q2, form_factors) / z for z in columns.numbers]
        self.factors = POTENTIAL_CONSTANT * np.stack(factors) / np.prod(grid.sampling_angstrom)
        self.ky, self.kx = grid.frequencies()
        places = columns.yx + self.shift
        self.inside = ((places >= 0) & (places < grid.extent_angstrom)).all(axis=1)
        self.shares = columns.shares * self.inside

    def potential(self, yx: Floats, electrons: Floats, displacements: Floats) -> tuple[Floats, tuple[Any, ...]]:
        """Returns the projected potential, V·Å, and what `gradient` needs; mean square displacements by element, Å²."""
        y, x = (yx + self.shift).T
        rows, columns = np.exp(-2j * np.pi * self.ky * y), np.exp(-2j * np.pi * self.kx * x[:, None])
        structure = np.stack([rows @ ((share * electrons)[:, None] * columns) for share in self.shares])
        factors = self.factors * np.exp(-2 * np.pi**2 * displacements[:, None, None] * self.q2)
        potential = np.fft.ifft2((factors * structure).sum(axis=0)).real
        return potential, (rows, columns, structure, factors, electrons)

    def gradient(self, slope: Floats, kept: tuple[Any, ...]) -> tuple[Floats, Floats, Floats]:
        """Returns the gradients by places, electrons and displacements from that by the potential."""
        rows, columns, structure, factors, electrons = kept
        by_structure = np.fft.fft2(slope).conj() / slope.size * factors
        by_yx, by_electrons = np.zeros((len(electrons), 2)), np.zeros(len(electrons))
        for share, each in zip(self.shares, by_structure, strict=True):
            along, weight = each @ columns.T, share * electrons
            by_electrons += share * (rows * along).sum(axis=0).real
            by_yx[:, 0] += weight * 2 * np.pi * (self.ky * rows * along).sum(axis=0).imag
            by_yx[:, 1] += weight * 2 * np.pi * (rows * (each @ (self.kx * columns).T)).sum(axis=0).imag
        by_displacement = (-2 * np.pi**2 * self.q2 * (by_structure * structure).real).sum(axis=(1, 2))
        return by_yx, by_electrons, by_displacement


class State(NamedTuple):
    """Values of the unknowns."""

    yx: Floats
    electrons: Floats
    displacements: Floats
    microscope: Floats


class Unknowns:
    """The unknowns as a vector in units of their priors' standard deviations, about the priors' middles."""

    def __init__(self, columns: ColumnDensity, microscope: Floats, thickness_error: float) -> None:
        self.columns, self.microscope = columns, microscope
        self.errors = np.where(np.array(NAMES) == "thickness", microscope * thickness_error, ERRORS)
        self.count, self.elements = len(columns.electrons), len(columns.numbers)
        self.size = 3 * self.count + self.elements + len(NAMES) + 1
        low, high = np.full(self.size, -np.inf), np.full(self.size, np.inf)
        low[3 * self.count : 3 * self.count + self.elements] = -DISPLACEMENT / DISPLACEMENT_ERROR
        of_scan = slice(-1 - len(NAMES) + 8, -1 - len(NAMES) + 12)
        low[of_scan], high[of_scan] = -LARGEST_SCAN_CHANGE / ERRORS[8], LARGEST_SCAN_CHANGE / ERRORS[8]
        low[-2] = -SOURCE / ERRORS[12]
        self.low, self.high = low, high

    def state(self, x: Floats) -> State:
        """Returns the values of a vector."""
        n, e = self.count, self.elements
        yx = self.columns.yx + POSITION_ANGSTROM * x[: 2 * n].reshape(n, 2)
        electrons = self.columns.electrons * np.exp(LOG_ELECTRONS * x[2 * n : 3 * n] + LOG_AMOUNT * x[-1])
        displacements = np.maximum(DISPLACEMENT + DISPLACEMENT_ERROR * x[3 * n : 3 * n + e], 0)
        return State(yx, electrons, displacements, self.microscope + self.errors * x[3 * n + e : -1])

    def gradient(self, state: State, by_yx: Floats, by_electrons: Floats, by_u: Floats, by_m: Floats) -> Floats:
        """Returns the gradient by the vector from those by the values."""
        relative = state.electrons * by_electrons
        parts = (POSITION_ANGSTROM * by_yx.ravel(), LOG_ELECTRONS * relative, DISPLACEMENT_ERROR * by_u)
        return np.concatenate([*parts, self.errors * by_m, [LOG_AMOUNT * relative.sum()]])

    def directions(self) -> Floats:
        """Returns directions of the vector: all columns along y, along x, then each unknown that is no column's."""
        n = 3 * self.count
        found = np.zeros((self.size - n + 2, self.size))
        found[0, : 2 * self.count : 2] = found[1, 1 : 2 * self.count : 2] = 1
        found[2:, n:] = np.eye(self.size - n)
        return found

    def scales(self, curvature: Floats, inside: Array) -> "Scales":
        """Returns coordinates in which the objective's curvature is about one, from that along `directions`.

        `inside` says of each column whether it has a part in it.
        A column has its part of the curvature that all have, by the square of its electrons; and all together take half
        of a step, for the amount, the tilt and the coma move them, too.
        """
        squares = inside * self.columns.electrons**2
        electrons = squares / squares.sum()
        by_y, by_x, *others = np.diagonal(curvature)
        by_electrons = others[-1] * (LOG_ELECTRONS / LOG_AMOUNT) ** 2 * electrons
        of_columns = 4 * np.concatenate([np.outer(electrons, (by_y, by_x)).ravel(), by_electrons])
        free = np.isinf(self.low[3 * self.count :]) & np.isinf(self.high[3 * self.count :])
        mixed = np.flatnonzero(free)
        block = curvature[2:, 2:][np.ix_(mixed, mixed)] + np.eye(len(mixed))
        diagonal = 1 / np.sqrt(np.concatenate([of_columns, others]) + 1)
        return Scales(self, diagonal, 3 * self.count + mixed, np.linalg.inv(np.linalg.cholesky(block)).T)


class Scales(NamedTuple):
    """Coordinates of a fit: unknowns over their scales, those without bounds mixed."""

    unknowns: Unknowns
    diagonal: Floats
    mixed: Array  # indices of those that are
    mixing: Floats

    def times(self, factor: float) -> "Scales":
        """Returns coordinates that are smaller by a factor."""
        return self._replace(diagonal=factor * self.diagonal, mixing=factor * self.mixing)

    def to(self, u: Floats) -> Floats:
        """Returns the change of the unknowns' vector."""
        x = self.diagonal * u
        x[self.mixed] = self.mixing @ u[self.mixed]
        return x

    def back(self, slope: Floats) -> Floats:
        """Returns the gradient by the coordinates from that by the unknowns' vector."""
        by_u = self.diagonal * slope
        by_u[self.mixed] = self.mixing.T @ slope[self.mixed]
        return by_u

    def bounds(self, begin: Floats) -> list[tuple[float, float]]:
        """Returns the coordinates' bounds about a vector."""
        low, high = ((each - begin) / self.diagonal for each in (self.unknowns.low, self.unknowns.high))
        return list(zip(low, high, strict=True))
