"""Twins and grain boundaries of low index: two orientations of one crystal.

The cell is periodic, so two planes across x separate the halves. In a twin the second half is the
mirror image of the first, or turned by 180° about the normal of the plane. At a grain boundary it
is turned so and shifted along the plane. For crystals with a mirror plane across the beam these are
the symmetric tilt boundaries. The lattice keeps its periods along the plane: the halves share a
coincidence lattice, and nothing is strained or relaxed. The plane is one of those with the smallest
periods of which mirror and rotation are no symmetry of the crystal's Laue class. For a face-centred
cubic crystal along [1 1 0] that is the Σ3 twin (1 1 1), along [0 0 1] the Σ5 boundary (2 1 0).
"""

from collections.abc import Sequence
from dataclasses import replace

import ase
import numpy as np

from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.crystals.kinds.draws import Draws
from namsa.crystals.kinds.inclusions import PART
from namsa.crystals.kinds.overlaps import join, pair_distances, worst_contact, wrapped
from namsa.crystals.orient import EXACT, RectangularCells
from namsa.crystals.symmetry import rotations

# grain boundaries are drawn from as many shapes of the cell, those with the smallest areas
PLANES = 3
# of the elements of two rotations: 3°; a smaller difference would hardly be seen
_SAME_DIRECTION = 0.05
_SHIFTS = 4  # rigid shifts along a boundary, of which the best is taken
_PLANES_TRIED = 12
_MIRRORED = np.array([-1.0, 1.0, 1.0])
_TURNED = np.array([1.0, -1.0, -1.0])


def low_index_cells(cells: RectangularCells, crystal: ase.Atoms, plane: int) -> RectangularCells:
    """Returns the rectangles across whose x mirror and 180° rotation are no symmetry of the
    crystal's Laue class.

    Args:
        plane: Which area is taken, counted from 0 for the smallest; the largest that there is if
            there are fewer.

    Raises:
        InputError: If there are none.
    """
    normals = cells.x @ cells.cell
    normals = normals / np.linalg.norm(normals, axis=1, keepdims=True)
    mirrors = np.eye(3) - 2 * normals[:, :, None] * normals[:, None, :]
    rotations = _laue_class(crystal)
    same = (abs(mirrors[:, None] - rotations).max(axis=(-2, -1)) < _SAME_DIRECTION).any(axis=1)
    area = cells.x_length * cells.y_length * (1 + cells.strain / cells.limit)
    free = np.flatnonzero(~same)
    if not len(free):
        raise InputError(
            f"{cells.name}: every mirror image along the beam is the crystal itself; take another "
            "kind"
        )
    areas = np.unique(np.round(area[free] / area[free].min(), 4))
    wanted = areas[min(plane, len(areas) - 1)]
    chosen = free[np.round(area[free] / area[free].min(), 4) == wanted]
    names = ("x", "y", "strain", "x_length", "y_length", "crystal_cells")
    return replace(cells, **{name: getattr(cells, name)[chosen] for name in names})


def twin(crystal: ase.Atoms, atoms: ase.Atoms, draws: Draws) -> ase.Atoms:
    """Makes the second half of a cell of `low_index_cells` the mirror image of the first, or turns
    it about x by 180°.

    The one is taken that leaves less volume free: both are the same unless the crystal has no
    centre of symmetry.

    Parameters: `position` of the first plane, as a part of the cell along x.
    """
    position = draws.uniform("position", (0.0, 1.0), (0.0, 1.0))
    distances = pair_distances([crystal])
    candidates = [
        _halves(atoms, plane, signs, np.zeros(3))
        for signs in (_MIRRORED, _TURNED)
        for plane in _planes(atoms)
    ]
    return rolled(joined(candidates, distances), position, draws)


