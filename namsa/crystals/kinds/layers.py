"""Specimens that vary along the beam: stacked crystals, caps, buried and doped layers, and vacuum
above and below.

A whole number of the partner's periods along x and along y is strained to the sides of the cell,
`MOST_MISFIT` at most. Along the beam a partner keeps its own period and is cut where its layer
ends. Nothing is relaxed. Atoms of the partner that overlap with those of the crystal are left out;
the cell is periodic along the beam too, so that this holds for its first and last layer of atoms.

All depths are parts of the thickness from where the beam enters, and are the planes at which atoms
are cut. A sample that is cut off at a smaller depth (`simulation.method` scatter) has what lies
above.
"""

import ase
import numpy as np

from namsa.base.errors import InputError
from namsa.crystals.kinds.draws import Draws
from namsa.crystals.kinds.halves import joined
from namsa.crystals.kinds.interface import MOST_MISFIT, PartnerFit, placed
from namsa.crystals.kinds.overlaps import pair_distances, wrapped
from namsa.crystals.kinds.points import replace_sites
from namsa.crystals.orient import CellFit, RectangularCells

WITH_LAYER = ("stack", "cap", "buried_layer")  # of a partner
SIDES = ("entrance", "exit")
# of the thickness that the layer of each kind has
PARTS = {"stack": (0.25, 0.75), "cap": (0.1, 0.25), "buried_layer": (0.15, 0.4)}


def fit_layer(fit: CellFit, cells: RectangularCells) -> PartnerFit | None:
    """Returns the smallest rectangle of a partner that fits across the beam within `MOST_MISFIT`,
    `None` if none does.

    Args:
        fit: The cell of the crystal, for whose whole thickness there are enough of the partner's
            periods.
        cells: The rectangles of the partner along the same zone axis.
    """
    sides = np.array(fit.lengths_angstrom)
    lengths = np.column_stack([cells.x_length, cells.y_length])
    counts = np.maximum(1, np.floor(sides[:2] / lengths + 0.5).astype(np.int64))
    worst = abs(sides[:2] / (counts * lengths) - 1).max(axis=1) + cells.strain
    fits = np.flatnonzero(worst <= MOST_MISFIT)
    if not len(fits):
        return None
    area = np.round(lengths[fits].prod(axis=1), 3)
    best = fits[np.lexsort([np.round(worst[fits], 6), area])[0]]
    # one more, of which a part is cut off
    periods = int(np.ceil(sides[2] / cells.repeat_angstrom - 1e-9)) + 1
    own_axes = np.array([cells.x[best], cells.y[best], cells.zone])
    repeats = np.array([*counts[best], periods])
    atoms = int(cells.crystal_cells[best] * np.prod(repeats) * cells.atoms)
    lengths_angstrom = (float(sides[0]), float(sides[1]), periods * cells.repeat_angstrom)
    layer = CellFit(own_axes * repeats[:, None], float(worst[best]), lengths_angstrom, atoms)
    return PartnerFit(layer, 0.0, round(float(worst[best]), 6))


