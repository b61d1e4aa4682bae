"""Columns of atoms as a density and as a projected potential.

The potential is that of atoms, spread along the beam, which is never negative: unlike a potential
of free pixels it has a density, for the elements of each column are known.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Array, Floats
from namsa.base.pixels import PixelGrid
from namsa.inverse.columns import atom_density, find_columns, share_out
from namsa.inverse.scan_geometry import ScanGeometry
from namsa.physics.form_factors import Table, electron
from namsa.physics.potential import POTENTIAL_CONSTANT

_RADII = np.linspace(0, 5, 500)  # Å
LEAST_ELECTRONS = 1e-9


class ColumnValues(NamedTuple):
    """Numbers of all columns, or gradients by them."""

    yx: Floats  # positions, `(n, 2)` as (y, x), Å
    electrons: Floats  # `(n,)`
    displacements: Floats  # mean square displacement of each element along one axis, Å²


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
        columns = find_columns(
            density, pixels, composition, max_q, least_pair_angstrom=least_pair_angstrom
        )
        self.max_q = max_q
        self.yx = columns.yx
        self.electrons = columns.electrons
        self.left = columns.left
        self.pairs = columns.pairs
        self.numbers = sorted(composition, reverse=True)
        self.shares = self._shares(composition)

    def _shares(self, composition: Mapping[int, float]) -> Floats:
        """Returns the fraction of each column's electrons that each element has, `(elements, n)`.

        Elements are in the order of `numbers`.
        """
        if not len(self.electrons):
            return np.zeros((len(self.numbers), 0))
        electrons_of = share_out(self.electrons, composition)
        by_element = np.array([electrons_of[atomic_number] for atomic_number in self.numbers])
        return by_element / np.maximum(self.electrons, LEAST_ELECTRONS)

    def density(self, positions: Floats, columns: ColumnValues) -> Floats:
        """Returns the density of columns at positions `(m, 2)`: `(m,)`, e/Å²."""
        distance = np.hypot(*(positions[:, None] - columns.yx).transpose(2, 0, 1))
        total = np.zeros(len(positions))
        for atomic_number, share, squared in zip(
            self.numbers, self.shares, columns.displacements, strict=True
        ):
            of_atom = atom_density(_RADII, atomic_number, self.max_q, float(np.sqrt(squared)))
            total += np.interp(distance, _RADII, of_atom, right=0.0) @ (share * columns.electrons)
        return total

    def squared_density(self, positions: Floats, columns: ColumnValues) -> Floats:
        """Returns the sum of the squares of each column's density at positions `(m, 2)`."""
        distance = np.hypot(*(positions[:, None] - columns.yx).transpose(2, 0, 1))
        profile = np.zeros_like(distance)
        for atomic_number, share, squared in zip(
            self.numbers, self.shares, columns.displacements, strict=True
        ):
            of_atom = atom_density(_RADII, atomic_number, self.max_q, float(np.sqrt(squared)))
            profile += np.interp(distance, _RADII, of_atom, right=0.0) * (share * columns.electrons)
        return np.asarray((profile**2).sum(axis=1))


class PotentialTerms(NamedTuple):
    """Factors of a potential, which its gradient needs."""

    phases_y: Array  # of each column along y, `(ny, n)`
    phases_x: Array  # of each column along x, `(n, nx)`
    structure: Array  # structure factor of each element, `(elements, ny, nx)`
    form_factors: Array  # with the thermal displacements, `(elements, ny, nx)`
    electrons: Floats  # of each column, `(n,)`


class ColumnPotential:
    """The potential of columns on a model's grid, with its gradient."""

    def __init__(
        self,
        columns: ColumnDensity,
        model: ScanGeometry,
        start: Floats,  # the model's first position, Å from that of the scan
        form_factors: Table,
    ) -> None:
        """Takes the columns within the grid."""
        grid = model.grid
        self.shift = model.first - start
        self.q2 = grid.squared_frequency()
        per_electron = [electron(z, self.q2, form_factors) / z for z in columns.numbers]
        pixel_area = np.prod(grid.sampling_angstrom)
        self.form_factors = POTENTIAL_CONSTANT * np.stack(per_electron) / pixel_area
        self.ky, self.kx = grid.frequencies()
        places = columns.yx + self.shift
        self.inside = ((places >= 0) & (places < grid.extent_angstrom)).all(axis=1)
        self.shares = columns.shares * self.inside

    def potential(self, columns: ColumnValues) -> tuple[Floats, PotentialTerms]:
        """Returns the projected potential, V·Å, and what `gradient` needs."""
        y, x = (columns.yx + self.shift).T
        phases_y = np.exp(-2j * np.pi * self.ky * y)
        phases_x = np.exp(-2j * np.pi * self.kx * x[:, None])
        structure = np.stack(
            [phases_y @ ((share * columns.electrons)[:, None] * phases_x) for share in self.shares]
        )
        damping = np.exp(-2 * np.pi**2 * columns.displacements[:, None, None] * self.q2)
        form_factors = self.form_factors * damping
        potential = np.fft.ifft2((form_factors * structure).sum(axis=0)).real
        terms = PotentialTerms(phases_y, phases_x, structure, form_factors, columns.electrons)
        return potential, terms

    def gradient(self, by_potential: Floats, terms: PotentialTerms) -> ColumnValues:
        """Returns the gradients by the columns' numbers from that by the potential."""
        by_structure = np.fft.fft2(by_potential).conj() / by_potential.size * terms.form_factors
        by_yx = np.zeros((len(terms.electrons), 2))
        by_electrons = np.zeros(len(terms.electrons))
        for share, of_element in zip(self.shares, by_structure, strict=True):
            along_x = of_element @ terms.phases_x.T
            slope_x = of_element @ (self.kx * terms.phases_x).T
            weight = share * terms.electrons
            by_electrons += share * (terms.phases_y * along_x).sum(axis=0).real
            sum_y = (self.ky * terms.phases_y * along_x).sum(axis=0).imag
            sum_x = (terms.phases_y * slope_x).sum(axis=0).imag
            by_yx[:, 0] += weight * 2 * np.pi * sum_y
            by_yx[:, 1] += weight * 2 * np.pi * sum_x
        by_damping = (by_structure * terms.structure).real
        by_displacements = (-2 * np.pi**2 * self.q2 * by_damping).sum(axis=(1, 2))
        return ColumnValues(by_yx, by_electrons, by_displacements)
