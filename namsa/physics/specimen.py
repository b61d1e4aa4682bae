"""From atoms to transmission functions, projected potential and electron density.

The density is computed from the same tables as the potential, by the Mott–Bethe formula. It therefore integrates to
the specimen's number of electrons.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import ase
import numpy as np

from namsa.physics import finite, potential
from namsa.physics.backend import available_cores
from namsa.physics.bonding import Bonding
from namsa.physics.form_factors import Table, xray
from namsa.physics.grid import Array, Grid
from namsa.physics.potential import AtomList, Slices
from namsa.physics.slice_plan import SlicePlan, equal_slices, slice_index

Projection = Literal["infinite", "finite"]

_ATOMS_AT_ONCE = 8192  # whose phases are in memory
_MOST_BUILDING_BYTES = 2**31  # of several slices at a time; one may take more


@dataclass(frozen=True)
class SlicedSpecimen:
    """A specimen as the electrons see it. Arrays are on the host or the device."""

    slices: Slices  # transmission functions
    # Projected electron density (ny, nx) of the slices up to each depth, e/Å², float64, not band-limited.
    densities: list[Array]
    projected_potentials: list[Array]  # projected potential (ny, nx) up to each depth, V·Å, float64, not band-limited
    density_by_depth: Array | None = None  # `density_by_depth` of the whole specimen, if it was asked for

    @property
    def density(self) -> Array:
        """Projected electron density up to the last depth."""
        return self.densities[-1]

    @property
    def projected_potential(self) -> Array:
        """Projected potential up to the last depth."""
        return self.projected_potentials[-1]


def atom_list(atoms: ase.Atoms) -> AtomList:
    """Converts ASE's atoms, which have x first, to (y, x): the only place where this is done."""
    occupancies = atoms.arrays.get("occupancy", np.ones(len(atoms)))
    return AtomList(
        atoms.numbers.astype(np.int64),
        atoms.positions[:, [1, 0]],
        atoms.positions[:, 2],
        occupancies.astype(np.float64),
    )