def with_layer(
    crystal: ase.Atoms,
    kind: str,  # one of `WITH_LAYER`
    fit: CellFit,
    atoms: ase.Atoms,  # the filled cell
    partner: ase.Atoms,  # the other crystal
    cells: RectangularCells,  # its rectangles along the same zone axis
    draws: Draws,
) -> ase.Atoms:
    """Replaces a layer of the crystal by a partner.

    The partner is tried as it is and shifted by half a period along each axis. The place that
    leaves the least volume free is taken; among equal ones, that with the longest contacts.

    Parameters: `side` ("entrance" or "exit") that the partner of a stack or a cap is on, and `part`
    of the thickness that it has (a stack draws it from 0.25 to 0.75, a cap from 0.1 to 0.25, a
    buried layer from 0.15 to 0.4), or `top` of a buried layer (drawn from 0.15 to 0.5) in place of
    the side.

    Raises:
        InputError: If the partner does not fit, or a layer has no atoms.
    """
    top, share_of_layer = _drawn_layer(kind, draws)
    fitted = fit_layer(fit, cells)
    if fitted is None:
        raise InputError(
            f"{cells.name} does not fit to the cell within a strain of {MOST_MISFIT:g}: take "
            "another one"
        )
    sides = np.asarray(atoms.cell.lengths())
    start = top * float(sides[2])
    end = min(top + share_of_layer, 1.0) * float(sides[2])
    depth = wrapped(atoms.positions, sides)[:, 2]
    outside = atoms[(depth < start) | (depth >= end)]
    candidates = []
    for layer in placed(partner, fitted.fit, sides, 2, start, end - start):
        candidates.append((outside, layer))
    if not len(outside) or not all(len(layer) for _, layer in candidates):
        raise InputError(f"the {kind} has a layer without an atom: make the thickness larger")
    draws.used |= {"misfit": fitted.misfit, "planes_angstrom": [round(start, 3), round(end, 3)]}
    return joined(candidates, pair_distances([crystal, partner]))


def _drawn_layer(kind: str, draws: Draws) -> tuple[float, float]:
    """Draws where a layer begins and how thick it is, in units of the thickness."""
    if kind == "buried_layer":
        top = draws.uniform("top", (0.15, 0.5), (0.0, 1.0))
        return top, draws.uniform("part", PARTS[kind], (0.0, 1.0))
    side = draws.choice("side", SIDES)
    share = draws.uniform("part", PARTS[kind], (0.0, 1.0))
    return (1 - share if side == "exit" else 0.0), share


def doped_layer(crystal: ase.Atoms, atoms: ase.Atoms, draws: Draws) -> ase.Atoms:
    """Replaces part of one element's atoms in a layer by another element, without relaxation.

    Parameters: `top` of the layer (drawn from 0.05 to 0.6), `part` of the thickness that it has
    (drawn from 0.15 to 0.35), `element`, `replacement` and `share` of the element's sites in the
    layer (drawn from 0.3 to 1) as for substitutions.
    """
    thickness = float(atoms.cell.lengths()[2])
    top = draws.uniform("top", (0.05, 0.6), (0.0, 1.0))
    share = draws.uniform("part", (0.15, 0.35), (0.0, 1.0))
    start = top * thickness
    end = min(top + share, 1.0) * thickness
    depth = wrapped(atoms.positions, np.asarray(atoms.cell.lengths()))[:, 2]
    inside = np.flatnonzero((depth >= start) & (depth < end))
    if not len(inside):
        raise InputError(
            f"no atom lies from {start:.4g} to {end:.4g} Å: make the doped layer thicker"
        )
    draws.used["planes_angstrom"] = [round(start, 3), round(end, 3)]
    changed = atoms.copy()
    changed.numbers[inside] = replace_sites(atoms[inside], draws, (0.3, 1.0)).numbers
    return changed


def vacuum(crystal: ase.Atoms, atoms: ase.Atoms, draws: Draws) -> ase.Atoms:
    """Removes the atoms above one depth and below another: the crystal begins later and ends
    earlier.

    Parameters: `above` and `below`, the parts of the thickness that are empty (each drawn from 0 to
    0.4).
    """
    thickness = float(atoms.cell.lengths()[2])
    above = draws.uniform("above", (0.0, 0.4), (0.0, 1.0))
    below = draws.uniform("below", (0.0, 0.4), (0.0, 1.0))
    start = above * thickness
    end = (1 - below) * thickness
    depth = wrapped(atoms.positions, np.asarray(atoms.cell.lengths()))[:, 2]
    left = atoms[(depth >= start) & (depth < end)]
    if not len(left):
        raise InputError("the vacuum leaves no atom: make above or below smaller")
    draws.used["planes_angstrom"] = [round(start, 3), round(end, 3)]
    return left
