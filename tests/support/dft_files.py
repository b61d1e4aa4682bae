"""Files of a charge density as VASP writes them: TiO2 of independent atoms."""

from collections.abc import Sequence
from pathlib import Path

import ase
import ase.io
import numpy as np

from namsa.base.arrays import Array
from namsa.physics.form_factors import xray

CELL = (4.2, 5.6, 3.9)
POINTS = (40, 54, 36)


def crystal() -> ase.Atoms:
    return ase.Atoms(
        "TiO2", positions=[[0.6, 1.0, 0.4], [2.7, 1.9, 2.0], [1.5, 4.4, 3.1]], cell=CELL, pbc=True
    )


def independent_atoms(atoms: ase.Atoms, charges: Sequence[float] | None = None) -> Array:
    """The density of independent atoms on a grid, (nx, ny, nz), e/Å³, without what the grid does
    not resolve.

    `charges` are electrons of each atom that are moved away into a broad Gaussian at the same
    place, by number.
    """
    q = [np.fft.fftfreq(n, side / n) for n, side in zip(POINTS, CELL, strict=True)]
    q2 = q[0][:, None, None] ** 2 + q[1][None, :, None] ** 2 + q[2][None, None] ** 2
    total = np.zeros(POINTS, complex)
    for atomic_number, position, charge in zip(
        atoms.numbers, atoms.positions, charges or [0] * len(atoms), strict=True
    ):
        phases = [np.exp(-2j * np.pi * k * r) for k, r in zip(q, position, strict=True)]
        phase = phases[0][:, None, None] * phases[1][None, :, None] * phases[2][None, None]
        total += (
            xray(int(atomic_number), q2) + charge * np.exp(-2 * np.pi**2 * 0.3**2 * q2)
        ) * phase
    for axis, n in enumerate(POINTS):
        total[(slice(None),) * axis + (n // 2,)] = 0
    return np.fft.ifftn(total).real * total.size / np.prod(CELL)


def write_chgcar(path: Path, atoms: ase.Atoms, density: Array, extra: str = "") -> Path:
    ase.io.write(path, atoms, format="vasp", direct=True)
    values = (density * atoms.cell.volume).ravel(order="F")
    lines = []
    for i in range(0, len(values), 5):
        lines.append(" ".join(f"{value:.10E}" for value in values[i : i + 5]))
    with path.open("a") as file:
        file.write(f"\n {POINTS[0]} {POINTS[1]} {POINTS[2]}\n" + "\n".join(lines) + "\n" + extra)
    return path