def boundary(crystal: ase.Atoms, atoms: ase.Atoms, draws: Draws) -> ase.Atoms:
    """Turns the second half of a cell of `low_index_cells` by 180° about x, and shifts it along the
    plane.

    Parameters: `plane` (0 to 2: how large the periods of the cell are), `position` as for twins.
    """
    draw_plane(draws)
    position = draws.uniform("position", (0.0, 1.0), (0.0, 1.0))
    distances = pair_distances([crystal])
    shifts = np.vstack([np.zeros(2), draws.rng.random((_SHIFTS - 1, 2))])
    planes = _planes(atoms)
    repeat = np.array([0.0, *np.asarray(atoms.cell.lengths())[1:]])
    candidates = [
        _halves(atoms, plane, _TURNED, repeat * [0.0, *shift])
        for plane in planes
        for shift in shifts
    ]
    return rolled(joined(candidates, distances), position, draws)


def draw_plane(draws: Draws) -> int:
    """Returns the area of the cell of a boundary, as `low_index_cells` takes it."""
    return int(draws.choice("plane", range(PLANES)))


def _laue_class(crystal: ase.Atoms) -> Floats:
    """Returns the rotations of a crystal's Laue class, Cartesian matrices `(n, 3, 3)`."""
    cell = np.asarray(crystal.cell, dtype=np.float64)
    cartesian = cell.T @ rotations(crystal) @ np.linalg.inv(cell.T)
    return np.concatenate([cartesian, -cartesian])


def _planes(atoms: ase.Atoms) -> Floats:
    """Returns the positions along x, Å, that are tried for the plane: first layers of atoms, and
    middles of two.
    """
    x = np.sort(wrapped(atoms.positions, np.asarray(atoms.cell.lengths()))[:, 0])
    layers = x[np.concatenate([[True], np.diff(x) > EXACT])]
    return np.sort(np.concatenate([layers, (layers[:-1] + layers[1:]) / 2]))[:_PLANES_TRIED]


def _halves(
    atoms: ase.Atoms, plane: float, signs: Floats, shift: Floats
) -> tuple[ase.Atoms, ase.Atoms]:
    """Returns the crystal in the first half of the cell along x, and what `signs` make of it in the
    second.

    Args:
        plane: The position along x that becomes 0, Å.
        signs: The signs of the coordinates about the plane.
        shift: The rigid shift of the second half, Å.
    """
    sides = np.asarray(atoms.cell.lengths())
    first_half = atoms.copy()
    second_half = atoms.copy()
    origin = np.array([plane, 0.0, 0.0])
    first_half.positions = wrapped(atoms.positions - origin, sides)
    second_half.positions = wrapped((atoms.positions - origin) * signs + shift, sides)
    half = sides[0] / 2
    first_x = first_half.positions[:, 0]
    second_x = second_half.positions[:, 0]
    second_half.set_array(PART, np.ones(len(second_half), np.int64))
    return first_half[(first_x <= half + EXACT)], second_half[
        (second_x >= half - EXACT) | (second_x <= EXACT)
    ]


def joined(candidates: Sequence[tuple[ase.Atoms, ase.Atoms]], distances: Floats) -> ase.Atoms:
    """Returns the joined parts of the best pair: the least volume is free, then contacts are the
    longest.

    The volume is free that atoms have left because they would overlap. Of equal pairs the first is
    taken.
    """
    joined_crystals = [join(first, second, distances) for first, second in candidates]
    most = max(map(len, joined_crystals))
    dense = [index for index, atoms in enumerate(joined_crystals) if len(atoms) == most]
    contacts = [worst_contact(*candidates[index], distances) for index in dense]
    return joined_crystals[dense[int(np.argmax(contacts))]]


def rolled(
    atoms: ase.Atoms, position: float, draws: Draws, axis: int = 0, between: float = 0.5
) -> ase.Atoms:
    """Returns the atoms with the first plane at a part of the cell along an axis, and records both
    planes.
    """
    sides = np.asarray(atoms.cell.lengths())
    offset = np.zeros(3)
    offset[axis] = position * sides[axis]
    atoms.positions = wrapped(atoms.positions + offset, sides)
    planes = sorted(
        float((position + offset_of_plane) % 1 * sides[axis]) for offset_of_plane in (0.0, between)
    )
    draws.used["planes_angstrom"] = [round(plane, 3) for plane in planes]
    return atoms
