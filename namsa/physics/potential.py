"""The specimen as thin slices: projected potentials from structure factors at the atoms' exact
positions.

The potential of a slice in infinite projection is v_z(r) = (h²/2πm₀e)/A · Σ_k Σ_j o_j f_j(k)
exp(2πi k·(r − r_j)) in V·Å, with A the cell's area and o_j the occupancy (Kirkland 2010, equation
5.21). The sum over atoms is separable in x and y. It is computed as a product of real matrices, of
cosines and sines at k >= 0; no atom is moved to a pixel.
"""

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np
import numpy.typing as npt
from scipy import constants

from namsa.base.arrays import Booleans, Floats, Integers
from namsa.physics.backend import array_module, fft_module
from namsa.physics.form_factors import Table, electron
from namsa.physics.grid import Array, Grid
from namsa.physics.slice_plan import SlicePlan

# h²/(2πm₀e) in V·Å². The relativistic mass is part of σ.
POTENTIAL_CONSTANT = constants.h**2 / (2 * np.pi * constants.m_e * constants.e) * 1e20


@dataclass(frozen=True)
class AtomList:
    """Atoms as arrays."""

    numbers: Integers  # atomic numbers (n,)
    yx: Floats  # positions (n, 2) across the beam, Å
    z: Floats  # heights (n,) along the beam, Å
    occupancies: Floats  # occupancies (n,)

    def __getitem__(self, index: Integers | Booleans | slice) -> "AtomList":
        return AtomList(self.numbers[index], self.yx[index], self.z[index], self.occupancies[index])


@dataclass(frozen=True)
class Slices:
    """The specimen's transmission functions. A crystal repeats, so that each distinct slice is
    stored once.
    """

    # transmission functions of the distinct slices, each (ny, nx) complex, band-limited
    transmissions: Sequence[Array]
    # the index of each slice's transmission function, (n_slices,), from the entrance down
    order: Integers
    thicknesses_angstrom: Floats  # the distinct thicknesses of slices, (m,), Å
    # the index of each slice's thickness, and so of its propagator, (n_slices,)
    propagators: Integers

    @classmethod
    def equally_thick(
        cls, transmissions: Sequence[Array], order: Integers, thickness_angstrom: float
    ) -> "Slices":
        """Returns slices that share one propagator."""
        return cls(transmissions, order, np.array([thickness_angstrom]), np.zeros_like(order))

    def among(self, thicknesses_angstrom: Floats) -> "Slices":
        """Returns the same slices with their thicknesses as indices among others, (m,), ascending,
        which contain theirs.
        """
        index = np.searchsorted(thicknesses_angstrom, self.thicknesses_angstrom)
        return replace(
            self, thicknesses_angstrom=thicknesses_angstrom, propagators=index[self.propagators]
        )

    def parts(self, depths: Sequence[int]) -> Iterator["Slices"]:
        """Yields the slices between one depth and the next, from the entrance to the last depth.

        Args:
            depths: Numbers of slices, increasing.
        """
        for start, stop in itertools.pairwise((0, *depths)):
            yield replace(
                self, order=self.order[start:stop], propagators=self.propagators[start:stop]
            )


def distinct_slices(
    atoms: AtomList, plan: SlicePlan, marks: Sequence[Hashable] | None = None
) -> tuple[list[AtomList], Integers]:
    """Returns the slices that differ in elements, (x, y) or mark, and the index of each slice among
    them.

    Args:
        plan: The slice of each atom.
        marks: Values (n_slices,) by which slices differ besides their atoms.

    Returns:
        The distinct slices, with z = 0, and indices (n_slices,).
    """
    flat = AtomList(atoms.numbers, atoms.yx, np.zeros_like(atoms.z), atoms.occupancies)
    # A stable sort keeps the order of the atoms within a slice.
    by_slice = np.argsort(plan.slice_of_atom, kind="stable")
    ends = np.searchsorted(plan.slice_of_atom[by_slice], np.arange(plan.count + 1))
    slices = []
    for start, stop in itertools.pairwise(ends.tolist()):
        slices.append(flat[by_slice[start:stop]])
    return find_distinct(slices, marks)


