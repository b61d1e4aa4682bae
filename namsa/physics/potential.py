"""The specimen as thin slices: projected potentials from structure factors at the atoms' exact positions.

A slice's potential, infinite projection, is v_z(r) = (h²/2πm₀e)/A · Σ_k Σ_j o_j f_j(k) exp(2πi k·(r − r_j)) in V·Å,
with A the cell's area, o_j the occupancy (Kirkland 2010, equation 5.21). The sum over atoms is separable in x and y,
so that it is a matrix product, of cosines and sines at k >= 0: a real one; no atom is moved to a pixel.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import constants

from namsa.physics.backend import array_module, fft_module
from namsa.physics.form_factors import Table, electron
from namsa.physics.grid import Array, Grid

# h²/(2πm₀e) in V·Å²: the relativistic mass is in σ.
POTENTIAL_CONSTANT = constants.h**2 / (2 * np.pi * constants.m_e * constants.e) * 1e20
EDGE_ANGSTROM = 1e-9  # Å: an atom this little below a slice's edge belongs to the next slice


@dataclass(frozen=True)
class AtomList:
    """Atoms as plain arrays: `numbers` (n,), `yx` (n, 2) and `z` (n,) in Å, `occupancies` (n,)."""

    numbers: npt.NDArray[np.int64]
    yx: npt.NDArray[np.float64]
    z: npt.NDArray[np.float64]
    occupancies: npt.NDArray[np.float64]

    def __getitem__(self, index: Any) -> "AtomList":
        return AtomList(self.numbers[index], self.yx[index], self.z[index], self.occupancies[index])


@dataclass(frozen=True)
class Slices:
    """A crystal repeats: `transmissions` holds the distinct slices, `order` which of them each slice is.

    transmissions: (n_distinct, ny, nx) complex, band-limited; order: (n_slices,); thickness_angstrom of one slice.
    """

    transmissions: Sequence[Array]
    order: npt.NDArray[np.int64]
    thickness_angstrom: float


def slice_count(depth_angstrom: float, slice_thickness_angstrom: float) -> int:
    """How many equal slices, none thicker than wanted, fill the cell."""
    return max(1, int(np.ceil(depth_angstrom / slice_thickness_angstrom - EDGE_ANGSTROM)))


def slice_index(z: npt.NDArray[np.float64], depth_angstrom: float, n_slices: int) -> npt.NDArray[np.int64]:
    """Which slice each height lies in."""
    return np.floor((z + EDGE_ANGSTROM) / (depth_angstrom / n_slices)).astype(np.int64) % n_slices


def distinct_slices(
    atoms: AtomList, depth_angstrom: float, n_slices: int, marks: Sequence[Any] | None = None
) -> tuple[list[AtomList], npt.NDArray[np.int64]]:
    """The slices that differ in elements, (x, y) or mark, and for each slice which of them it is.

    Slice i holds the atoms with i·dz <= z < (i + 1)·dz; atoms above or below the cell wrap, as thermal displacement
    across its faces asks for.
    """
    index = slice_index(atoms.z, depth_angstrom, n_slices)
    flat = AtomList(atoms.numbers, atoms.yx, np.zeros_like(atoms.z), atoms.occupancies)
    return find_distinct([flat[index == i] for i in range(n_slices)], marks)


def find_distinct(
    slices: Sequence[AtomList], marks: Sequence[Any] | None = None
) -> tuple[list[AtomList], npt.NDArray[np.int64]]:
    """Those of `slices` that differ in atoms or mark, atoms in fixed order, and for each slice which of them it is."""
    found: list[AtomList] = []
    seen: dict[Any, int] = {}
    order = np.empty(len(slices), dtype=np.int64)
    for i, members in enumerate(slices):
        z, yx = np.round(members.z, 9) + 0.0, np.round(members.yx, 9) + 0.0
        rank = np.lexsort((z, *yx.T, members.numbers))
        content = (members.numbers, yx, z, np.round(members.occupancies, 9))
        key = (b"".join(values[rank].tobytes() for values in content), marks and marks[i])
        if key not in seen:
            seen[key] = len(found)
            found.append(members[rank])
        order[i] = seen[key]
    return found, order


def structure_sums(atoms: AtomList, grid: Grid, xp: Any, dtype: npt.DTypeLike = np.float64) -> dict[int, Array]:
    """Σ_j o_j u_j(ky) w_j(kx) for each element, with (cos, sin) of 2πk·r along either axis for u and w.

    Frequencies ky, kx >= 0 are enough: (2, ny // 2 + 1, 2, nx // 2 + 1), real `dtype`; `half_plane` makes the complex
    sum of it. At the Nyquist frequency of an even axis exp(iα) and exp(−iα) are one and the same: their mean, the
    cosine, stands for both and makes the field real.
    """
    atoms = atoms[np.argsort(atoms.numbers, kind="stable")]
    along_y, along_x = phase_factors(atoms.yx, grid, xp, dtype)
    along_y *= xp.asarray(atoms.occupancies.astype(dtype))[:, None, None]
    numbers, starts = np.unique(atoms.numbers, return_index=True)
    parts = [slice(start, stop) for start, stop in itertools.pairwise([*starts, len(along_y)])]
    return {
        int(number): merge_nyquist(sum_products(along_y[part], along_x[part]), grid)
        for number, part in zip(numbers, parts, strict=True)
    }


def phase_factors(
    yx: npt.NDArray[np.float64], grid: Grid, xp: Any, dtype: npt.DTypeLike, counts: tuple[int, int] | None = None
) -> tuple[Array, Array]:
    """cos and sin of 2πk·r along y and along x, (n, 2, n_k), of the frequencies k >= 0 or the first `counts` of them.

    Whole turns go in double precision, so that no digits of what is left are lost to `dtype`.
    """
    found = []
    for axis, count in enumerate(counts or (n // 2 + 1 for n in grid.shape)):
        turns = xp.asarray(yx[:, axis, None] / grid.extent_angstrom[axis]) * xp.arange(count)
        turns -= xp.rint(turns)
        angles = (2 * np.pi * turns).astype(dtype)
        found.append(xp.empty((len(yx), 2, count), dtype))
        xp.cos(angles, out=found[axis][:, 0])
        xp.sin(angles, out=found[axis][:, 1])
    return found[0], found[1]


def sum_products(along_y: Array, along_x: Array) -> Array:
    """`phase_factors` along y times those along x, summed over atoms: (2, n_ky, 2, n_kx)."""
    shape = along_y.shape[1:] + along_x.shape[1:]
    rows, columns = (a.reshape(len(a), a.shape[1] * a.shape[2]) for a in (along_y, along_x))
    return (rows.T @ columns).reshape(shape)


def merge_nyquist(total: Array, grid: Grid) -> Array:
    """In place: what remains of products of cos and sin, where frequencies k and −k are the same."""
    even_y, even_x = (n % 2 == 0 for n in grid.shape)
    corner = total[1, -1, 1, -1].copy()
    if even_y:
        total[1, -1] = 0
    if even_x:
        total[:, :, 1, -1] = 0
    if even_y and even_x:
        total[1, -1, 1, -1] = corner
    return total


def quadrant_frequencies(grid: Grid) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(ky >= 0, kx >= 0), shapes (ny // 2 + 1, 1) and (1, nx // 2 + 1), 1/Å."""
    ky, kx = grid.frequencies()
    return np.abs(ky[: grid.shape[0] // 2 + 1]), np.abs(kx[:, : grid.shape[1] // 2 + 1])


def element_factors(
    numbers: npt.NDArray[np.int64], grid: Grid, table: Table, xp: Any, factor: Callable[..., Any] = electron
) -> dict[int, Array]:
    """f(k) for each element at `quadrant_frequencies`, float64."""
    ky, kx = quadrant_frequencies(grid)
    squared = xp.asarray(ky**2 + kx**2)
    return {int(number): factor(int(number), squared, table) for number in np.unique(numbers)}


def weighted_sum(sums: dict[int, Array], factors: dict[int, Array], grid: Grid, xp: Any) -> Array:
    """Σ over elements of f(k) times `structure_sums`, in their layout and precision."""
    hy, hx = (n // 2 + 1 for n in grid.shape)
    total = xp.zeros((2, hy, 2, hx), np.float32)
    for number, one in sums.items():
        total = total + factors[number].astype(one.dtype, copy=False)[:, None] * one
    return total


def field(sums: dict[int, Array], factors: dict[int, Array], grid: Grid, xp: Any) -> Array:
    """Σ_j f_j as a real periodic field per Å², (ny, nx), in the precision of `sums`: e/Å² of X-ray factors, 1/Å of
    electron factors."""
    return real_field(weighted_sum(sums, factors, grid, xp), grid)


def half_plane(total: Array, grid: Grid) -> Array:
    """Σ_j f_j exp(−2πi k·r_j), (ny, nx // 2 + 1) complex, the half kx >= 0, from its products of cos and sin."""
    xp = array_module(total)
    (cos_cos, cos_sin), (sin_cos, sin_sin) = total.swapaxes(1, 2)
    ny, hy = grid.shape[0], total.shape[1]
    below = slice(ny - hy, 0, -1)  # the rows of −ky, as the transform has them
    transform = xp.empty((ny, total.shape[3]), np.result_type(total.dtype, np.complex64))
    transform.real[:hy], transform.imag[:hy] = cos_cos - sin_sin, -(sin_cos + cos_sin)
    transform.real[hy:], transform.imag[hy:] = (cos_cos + sin_sin)[below], (sin_cos - cos_sin)[below]
    return transform


def real_field(total: Array, grid: Grid) -> Array:
    """The real periodic field per Å², (ny, nx), whose Fourier sum `half_plane` makes of `total`."""
    transform = half_plane(total, grid)
    area = grid.extent_angstrom[0] * grid.extent_angstrom[1]
    return fft_module(transform).irfft2(transform, s=grid.shape) * (grid.shape[0] * grid.shape[1] / area)


def transmission(potential: Array, sigma: float, antialias: Array, dtype: Any) -> Array:
    """t = exp(iσv_z), band-limited by the aperture `antialias` (ny, nx); complex `dtype`, (ny, nx)."""
    fft, xp = fft_module(potential), array_module(potential)
    t = xp.empty(potential.shape, dtype)
    phase = (sigma * potential).astype(t.real.dtype, copy=False)
    t.real, t.imag = xp.cos(phase), xp.sin(phase)
    return fft.ifft2(fft.fft2(t, overwrite_x=True) * antialias.astype(phase.dtype, copy=False), overwrite_x=True)
