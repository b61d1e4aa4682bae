"""Surfaces and thickness steps: specimens from which part of the crystal is cut away."""

import ase
import numpy as np

from namsa.crystals.kinds.draws import Draws
from namsa.crystals.kinds.overlaps import wrapped
from namsa.errors import InputError

AXES = ("x", "y")


def surface(crystal: ase.Atoms, atoms: ase.Atoms, draws: Draws) -> ase.Atoms:
    """Removes the atoms of part of the cell across the beam, which becomes vacuum with a surface on either side.

    Parameters: `axis` across the surfaces, `vacuum` (part of the cell, drawn from 0.2 to 0.6), `start` (where it
    begins, as a part of the cell).
    """
    axis = draws.choice("axis", AXES)
    width = draws.uniform("vacuum", (0.2, 0.6), (0.0, 1.0))
    start = draws.uniform("start", (0.0, 1.0), (0.0, 1.0))
    return _without(atoms, _within(atoms, axis, start, width))


def step(crystal: ase.Atoms, atoms: ase.Atoms, draws: Draws) -> ase.Atoms:
    """Removes the atoms below a depth in part of the cell: that part is thinner, with a step on either side.

    The beam enters at depth 0, and the step is at the exit side. A sample that is cut off above `depth_angstrom` shows
    nothing of it.

    Parameters: `axis` across the steps, `width` (part of the cell that is thinner, drawn from 0.3 to 0.7), `start`
    (where it begins, as a part of the cell), `depth_angstrom` of what stays of it (drawn from 0.1 to 0.8 of the
    thickness).
    """
    thickness = float(atoms.cell.lengths()[2])
    axis = draws.choice("axis", AXES)
    width = draws.uniform("width", (0.3, 0.7), (0.0, 1.0))
    start = draws.uniform("start", (0.0, 1.0), (0.0, 1.0))
    depth = draws.uniform("depth_angstrom", (0.1 * thickness, 0.8 * thickness), (0.0, thickness))
    return _without(atoms, _within(atoms, axis, start, width) & (atoms.positions[:, 2] >= depth))


def _within(atoms: ase.Atoms, axis: str, start: float, width: float) -> np.ndarray:
    """Returns which atoms are in a part of the periodic cell, `(n,)`."""
    sides = np.asarray(atoms.cell.lengths())
    index = AXES.index(axis)
    fraction = wrapped(atoms.positions, sides)[:, index] / sides[index]
    return (fraction - start) % 1 < width


def _without(atoms: ase.Atoms, removed: np.ndarray) -> ase.Atoms:
    """Returns the atoms that are not removed. Raises InputError if there are none."""
    if removed.all():
        raise InputError("the cut leaves no atom: make the vacuum narrower, or the cell larger")
    return atoms[~removed]
