"""Finite projection: a slice holds what lies between its faces, of atoms inside it and of their neighbours.

The infinite projection puts a whole atom into the slice of its nucleus. Here a slice [z₀, z₁] has
f_j(k; z₀ − z_j, z₁ − z_j) of each atom, the integral of its potential over that range, which the tables give in
closed form (`form_factors.electron_beyond`). (x, y) stay exact, by structure sums as in `potential`, one for each
height at which a slice finds atoms. A crystal's heights are few and taken as they are. Heated atoms each have their
own: such an atom counts as two part-occupied ones, on the planes above and below it of a stack `PLANE_ANGSTROM` apart.

What reaches out of the cell at the entrance or the exit is folded into the first or last slice, and so are remainders
below `REMAINDER` of an atom into the last slice within its reach: the slices sum to the infinite projection.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from namsa import potential
from namsa.form_factors import Table, electron, electron_beyond
from namsa.grid import Array, Grid
from namsa.potential import AtomList, Slices

PLANE_ANGSTROM = 0.05
REMAINDER = 1e-3
_DIGITS = 9  # of heights, Å


def build(
    atoms: AtomList,
    grid: Grid,
    depth_angstrom: float,
    n_slices: int,
    sigma: float,
    table: Table,
    dtype: Any,
    xp: Any,
    on_slice: Callable[[int, int], None] = lambda done, total: None,
) -> Slices:
    """`atoms` as `n_slices` equal slices over the cell's depth; each distinct one is computed once."""
    thickness = depth_angstrom / n_slices
    atoms = on_planes(atoms, depth_angstrom, n_slices * int(np.ceil(thickness / PLANE_ANGSTROM)))
    reach = {int(number): reach_angstrom(int(number), table) for number in np.unique(atoms.numbers)}
    whole = potential.element_factors(atoms.numbers, grid, table, xp)
    ends = [(i == 0, i == n_slices - 1) for i in range(n_slices)]
    distinct, order = potential.distinct(_slices(atoms, n_slices, thickness, reach), ends)
    antialias = xp.asarray(grid.antialias())
    ky, kx = potential.quadrant_frequencies(grid)
    squared_k = xp.asarray(ky**2 + kx**2)

    def below(number: int, z: float) -> Any:
        """The part of an atom below the height z over its nucleus."""
        if abs(z) >= reach[number]:
            return whole[number] if z > 0 else 0.0
        beyond = electron_beyond(number, squared_k, abs(z), table)
        return whole[number] - beyond if z > 0 else beyond

    transmissions: list[Array] = []
    for index, members in enumerate(distinct):
        first, last = ends[int(np.argmax(order == index))]
        waves = xp.zeros((2, squared_k.shape[0], 2, squared_k.shape[1]))
        for height in np.unique(members.z):
            low = -np.inf if first else -height
            high = np.inf if last else round(thickness - height, _DIGITS)
            for number, total in potential.structure_sums(members[members.z == height], grid, xp).items():
                waves += (below(number, high) - below(number, low))[:, None] * total
        v = potential.POTENTIAL_CONSTANT * potential.real_field(waves, grid)
        transmissions.append(potential.transmission(v, sigma, antialias, dtype))
        on_slice(index + 1, len(distinct))
    return Slices(transmissions, order, thickness)


def reach_angstrom(number: int, table: Table) -> float:
    """How far from its nucleus along the beam more than `REMAINDER` of an element's potential lies."""
    z = np.arange(0.1, 20, 0.1)
    remainders = np.array([2 * electron_beyond(number, 0.0, height, table) for height in z])
    return float(z[np.argmax(remainders < REMAINDER * electron(number, 0.0, table))])


def on_planes(atoms: AtomList, depth_angstrom: float, count: int) -> AtomList:
    """`atoms` inside the cell at no more than about `count` heights; those between two planes are shared by them."""
    edge = potential.EDGE_ANGSTROM
    z = (atoms.z + edge) % depth_angstrom - edge
    if len(np.unique(np.round(z, 6))) <= count:
        return AtomList(atoms.numbers, atoms.yx, np.round(z, 6), atoms.occupancies)
    position = z / depth_angstrom * count
    plane = np.floor(position)
    upper = position - plane
    return AtomList(
        np.tile(atoms.numbers, 2),
        np.tile(atoms.yx, (2, 1)),
        np.concatenate([plane, plane + 1]) * (depth_angstrom / count),
        np.concatenate([atoms.occupancies * (1 - upper), atoms.occupancies * upper]),
    )


def _slices(atoms: AtomList, n_slices: int, thickness: float, reach: dict[int, float]) -> list[AtomList]:
    """For each slice the atoms that reach into it, heights from its lower face."""
    of_atom = np.array([reach[int(number)] for number in atoms.numbers])
    slices = []
    for i in range(n_slices):
        z = np.round(atoms.z - i * thickness, _DIGITS)
        near = (z > -of_atom) & (z < thickness + of_atom)
        slices.append(AtomList(atoms.numbers[near], atoms.yx[near], z[near], atoms.occupancies[near]))
    return slices