def build(
    atoms: ase.Atoms,  # atoms in an orthogonal cell
    grid: Grid,
    plan: SlicePlan | float,  # where the specimen is cut, or the largest thickness of equal slices, Å
    sigma: float,  # interaction constant, rad/(V·Å)
    table: Table,  # table of form factors, "lobato" or "kirkland"
    dtype: Any,  # complex type of the transmission functions
    xp: Any,
    *,
    # Projection of atoms to slices, "infinite", or "finite" for equally thick ones (see `finite`). It changes neither
    # the density nor the projected potential.
    projection: Projection = "infinite",
    # Numbers of slices up to which density and potential are projected; by default all slices.
    depths: Sequence[int] | None = None,
    depth_bins: int = 1,  # number of bins of `density_by_depth`, which is computed for more than one
    # What bonds change. Of equal slices, each has what is between its faces. Slices that follow layers act there, and
    # have what is nearer to them than to the next ones, in a specimen that repeats along the beam.
    bonding: Bonding | None = None,
    # Called as `on_slice(done, total)` after each distinct slice.
    on_slice: Callable[[int, int], None] = lambda done, total: None,
) -> SlicedSpecimen:
    """Slices atoms along z and computes each distinct slice once."""
    atom_arrays, depth = atom_list(atoms), float(atoms.cell.lengths()[2])
    centred = isinstance(plan, SlicePlan)
    plan = plan if isinstance(plan, SlicePlan) else equal_slices(atom_arrays.z, depth, plan)
    n_slices = plan.count
    ranges = _ranges(plan, centred)
    faces, face_of = (
        finite.faces(atom_arrays, depth, n_slices, table)
        if projection == "finite"
        else ([], np.zeros(n_slices + 1, dtype=np.int64))
    )
    between = list(itertools.pairwise(face_of.tolist()))
    marks = [(faces_of, bonding and bonding.period_of(*own)) for faces_of, own in zip(between, ranges, strict=True)]
    distinct, order = potential.distinct_slices(atom_arrays, plan, marks)
    fine = grid.refined(int(atom_arrays.numbers.max(initial=0)))
    factors = potential.element_factors(atom_arrays.numbers, fine, table, xp)
    antialias, real = xp.asarray(grid.antialias()), np.finfo(dtype).dtype
    transmissions: list[Array] = []
    hy, hx = (n // 2 + 1 for n in grid.shape)
    depths = depths or [n_slices]
    column_sums = [{number: xp.zeros((2, hy, 2, hx)) for number in factors} for _ in depths]

    threads = building_threads(fine.shape, len(factors), np.dtype(dtype).itemsize) if xp is np else 1
    with ThreadPoolExecutor(threads) as pool:
        expansions = [pool.submit(finite.shells, number, fine, table, real, xp) for number in factors if faces]

        def move(face: AtomList) -> Array:
            shells = [shell for expansion in expansions for shell in expansion.result()]
            return finite.moved_across_face(face, shells, fine, real, xp)

        # Faces are submitted before the slices that wait for them, and run first: there is no deadlock.
        moved = [pool.submit(move, face) for face in faces]

        def project(index: int) -> tuple[dict[int, Array], Array]:
            sums = potential.structure_sums(distinct[index], fine, xp, real)
            transform = potential.weighted_sum(sums, factors, fine, xp)
            first = int(np.argmax(order == index))
            if moved:
                begins, ends = between[first]
                transform += moved[ends].result() - moved[begins].result()
            v = potential.POTENTIAL_CONSTANT * potential.real_field(transform, fine)
            if bonding:
                v += xp.asarray(bonding.potential(fine, *ranges[first]), v.dtype)
            t = potential.transmission(v, sigma, antialias, dtype)
            return sums if fine is grid else potential.coarse_sums(sums, grid), t

        for index, (sums, t) in enumerate(pool.map(project, range(len(distinct)))):
            transmissions.append(t)
            for up_to, columns in zip(depths, column_sums, strict=True):
                if count := np.count_nonzero(order[:up_to] == index):
                    for number, total in sums.items():
                        columns[number] += count * total
            on_slice(index + 1, len(distinct))
    electrons = potential.element_factors(atom_arrays.numbers, grid, table, xp, xray)
    factors = potential.element_factors(atom_arrays.numbers, grid, table, xp)
    densities = [potential.field(columns, electrons, grid, xp) for columns in column_sums]
    potentials = [potential.POTENTIAL_CONSTANT * potential.field(columns, factors, grid, xp) for columns in column_sums]
    by_depth = density_by_depth(atom_arrays, depth, grid, depth_bins, table, xp) if depth_bins > 1 else None
    if bonding:
        for number, up_to in enumerate(depths):
            start, stop = ranges[0][0], ranges[up_to - 1][1]
            densities[number] += xp.asarray(bonding.density(grid, start, stop))
            potentials[number] += xp.asarray(bonding.potential(grid, start, stop))
        if by_depth is not None:
            edges = np.linspace(ranges[0][0], ranges[-1][1], depth_bins + 1).tolist()
            by_depth += xp.stack([xp.asarray(bonding.density(grid, *own)) for own in itertools.pairwise(edges)])
    return SlicedSpecimen(Slices(transmissions, order, *plan.distinct_thicknesses()), densities, potentials, by_depth)


def building_bytes(shape: tuple[int, int], elements: int, item: int) -> int:
    """Returns the bytes of arrays while a transmission is computed on a grid, for waves of `item` bytes per pixel."""
    return math.prod(shape) * item * (8 + elements) // 2


def building_threads(shape: tuple[int, int], elements: int, item: int) -> int:
    """Returns how many slices are computed at a time on a host: one per core, if they fit into a part of its memory."""
    return min(available_cores(), max(1, _MOST_BUILDING_BYTES // building_bytes(shape, elements, item)))


def _ranges(plan: SlicePlan, centred: bool) -> list[tuple[float, float]]:
    """Returns the heights between which bonds change what a slice has, Å: see `build`."""
    edges = np.append(plan.fronts_angstrom, plan.depth_angstrom)
    if centred:
        before = np.append(plan.fronts_angstrom[-1] - plan.depth_angstrom, plan.fronts_angstrom)
        edges[:-1] = (before[:-1] + before[1:]) / 2
        edges[-1] = edges[0] + plan.depth_angstrom
    return list(itertools.pairwise(edges.tolist()))


def density_by_depth(
    atoms: AtomList, depth_angstrom: float, grid: Grid, bins: int, table: Table, xp: Any = np
) -> Array:
    """Returns the electron density projected over each of equal bins along the beam.

    An atom is in the bin of its nucleus with its whole density, as it is in one slice with projection "infinite". The
    bins so add up to the projected density.

    Args:
        atoms: The specimen's atoms. Those above or below the cell are in the first or last bin, as in its slices.

    Returns:
        The densities (bins, ny, nx), e/Å², float64, not band-limited; the first bin is where the beam enters.
    """
    electrons = potential.element_factors(atoms.numbers, grid, table, xp, xray)
    bin_of_atom = slice_index(atoms.z, depth_angstrom, bins)
    fields = []
    for number in range(bins):
        chosen = np.flatnonzero(bin_of_atom == number)
        total = xp.zeros(grid.shape)
        for start in range(0, len(chosen), _ATOMS_AT_ONCE):
            sums = potential.structure_sums(atoms[chosen[start : start + _ATOMS_AT_ONCE]], grid, xp)
            total += potential.field(sums, electrons, grid, xp)
        fields.append(total)
    return xp.stack(fields)
