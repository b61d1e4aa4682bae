"""What bonds change in a crystal: its electron density less that of its independent atoms, and the potential of this.

The change is smooth, for cores do not take part in bonds. The slices of a specimen add it to their independent atoms,
which keep their exact positions and the form factors beyond the band limit of the density. By Mott–Bethe it has the
potential V(q) = −C Δρ(q)/(2π²a₀q²), with C = `POTENTIAL_CONSTANT`. Its mean is 0, as a wave does not see it. It stays
where it is when atoms move thermally.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.physics.form_factors import BOHR_RADIUS
from namsa.physics.grid import Grid
from namsa.physics.potential import POTENTIAL_CONSTANT

Floats = npt.NDArray[np.float64]
Complexes = npt.NDArray[np.complex128]


@dataclass(frozen=True)
class Bonding:
    """The change of the electron density in a cell that a specimen repeats.

    Attributes:
        coefficients: ∫Δρ exp(−2πi q·r) over the cell, e, (mz, my, mx); odd numbers of orders, in the order of the FFT.
        cell_angstrom: Sides (a, b, c) of the cell, Å.
        repeats: Cells along x, y, z in the specimen.
        description: What the provenance says of it.
    """

    coefficients: Complexes
    cell_angstrom: tuple[float, float, float]
    repeats: tuple[int, int, int]
    description: Mapping[str, Any]

    def density(self, grid: Grid, start_angstrom: float, stop_angstrom: float) -> Floats:
        """Returns the change of the density projected between two heights, (ny, nx), e/Å²."""
        return self._project(self.coefficients, grid, start_angstrom, stop_angstrom)

    def potential(self, grid: Grid, start_angstrom: float, stop_angstrom: float) -> Floats:
        """Returns the change of the potential projected between two heights, (ny, nx), V·Å."""
        qz, qy, qx = self._frequencies()
        squared = qz[:, None, None] ** 2 + qy[:, None] ** 2 + qx**2
        squared[0, 0, 0] = np.inf
        factor = -POTENTIAL_CONSTANT / (2 * np.pi**2 * BOHR_RADIUS * squared)
        return self._project(factor * self.coefficients, grid, start_angstrom, stop_angstrom)

    def period_of(self, start_angstrom: float, stop_angstrom: float) -> tuple[float, float]:
        """Returns what slices have in common whose changes are equal: height within the cell, and thickness, Å."""
        c = self.cell_angstrom[2]
        height = round(start_angstrom % c, 6)
        return (0.0 if height >= round(c, 6) else height, round(stop_angstrom - start_angstrom, 6))

    def _frequencies(self) -> tuple[Floats, ...]:
        """Returns (qz, qy, qx) of the coefficients, 1/Å."""
        sides = self.cell_angstrom[::-1]
        return tuple(np.fft.fftfreq(m, side / m) for m, side in zip(self.coefficients.shape, sides, strict=True))

    def _project(self, coefficients: Complexes, grid: Grid, start: float, stop: float) -> Floats:
        """Returns the field of 3D coefficients between two heights, as far as the grid resolves it."""
        qz = self._frequencies()[0]
        # The integral of exp(2πi qz z), about the middle, where it has no difference of close numbers.
        along = (stop - start) * np.sinc(qz * (stop - start)) * np.exp(1j * np.pi * qz * (start + stop))
        flat = np.einsum("z,zyx->yx", along, coefficients) / np.prod(self.cell_angstrom)
        rows, columns = (
            np.fft.fftfreq(m, 1 / m).astype(int) * repeat
            for m, repeat in zip(flat.shape, (self.repeats[1], self.repeats[0]), strict=True)
        )
        inside = [2 * abs(index) < n for index, n in zip((rows, columns), grid.shape, strict=True)]
        spectrum = np.zeros(grid.shape, np.complex128)
        spectrum[np.ix_(rows[inside[0]], columns[inside[1]])] = flat[np.ix_(*inside)]
        field: Floats = np.fft.ifft2(spectrum).real * spectrum.size
        return field