def find_distinct(
    slices: Sequence[AtomList], marks: Sequence[Hashable] | None = None
) -> tuple[list[AtomList], Integers]:
    """Returns those of `slices` that differ in atoms or mark, and the index of each slice among
    them.

    Atoms are returned in a fixed order, so that equal slices have equal bits.
    """
    different: list[AtomList] = []
    index_of: dict[Hashable, int] = {}
    order = np.empty(len(slices), dtype=np.int64)
    for i, members in enumerate(slices):
        z = np.round(members.z, 9) + 0.0
        yx = np.round(members.yx, 9) + 0.0
        rank = np.lexsort((z, *yx.T, members.numbers))
        content = (members.numbers, yx, z, np.round(members.occupancies, 9))
        key: Hashable = b"".join(values[rank].tobytes() for values in content)
        if marks:
            key = (key, marks[i])
        if key not in index_of:
            index_of[key] = len(different)
            different.append(members[rank])
        order[i] = index_of[key]
    return different, order


def structure_sums(
    atoms: AtomList, grid: Grid, xp: ModuleType, dtype: npt.DTypeLike = np.float64
) -> dict[int, Array]:
    """Returns Σ_j o_j u_j(ky) w_j(kx) of each element, with u and w the (cos, sin) of 2πk·r along y
    and x.

    Frequencies ky, kx >= 0 are enough; `half_plane` computes the complex sum from them. At the
    Nyquist frequency of an even axis exp(iα) and exp(−iα) coincide. Their mean, the cosine,
    represents both and makes the field real.

    Returns:
        Sums by atomic number, each (2, ny // 2 + 1, 2, nx // 2 + 1).
    """
    atoms = atoms[np.argsort(atoms.numbers, kind="stable")]
    along_y, along_x = phase_factors(atoms.yx, grid, xp, dtype)
    along_y *= xp.asarray(atoms.occupancies.astype(dtype))[:, None, None]
    numbers, starts = np.unique(atoms.numbers, return_index=True)
    ends = itertools.pairwise([*starts, len(along_y)])
    sums = {}
    for atomic_number, (start, stop) in zip(numbers.tolist(), ends, strict=True):
        products = sum_products(along_y[start:stop], along_x[start:stop])
        sums[atomic_number] = merge_nyquist(products, grid)
    return sums


