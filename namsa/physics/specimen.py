"""The specimen in the microscope: atoms to transmission functions, projected potential and electron density.

The density is by definition of the same tables as the potential (Mott–Bethe), so that a specimen's density
integrates to its number of electrons.
"""

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import ase
import numpy as np

from namsa.physics import finite, potential
from namsa.physics.backend import available_cores
from namsa.physics.form_factors import Table, xray
from namsa.physics.grid import Array, Grid
from namsa.physics.potential import AtomList, Slices

Projection = Literal["infinite", "finite"]


@dataclass(frozen=True)
class SlicedSpecimen:
    """slices: what the electrons cross; density (ny, nx) in e/Å² and projected_potential (ny, nx) in V·Å, on the host's
    or the device's memory, float64 and not band-limited."""

    slices: Slices
    density: Array
    projected_potential: Array


def atom_list(atoms: ase.Atoms) -> AtomList:
    """The one door from ASE's x-first cells to (y, x): positions in Å from the cell's origin, occupancies honoured."""
    occupancies = atoms.arrays.get("occupancy", np.ones(len(atoms)))
    return AtomList(
        atoms.numbers.astype(np.int64),
        atoms.positions[:, [1, 0]],
        atoms.positions[:, 2],
        occupancies.astype(np.float64),
    )


def build(
    atoms: ase.Atoms,
    grid: Grid,
    slice_thickness_angstrom: float,
    sigma: float,
    table: Table,
    dtype: Any,
    xp: Any,
    *,
    projection: Projection = "infinite",
    on_slice: Callable[[int, int], None] = lambda done, total: None,
) -> SlicedSpecimen:
    """Slices `atoms`, an orthogonal cell, along z; each distinct slice is computed once.

    `dtype` is the transmissions' complex type; `on_slice(done, total)` is told of progress. The `projection` of atoms
    to slices changes neither density nor projected potential.
    """
    listed, depth = atom_list(atoms), float(atoms.cell.lengths()[2])
    n_slices = potential.slice_count(depth, slice_thickness_angstrom)
    faces, face_of = (
        finite.faces(listed, depth, n_slices, table)
        if projection == "finite"
        else ([], np.zeros(n_slices + 1, dtype=np.int64))
    )
    between = list(itertools.pairwise(face_of.tolist()))
    distinct, order = potential.distinct_slices(listed, depth, n_slices, between)
    factors = potential.element_factors(listed.numbers, grid, table, xp)
    antialias, real = xp.asarray(grid.antialias()), np.finfo(dtype).dtype
    transmissions: list[Array] = []
    hy, hx = (n // 2 + 1 for n in grid.shape)
    column_sums = {number: xp.zeros((2, hy, 2, hx)) for number in factors}

    with ThreadPoolExecutor(available_cores() if xp is np else 1) as pool:
        expansions = [pool.submit(finite.shells, number, grid, table, real, xp) for number in factors if faces]
        # A slice waits for faces that began before it: no deadlock.
        moved = [
            pool.submit(
                lambda near: finite.moved_across_face(near, [s for e in expansions for s in e.result()], grid, real, xp), near
            )
            for near in faces
        ]

        def project(index: int) -> tuple[dict[int, Array], Array]:
            sums = potential.structure_sums(distinct[index], grid, xp, real)
            transform = potential.weighted_sum(sums, factors, grid, xp)
            if moved:
                begins, ends = between[int(np.argmax(order == index))]
                transform += moved[ends].result() - moved[begins].result()
            v = potential.POTENTIAL_CONSTANT * potential.real_field(transform, grid)
            return sums, potential.transmission(v, sigma, antialias, dtype)

        for index, (sums, t) in enumerate(pool.map(project, range(len(distinct)))):
            transmissions.append(t)
            for number, total in sums.items():
                column_sums[number] += np.count_nonzero(order == index) * total
            on_slice(index + 1, len(distinct))
    projected = potential.POTENTIAL_CONSTANT * potential.field(column_sums, factors, grid, xp)
    density = potential.field(column_sums, potential.element_factors(listed.numbers, grid, table, xp, xray), grid, xp)
    return SlicedSpecimen(Slices(transmissions, order, depth / n_slices), density, projected)
