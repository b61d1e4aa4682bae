"""Bonding in a crystal: its electron density less that of its independent atoms, and the
potential of this difference.

The change is smooth, for cores do not take part in bonds. The slices of a specimen add it to their
independent atoms, which keep their exact positions and the form factors beyond the band limit of
the density. By Mott–Bethe it has the potential V(q) = −C Δρ(q)/(2π²a₀q²), with C =
`POTENTIAL_CONSTANT`. Its mean is 0, as a wave does not see it. It stays where it is when atoms move
thermally.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Floats
from namsa.physics.form_factors import BOHR_RADIUS
from namsa.physics.grid import Grid
from namsa.physics.potential import POTENTIAL_CONSTANT

Complexes = npt.NDArray[np.complex128]


@dataclass(frozen=True)
class Bonding:
    """The change of the electron density in a cell that a specimen repeats."""

    # ∫Δρ exp(−2πi q·r) over the cell, e, (mz, my, mx); odd numbers of orders, in the order of the
    # FFT.
    coefficients: Complexes
    cell_angstrom: tuple[float, float, float]  # sides (a, b, c) of the cell, Å
    repeats: tuple[int, int, int]  # cells along x, y, z in the specimen
    description: Mapping[str, object]  # what the provenance says of it

    def density(self, grid: Grid, start_angstrom: float, stop_angstrom: float) -> Floats:
        """Returns the change of the density projected between two heights, (ny, nx), e/Å²."""
        return self._project(grid, start_angstrom, stop_angstrom, potential=False)

    def potential(self, grid: Grid, start_angstrom: float, stop_angstrom: float) -> Floats:
        """Returns the change of the potential projected between two heights, (ny, nx), V·Å."""
        return self._project(grid, start_angstrom, stop_angstrom, potential=True)

    def period_of(self, start_angstrom: float, stop_angstrom: float) -> tuple[float, float]:
        """Returns what slices have in common whose changes are equal: height within the cell, and
        thickness, Å.
        """
        c = self.cell_angstrom[2]
        height = round(start_angstrom % c, 6)
        if height >= round(c, 6):
            height = 0.0
        return height, round(stop_angstrom - start_angstrom, 6)

    def _project(self, grid: Grid, start: float, stop: float, *, potential: bool) -> Floats:
        """Returns the density or the potential between two heights, as far as the grid resolves
        it.
        """
        orders = [np.fft.fftfreq(m, 1 / m).astype(int) for m in self.coefficients.shape]
        rows = orders[1] * self.repeats[1]
        columns = orders[2] * self.repeats[0]
        in_y = 2 * abs(rows) < grid.shape[0]
        in_x = 2 * abs(columns) < grid.shape[1]
        coefficients = self.coefficients[:, in_y][:, :, in_x]
        a, b, c = self.cell_angstrom
        qz = orders[0] / c
        qy = orders[1][in_y] / b
        qx = orders[2][in_x] / a
        if potential:
            squared = qz[:, None, None] ** 2 + qy[:, None] ** 2 + qx**2
            squared[0, 0, 0] = np.inf
            coefficients *= -POTENTIAL_CONSTANT / (2 * np.pi**2 * BOHR_RADIUS * squared)
        # The integral of exp(2πi qz z), about the middle, where it has no difference of close
        # numbers.
        thickness = stop - start
        along = thickness * np.sinc(qz * thickness) * np.exp(1j * np.pi * qz * (start + stop))
        spectrum = np.zeros(grid.shape, np.complex128)
        spectrum[np.ix_(rows[in_y], columns[in_x])] = np.tensordot(along, coefficients, axes=1) / (
            a * b * c
        )
        field: Floats = np.fft.ifft2(spectrum).real * spectrum.size
        return field