def phase_factors(
    yx: Floats,
    grid: Grid,
    xp: ModuleType,
    dtype: npt.DTypeLike,
    counts: tuple[int, int] | None = None,
) -> tuple[Array, Array]:
    """Returns cos and sin of 2πk·r along y and along x at frequencies k >= 0.

    Whole turns are removed in double precision, so that the rounding to `dtype` loses no digits of
    the remainder.

    Args:
        yx: Positions (n, 2), Å.
        counts: Numbers of frequencies (ky, kx); by default all.

    Returns:
        Factors along y and along x, each (n, 2, n_k).
    """
    ny, nx = grid.shape
    factors = []
    for axis, count in enumerate(counts or (ny // 2 + 1, nx // 2 + 1)):
        turns = xp.asarray(yx[:, axis, None] / grid.extent_angstrom[axis]) * xp.arange(count)
        turns -= xp.rint(turns)
        angles = (2 * np.pi * turns).astype(dtype)
        factors.append(xp.empty((len(yx), 2, count), dtype))
        xp.cos(angles, out=factors[axis][:, 0])
        xp.sin(angles, out=factors[axis][:, 1])
    return factors[0], factors[1]


def sum_products(along_y: Array, along_x: Array) -> Array:
    """Returns the products of `phase_factors` along y and along x, summed over atoms: (2, n_ky, 2,
    n_kx).
    """
    shape = along_y.shape[1:] + along_x.shape[1:]
    factors_y = along_y.reshape(len(along_y), along_y.shape[1] * along_y.shape[2])
    factors_x = along_x.reshape(len(along_x), along_x.shape[1] * along_x.shape[2])
    return (factors_y.T @ factors_x).reshape(shape)


def coarse_sums(sums: dict[int, Array], grid: Grid) -> dict[int, Array]:
    """Returns those of `structure_sums` on finer pixels that a grid has frequencies for."""
    hy, hx = (n // 2 + 1 for n in grid.shape)
    coarse = {}
    for atomic_number, total in sums.items():
        coarse[atomic_number] = merge_nyquist(total[:, :hy, :, :hx].copy(), grid)
    return coarse


def merge_nyquist(total: Array, grid: Grid) -> Array:
    """Sets to zero, in place, the products that vanish because k and −k coincide at the Nyquist
    frequency.
    """
    even_y = grid.shape[0] % 2 == 0
    even_x = grid.shape[1] % 2 == 0
    corner = total[1, -1, 1, -1].copy()
    if even_y:
        total[1, -1] = 0
    if even_x:
        total[:, :, 1, -1] = 0
    if even_y and even_x:
        total[1, -1, 1, -1] = corner
    return total


def quadrant_frequencies(grid: Grid) -> tuple[Floats, Floats]:
    """Returns the frequencies (ky >= 0, kx >= 0), shapes (ny // 2 + 1, 1) and (1, nx // 2 + 1),
    1/Å.
    """
    ky, kx = grid.frequencies()
    return np.abs(ky[: grid.shape[0] // 2 + 1]), np.abs(kx[:, : grid.shape[1] // 2 + 1])


def element_factors(
    numbers: Integers,
    grid: Grid,
    table: Table,
    xp: ModuleType,
    factor: Callable[..., Array] = electron,
) -> dict[int, Array]:
    """Returns the form factors of each element at `quadrant_frequencies`, by atomic number,
    float64.

    Args:
        numbers: Atomic numbers, of which each element is taken once.
        factor: `form_factors.electron` or `form_factors.xray`.
    """
    ky, kx = quadrant_frequencies(grid)
    squared = xp.asarray(ky**2 + kx**2)
    return {
        int(atomic_number): factor(int(atomic_number), squared, table)
        for atomic_number in np.unique(numbers)
    }


def weighted_sum(
    sums: dict[int, Array], factors: dict[int, Array], grid: Grid, xp: ModuleType
) -> Array:
    """Returns the sum over elements of form factors times `structure_sums`, in their layout and
    precision.
    """
    hy, hx = (n // 2 + 1 for n in grid.shape)
    total = xp.zeros((2, hy, 2, hx), np.float32)
    for atomic_number, of_element in sums.items():
        factor = factors[atomic_number].astype(of_element.dtype, copy=False)
        total = total + factor[:, None] * of_element
    return total


def field(sums: dict[int, Array], factors: dict[int, Array], grid: Grid, xp: ModuleType) -> Array:
    """Returns the field of all atoms, (ny, nx), in the precision of `sums`.

    Args:
        factors: `element_factors`. X-ray factors give a density in e/Å², electron factors a field
            in 1/Å, which times `POTENTIAL_CONSTANT` is a projected potential in V·Å.
    """
    return real_field(weighted_sum(sums, factors, grid, xp), grid)


def half_plane(total: Array, grid: Grid) -> Array:
    """Returns Σ_j f_j exp(−2πi k·r_j) for kx >= 0, (ny, nx // 2 + 1) complex, from products of cos
    and sin.
    """
    xp = array_module(total)
    (cos_cos, cos_sin), (sin_cos, sin_sin) = total.swapaxes(1, 2)
    ny = grid.shape[0]
    hy = total.shape[1]
    below = slice(ny - hy, 0, -1)  # the rows of −ky in the order of the transform
    transform = xp.empty((ny, total.shape[3]), np.result_type(total.dtype, np.complex64))
    transform.real[:hy] = cos_cos - sin_sin
    transform.imag[:hy] = -(sin_cos + cos_sin)
    transform.real[hy:] = (cos_cos + sin_sin)[below]
    transform.imag[hy:] = (sin_cos - cos_sin)[below]
    return transform


def real_field(total: Array, grid: Grid) -> Array:
    """Returns the real periodic field per Å², (ny, nx), whose Fourier sum is
    `half_plane(total)`.
    """
    transform = half_plane(total, grid)
    area = grid.extent_angstrom[0] * grid.extent_angstrom[1]
    return fft_module(transform).irfft2(transform, s=grid.shape) * (
        grid.shape[0] * grid.shape[1] / area
    )


def transmission(potential: Array, sigma: float, antialias: Array, dtype: npt.DTypeLike) -> Array:
    """Returns the band-limited transmission function t = exp(iσv_z) of a slice, (ny, nx).

    Args:
        potential: Projected potential, V·Å, (ny, nx) or on pixels that are smaller by a whole
            factor.
        antialias: Antialias aperture (ny, nx), zero frequency first.
    """
    fft = fft_module(potential)
    xp = array_module(potential)
    t = xp.empty(potential.shape, dtype)
    phase = (sigma * potential).astype(t.real.dtype, copy=False)
    t.real = xp.cos(phase)
    t.imag = xp.sin(phase)
    if t.shape == antialias.shape:
        spectrum = fft.fft2(t, overwrite_x=True)
    else:  # what the waves have no frequencies for is left out after each axis
        rows, columns = (xp.asarray(np.fft.fftfreq(n, 1 / n).astype(int)) for n in antialias.shape)
        along_x = fft.fft(t, axis=1, overwrite_x=True)[:, columns]
        spectrum = fft.fft(along_x, axis=0, overwrite_x=True)[rows]
        spectrum *= antialias.size / t.size
    return fft.ifft2((spectrum * antialias).astype(dtype, copy=False), overwrite_x=True)
