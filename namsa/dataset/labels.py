"""The part of a specimen that each position belongs to: that which fills the most of it, in
projection.

Each atom counts by its atomic number, spread over a Gaussian whose width bridges the gaps between
columns. A part's sum is divided by its largest value, which it has where it fills the specimen. A
light part so counts as much as a heavy one, and a border that is inclined to the beam is where both
are equally thick.
"""

import ase
import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Floats
from namsa.crystals.kinds.inclusions import PART
from namsa.crystals.sites import occupancies
from namsa.physics import density_target
from namsa.physics.grid import Grid

WIDTH_ANGSTROM = 1.5  # standard deviation
# Parts of the kinds of specimens that have several, by the atoms' numbers of parts.
LABEL_NAMES: dict[str, tuple[str, ...]] = {
    "interface": ("matrix", "phase"),
    "precipitate": ("matrix", "phase"),
    "twin": ("matrix", "grain"),
    "boundary": ("matrix", "grain"),
    "grain": ("matrix", "grain"),
}


def label_map(atoms: ase.Atoms, grid: Grid, y: Floats, x: Floats) -> npt.NDArray[np.uint8]:
    """Returns the part of each point of a raster, `(len(y), len(x))`.

    Args:
        atoms: The specimen, whose array "part" numbers its parts from 0.
    """
    ny, nx = grid.shape
    rows, columns = (
        np.round(atoms.positions[:, axis] / step).astype(np.int64) % size
        for axis, step, size in (
            (1, grid.sampling_angstrom[0], ny),
            (0, grid.sampling_angstrom[1], nx),
        )
    )
    spread = np.exp(-2 * (np.pi * WIDTH_ANGSTROM) ** 2 * grid.squared_frequency())
    parts = atoms.arrays[PART]
    electrons = atoms.numbers * occupancies(atoms)
    images = []
    for label in range(int(parts.max()) + 1):
        image = np.bincount(rows * nx + columns, electrons * (parts == label), ny * nx).reshape(
            ny, nx
        )
        coefficients = np.fft.fft2(image) * spread
        coefficients /= density_target.on_grid(coefficients).max()
        images.append(density_target.at_positions(coefficients, grid, y, x))
    return np.argmax(images, axis=0).astype(np.uint8)
