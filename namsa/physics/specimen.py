"""From atoms to transmission functions, projected potential and electron density.

The density is computed from the same tables as the potential, by the Mott–Bethe formula. It
therefore integrates to the specimen's number of electrons.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Literal, NamedTuple

import ase
import numpy as np

from namsa.base.arrays import Integers
from namsa.physics import finite, potential
from namsa.physics.backend import available_cores
from namsa.physics.bonding import Bonding
from namsa.physics.form_factors import Table, xray
from namsa.physics.grid import Array, Grid
from namsa.physics.potential import AtomList, Slices
from namsa.physics.slice_plan import SlicePlan, equal_slices, slice_between, slice_index

Projection = Literal["infinite", "finite"]

_ATOMS_AT_ONCE = 8192  # whose phases are in memory
_MOST_BUILDING_BYTES = 2**31  # of several slices at a time; one may take more


@dataclass(frozen=True)
class SlicedSpecimen:
    """A specimen as the electrons see it. Arrays are on the host or the device."""

    slices: Slices  # transmission functions
    # Projected electron density (ny, nx) of the slices up to each depth, e/Å², float64, not
    # band-limited.
    densities: list[Array]
    # Projected potential (ny, nx) up to each depth, V·Å, float64, not band-limited.
    projected_potentials: list[Array]
    # `density_by_depth` of the whole specimen, if it was asked for
    density_by_depth: Array | None = None

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


def _marks(
    faces_of_slice: Sequence[tuple[int, int]],
    heights: Sequence[tuple[float, float]],
    bonding: Bonding | None,
) -> list[Hashable]:
    """Returns what slices of the same atoms must have in common to be computed once: their faces,
    and what bonds change between them.
    """
    marks: list[Hashable] = []
    for faces, (start, stop) in zip(faces_of_slice, heights, strict=True):
        period = bonding.period_of(start, stop) if bonding else None
        marks.append((faces, period))
    return marks


def build(
    atoms: ase.Atoms,  # atoms in an orthogonal cell
    grid: Grid,
    # Where the specimen is cut, or the largest thickness of equal slices, Å.
    plan: SlicePlan | float,
    sigma: float,  # interaction constant, rad/(V·Å)
    table: Table,  # table of form factors, "lobato" or "kirkland"
    dtype: np.dtype[np.complexfloating],  # complex type of the transmission functions
    xp: ModuleType,
    *,
    # Projection of atoms to slices, "infinite" or "finite" (see `finite`).
    # It changes neither the density nor the projected potential.
    projection: Projection = "infinite",
    # Numbers of slices up to which density and potential are projected; by default all slices.
    depths: Sequence[int] | None = None,
    # number of bins of `density_by_depth`, which is computed for more than one
    depth_bins: int = 1,
    # What bonds change. Of equal slices, each has what is between its faces. Slices that follow
    # layers act there, and have what is nearer to them than to the next ones, in a specimen that
    # repeats along the beam.
    bonding: Bonding | None = None,
    # Called as `on_slice(done, total)` after each distinct slice.
    on_slice: Callable[[int, int], None] = lambda done, total: None,
) -> SlicedSpecimen:
    """Slices atoms along z and computes each distinct slice once."""
    listed = atom_list(atoms)
    depth_angstrom = float(atoms.cell.lengths()[2])
    cut = _cut(listed, depth_angstrom, plan, projection, table)
    marks = _marks(cut.faces_of_slice, cut.heights, bonding)
    distinct, order = potential.distinct_slices(listed, cut.plan, marks)

    fine = grid.refined(int(listed.numbers.max(initial=0)))
    builder = _SliceBuilder(
        grid=grid,
        fine=fine,
        factors=potential.element_factors(listed.numbers, fine, table, xp),
        antialias=xp.asarray(grid.antialias()),
        sigma=sigma,
        table=table,
        dtype=dtype,
        xp=xp,
    )
    depths = depths or [cut.plan.count]
    sums_up_to = [builder.no_sums() for _ in depths]
    transmissions: list[Array] = []
    with ThreadPoolExecutor(builder.threads()) as pool:
        projected = builder.project_all(pool, distinct, order, cut, bonding)
        for index, (sums, transmission) in enumerate(projected):
            transmissions.append(transmission)
            for up_to, totals in zip(depths, sums_up_to, strict=True):
                _add_repeated(totals, sums, np.count_nonzero(order[:up_to] == index))
            on_slice(index + 1, len(distinct))

    densities, potentials = _project_fields(
        sums_up_to, depths, cut.heights, listed, grid, table, bonding, xp
    )
    by_depth = None
    if depth_bins > 1:
        by_depth = density_by_depth(listed, depth_angstrom, grid, depth_bins, table, xp)
        if bonding:
            edges = np.linspace(cut.heights[0][0], cut.heights[-1][1], depth_bins + 1)
            by_depth += _bonds_by_depth(bonding, grid, edges.tolist(), xp)
    slices = Slices(transmissions, order, *cut.plan.distinct_thicknesses())
    return SlicedSpecimen(slices, densities, potentials, by_depth)


class _Cut(NamedTuple):
    """The slices of a specimen, and what crosses the faces between them."""

    plan: SlicePlan
    heights: list[tuple[float, float]]  # between which bonds change what a slice has, Å
    faces: list[AtomList]  # the atoms across each distinct face; none with "infinite"
    faces_of_slice: list[tuple[int, int]]  # indices of the two faces of each slice


def _cut(
    atoms: AtomList,
    depth_angstrom: float,
    plan: SlicePlan | float,
    projection: Projection,
    table: Table,
) -> _Cut:
    """Returns where a specimen is cut; arguments as for `build`."""
    if isinstance(plan, SlicePlan):
        heights = _heights(plan, centred=True)
    else:
        plan = equal_slices(atoms.z, depth_angstrom, plan)
        heights = _heights(plan, centred=False)
    if projection != "finite":
        return _Cut(plan, heights, [], [(0, 0)] * plan.count)
    edges = plan.faces_angstrom
    if edges is None:
        edges = np.linspace(0, depth_angstrom, plan.count + 1)
    else:  # displaced atoms are where they are
        plan = replace(plan, slice_of_atom=slice_between(atoms.z, edges))
    faces, face_indices = finite.faces(atoms, edges, table)
    return _Cut(plan, heights, faces, list(itertools.pairwise(face_indices.tolist())))


def _add_repeated(totals: dict[int, Array], sums: dict[int, Array], count: int) -> None:
    """Adds the structure sums of a slice that occurs `count` times to the totals."""
    if not count:
        return
    for element, of_element in sums.items():
        totals[element] += count * of_element


def _project_fields(
    sums_up_to: Sequence[dict[int, Array]],  # structure sums up to each depth
    depths: Sequence[int],  # numbers of slices
    heights: Sequence[tuple[float, float]],  # of `_Cut`
    atoms: AtomList,
    grid: Grid,
    table: Table,
    bonding: Bonding | None,
    xp: ModuleType,
) -> tuple[list[Array], list[Array]]:
    """Returns the projected densities and the projected potentials up to each depth."""
    electrons = potential.element_factors(atoms.numbers, grid, table, xp, xray)
    factors = potential.element_factors(atoms.numbers, grid, table, xp)
    start = heights[0][0]
    densities = []
    potentials = []
    for up_to, sums in zip(depths, sums_up_to, strict=True):
        density = potential.field(sums, electrons, grid, xp)
        projected = potential.POTENTIAL_CONSTANT * potential.field(sums, factors, grid, xp)
        if bonding:
            stop = heights[up_to - 1][1]
            density += xp.asarray(bonding.density(grid, start, stop))
            projected += xp.asarray(bonding.potential(grid, start, stop))
        densities.append(density)
        potentials.append(projected)
    return densities, potentials


@dataclass(frozen=True)
class _SliceBuilder:
    """Data shared by the transmissions of all slices."""

    grid: Grid  # the pixels of the waves
    fine: Grid  # the pixels on which transmissions are computed
    factors: dict[int, Array]  # form factors on `fine` by atomic number
    antialias: Array  # antialias aperture of `grid`
    sigma: float  # interaction constant, rad/(V·Å)
    table: Table
    dtype: np.dtype[np.complexfloating]  # complex type of the transmissions
    xp: ModuleType

    @property
    def real(self) -> np.dtype[np.generic]:
        """Real type of the transmissions."""
        return np.finfo(self.dtype).dtype

    def threads(self) -> int:
        """Returns how many slices are computed at a time."""
        if self.xp is not np:
            return 1
        item = np.dtype(self.dtype).itemsize
        return building_threads(self.fine.shape, len(self.factors), item)

    def no_sums(self) -> dict[int, Array]:
        """Returns `potential.structure_sums` of no atoms, by atomic number."""
        hy, hx = (n // 2 + 1 for n in self.grid.shape)
        return {element: self.xp.zeros((2, hy, 2, hx)) for element in self.factors}

    def submit_moved(
        self, pool: ThreadPoolExecutor, faces: Sequence[AtomList]
    ) -> list[Future[Array]]:
        """Submits, for each face, what its atoms have beyond it; see `finite`."""
        if not faces:
            return []
        expansions = []
        for element in self.factors:
            arguments = (element, self.fine, self.table, self.real, self.xp)
            expansions.append(pool.submit(finite.shells, *arguments))

        def move(face: AtomList) -> Array:
            shells = []
            for expansion in expansions:
                shells += expansion.result()
            return finite.moved_across_face(face, shells, self.fine, self.real, self.xp)

        return [pool.submit(move, face) for face in faces]

    def project_all(
        self,
        pool: ThreadPoolExecutor,
        distinct: Sequence[AtomList],  # the atoms of each distinct slice
        order: Integers,  # the index of each slice among them
        cut: _Cut,
        bonding: Bonding | None,
    ) -> Iterator[tuple[dict[int, Array], Array]]:
        """Submits all distinct slices; returns their results of `project` in order."""
        # Faces are submitted before the slices that wait for them, and run first: there is no
        # deadlock.
        moved = self.submit_moved(pool, cut.faces)

        def project(index: int) -> tuple[dict[int, Array], Array]:
            representative = int(np.argmax(order == index))
            across_faces = None
            if moved:
                begins, ends = cut.faces_of_slice[representative]
                across_faces = moved[ends].result() - moved[begins].result()
            bonds = None
            if bonding:
                bonds = bonding.potential(self.fine, *cut.heights[representative])
            return self.project(distinct[index], across_faces, bonds)

        return pool.map(project, range(len(distinct)))

    def project(
        self, atoms: AtomList, across_faces: Array | None, bonds: Array | None
    ) -> tuple[dict[int, Array], Array]:
        """Returns the structure sums on `grid` and the transmission of a slice.

        Args:
            across_faces: Transform of what atoms have beyond the faces of their slices.
            bonds: What bonds add to the potential, V·Å.
        """
        sums = potential.structure_sums(atoms, self.fine, self.xp, self.real)
        transform = potential.weighted_sum(sums, self.factors, self.fine, self.xp)
        if across_faces is not None:
            transform += across_faces
        projected = potential.POTENTIAL_CONSTANT * potential.real_field(transform, self.fine)
        if bonds is not None:
            projected += self.xp.asarray(bonds, projected.dtype)
        transmission = potential.transmission(projected, self.sigma, self.antialias, self.dtype)
        if self.fine is not self.grid:
            sums = potential.coarse_sums(sums, self.grid)
        return sums, transmission


def _bonds_by_depth(bonding: Bonding, grid: Grid, edges: Sequence[float], xp: ModuleType) -> Array:
    """Returns what bonds add to the density between one height and the next, (bins, ny, nx)."""
    changes = []
    for start, stop in itertools.pairwise(edges):
        changes.append(xp.asarray(bonding.density(grid, start, stop)))
    return xp.stack(changes)


def building_bytes(shape: tuple[int, int], elements: int, item: int) -> int:
    """Returns the bytes of arrays while a transmission is computed on a grid, for waves of `item`
    bytes per pixel.
    """
    return math.prod(shape) * item * (8 + elements) // 2


def building_threads(shape: tuple[int, int], elements: int, item: int) -> int:
    """Returns how many slices are computed at a time on a host: one per core, if they fit into a
    part of its memory.
    """
    return min(
        available_cores(), max(1, _MOST_BUILDING_BYTES // building_bytes(shape, elements, item))
    )


def _heights(plan: SlicePlan, centred: bool) -> list[tuple[float, float]]:
    """Returns the heights between which bonds change what a slice has, Å: see `build`."""
    if plan.faces_angstrom is not None:
        return list(itertools.pairwise(plan.faces_angstrom.tolist()))
    edges = np.append(plan.fronts_angstrom, plan.depth_angstrom)
    if centred:
        last_front = plan.fronts_angstrom[-1] - plan.depth_angstrom
        fronts = np.append(last_front, plan.fronts_angstrom)
        edges[:-1] = (fronts[:-1] + fronts[1:]) / 2
        edges[-1] = edges[0] + plan.depth_angstrom
    return list(itertools.pairwise(edges.tolist()))


def density_by_depth(
    atoms: AtomList, depth_angstrom: float, grid: Grid, bins: int, table: Table, xp: ModuleType = np
) -> Array:
    """Returns the electron density projected over each of equal bins along the beam.

    An atom is in the bin of its nucleus with its whole density, as it is in one slice with
    projection "infinite". The bins so add up to the projected density.

    Args:
        atoms: The specimen's atoms. Those above or below the cell are in the first or last bin, as
            in its slices.

    Returns:
        The densities (bins, ny, nx), e/Å², float64, not band-limited; the first bin is where the
        beam enters.
    """
    electrons = potential.element_factors(atoms.numbers, grid, table, xp, xray)
    bin_of_atom = slice_index(atoms.z, depth_angstrom, bins)
    fields = []
    for bin_index in range(bins):
        chosen = np.flatnonzero(bin_of_atom == bin_index)
        total = xp.zeros(grid.shape)
        for start in range(0, len(chosen), _ATOMS_AT_ONCE):
            sums = potential.structure_sums(atoms[chosen[start : start + _ATOMS_AT_ONCE]], grid, xp)
            total += potential.field(sums, electrons, grid, xp)
        fields.append(total)
    return xp.stack(fields)
