"""Interfaces of two crystals with matched lattices, without dislocations.

The first crystal has half of the cell, a whole number of its periods where the cell has several.
The second, its partner, has the other half, with the same zone axis along the beam. Along the
interface and along the beam the partner is strained to the periods of the first crystal, or a small
whole multiple or part of them; across the interface to a whole number of its own periods. Both
crystals so keep all their planes, and the periodic cell has two interfaces.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import ase
import numpy as np

from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.crystals.kinds.draws import Draws
from namsa.crystals.kinds.halves import joined, rolled
from namsa.crystals.kinds.inclusions import PART
from namsa.crystals.kinds.overlaps import pair_distances, wrapped
from namsa.crystals.orient import CellFit, RectangularCells
from namsa.crystals.supercell import fill_cell

MOST_MISFIT = 0.05  # strain of the partner
AXES = ("x", "y")
MOST_MULTIPLE = 3  # periods of one crystal that one period of the other may have


@dataclass(frozen=True)
class PartnerFit:
    """Fit of a partner into part of a cell."""

    fit: CellFit  # the partner's own cell, as large as its part
    start_angstrom: float  # where the part begins along the axis, Å; it ends at the cell's face
    misfit: float  # the largest strain of the partner along x, y and z


def fit_partner(fit: CellFit, axis: int, cells: RectangularCells) -> PartnerFit | None:
    """Returns the smallest rectangle of a partner that fits within `MOST_MISFIT`, `None` if none
    does.

    Args:
        axis: The axis across the interface, 0 for x and 1 for y.
        cells: The rectangles of the partner along the same zone axis.
    """
    sides = np.array(fit.lengths_angstrom)
    periods = np.gcd.reduce(fit.matrix, axis=1)
    start = sides[axis] * (max(1, periods[axis] // 2) / periods[axis] if periods[axis] > 1 else 0.5)
    room = sides.copy()
    room[axis] -= start
    lengths = np.column_stack(
        [cells.x_length, cells.y_length, np.full(len(cells.strain), cells.repeat_angstrom)]
    )
    counts = np.maximum(1, np.floor(room / lengths + 0.5).astype(np.int64))
    misfit = abs(room / (counts * lengths) - 1)
    coherent = np.ones(len(lengths), dtype=bool)
    for other in (1 - axis, 2):
        ratio = np.maximum(counts[:, other], periods[other]) / np.minimum(
            counts[:, other], periods[other]
        )
        coherent &= (ratio == np.round(ratio)) & (ratio <= MOST_MULTIPLE)
    worst = misfit.max(axis=1) + cells.strain
    fits = np.flatnonzero(coherent & (worst <= MOST_MISFIT))
    if not len(fits):
        return None
    area = np.round(cells.x_length[fits] * cells.y_length[fits], 3)
    best = fits[np.lexsort([np.round(worst[fits], 6), area])[0]]
    own_axes = np.array([cells.x[best], cells.y[best], cells.zone])
    atoms = int(cells.crystal_cells[best] * np.prod(counts[best]) * cells.atoms)
    partner = CellFit(
        own_axes * counts[best][:, None],
        float(worst[best]),
        (float(room[0]), float(room[1]), float(room[2])),
        atoms,
    )
    return PartnerFit(partner, float(start), round(float(worst[best]), 6))


def interface(
    crystal: ase.Atoms,
    fit: CellFit,
    atoms: ase.Atoms,
    partner: ase.Atoms,
    cells: RectangularCells,
    draws: Draws,
) -> ase.Atoms:
    """Fills part of the cell with the partner.

    The planes of the partner with which it begins and ends are those for which the contacts at the
    interfaces are the longest, of shifts by half a period along each axis.

    Parameters: `axis` across the interface (the other one if the partner fits only so), `position`
    of the first plane as a part of the cell along it.

    Raises:
        InputError: If the partner does not fit.
    """
    drawn = AXES.index(draws.choice("axis", AXES))
    position = draws.uniform("position", (0.0, 1.0), (0.0, 1.0))
    fits = [
        (axis, fitted) for axis in (drawn, 1 - drawn) if (fitted := fit_partner(fit, axis, cells))
    ]
    if not fits:
        raise InputError(
            f"{cells.name} does not fit to the cell within a strain of {MOST_MISFIT:g}: take "
            "another one"
        )
    axis, fitted = fits[0]
    draws.used |= {"axis": AXES[axis], "misfit": fitted.misfit}
    sides = np.asarray(atoms.cell.lengths())
    first = atoms[wrapped(atoms.positions, sides)[:, axis] < fitted.start_angstrom - 1e-6]
    candidates = [
        (first, second)
        for second in placed(partner, fitted.fit, sides, axis, fitted.start_angstrom)
    ]
    joined_crystal = joined(candidates, pair_distances([crystal, partner]))
    return rolled(joined_crystal, position, draws, axis, fitted.start_angstrom / sides[axis])


def placed(
    partner: ase.Atoms, fit: CellFit, sides: Floats, axis: int, start: float, length: float = np.inf
) -> Iterator[ase.Atoms]:
    """Yields the partner in part of a cell, with each shift by half a period along each axis.

    Args:
        fit: How the partner fits to its part.
        sides: Of the cell, Å.
        axis: Axis along which the part begins at `start`, Å, and ends after `length`.
    """
    filled = fill_cell(partner, fit).atoms
    room = np.array(fit.lengths_angstrom)
    period = room / np.gcd.reduce(fit.matrix, axis=1)
    for halves in itertools.product((0.0, 0.5), repeat=3):
        second = filled.copy()
        second.positions = wrapped(filled.positions + period * halves, room)
        second = second[second.positions[:, axis] < length]
        second.positions[:, axis] += start
        second.set_cell(sides)
        second.set_array(PART, np.ones(len(second), np.int64))
        yield second
