"""Multislice in a core's cache: lays the data out for the compiled fused.c and calls it; `multislice` is its twin.

What one column needs of lens and propagator, one row of a transmission, lies in `waves`: neighbouring columns (rows)
are the lanes of the processor's vectors, real and imaginary parts apart, (groups, length, 2, lanes). Groups of columns
that neither lens nor propagator lights are left out. Transforms leave their output digit-reversed; what meets it there
is put in that order once, here. The propagator carries the inverse transforms' normalisation.
"""

import ctypes
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.errors import InputError, WorkError
from namsa.physics.grid import Grid
from namsa.physics.potential import Slices

Reals = npt.NDArray[np.floating[Any]]
Complexes = npt.NDArray[np.complexfloating[Any, Any]]
Integers = npt.NDArray[np.integer[Any]]
Scan = Callable[[npt.NDArray[np.float64]], Reals]

_Planned = tuple[Callable[[Complexes, Complexes], tuple[Reals, Reals]], Callable[[Reals], Complexes]]

LIBRARY = "_namsa_fused"  # as hatch_build.py installs it
_LEVELS = 32  # as in fused.c
_ALIGNMENT = 64  # of the widest vectors; a cache line's too


class _Transform(ctypes.Structure):
    _fields_ = (
        ("n", ctypes.c_int),
        ("radix", ctypes.c_int * _LEVELS),
        ("block", ctypes.c_int * _LEVELS),
        ("offset", ctypes.c_long * _LEVELS),
        ("twiddles", ctypes.c_void_p),
    )


class _Plan(ctypes.Structure):
    _fields_ = (
        ("y", _Transform),
        ("x", _Transform),
        ("number_bytes", ctypes.c_int),
        ("lanes", ctypes.c_int),
        ("padded_y", ctypes.c_int),
        ("padded_x", ctypes.c_int),
        ("groups", ctypes.c_int),
        ("slices", ctypes.c_int),
        ("dark_x", ctypes.c_int),
        ("dark_y", ctypes.c_void_p),
        ("group", ctypes.c_void_p),
        ("place", ctypes.c_void_p),
        ("row_of", ctypes.c_void_p),
        ("order", ctypes.c_void_p),
        ("transmissions", ctypes.c_void_p),
        ("lens", ctypes.c_void_p),
        ("fresnel", ctypes.c_void_p),
    )


def _load() -> ctypes.CDLL | None:
    found = importlib.util.find_spec(LIBRARY)
    if found is None or found.origin is None:
        return None
    library = ctypes.CDLL(found.origin)  # its calls release the interpreter's lock
    pointer = ctypes.c_void_p
    library.fused_patterns.argtypes = (ctypes.POINTER(_Plan), ctypes.c_int, pointer, pointer, pointer, pointer)
    library.fused_patterns.restype = None
    if library.fused_plan_bytes() != ctypes.sizeof(_Plan):
        raise WorkError(f"{found.origin} is of another namsa: install it again (in a checkout: scripts/uv sync)")
    return library


_library = _load()


def available() -> bool:
    """Whether the compiled part is there: not on a machine that had no C compiler when namsa was installed."""
    return _library is not None


def vector_bytes() -> int:
    """The widest vectors of this processor that the compiled part knows: 16, 32 or 64 bytes; 0 without that part."""
    return int(_library.fused_vector_bytes()) if _library else 0


def supports(shape: tuple[int, int], dtype: npt.DTypeLike = np.complex64) -> bool:
    """Whether the compiled part is there and has the radices that both axes of `shape` ask for; any complex `dtype`."""
    return available() and all(n > 1 and int(np.prod(radices(n))) == n for n in shape)


def radices(n: int) -> list[int]:
    """The levels of a transform of n values; their product is n if it has no prime factors beyond 7."""
    found = []
    for radix in (7, 5, 3, 8, 4, 2):
        # A radix of 2 reads and writes as much as one of 8 and does less: 16 is 4·4.
        while n % radix == 0 and (radix, n) != (8, 16):
            found.append(radix)
            n //= radix
    return found


def engine(
    grid: Grid, slices: Slices, fresnel: Complexes, *, vectors: int | None = None
) -> Callable[[Complexes], Scan]:
    """lens -> positions (n, 2) in Å -> patterns (n, ny, nx), zero frequency in the centre; threads may share it.

    lens, fresnel: (ny, nx) complex, zero frequency first; the patterns are of fresnel's precision
    vectors: width in bytes, no more than `vector_bytes()`, which it is if not given

    Raises InputError for a grid that is not supported.
    """
    planned = _planner(grid, slices, fresnel, vectors)
    ky, kx = grid.frequencies()

    def scan(lens: Complexes) -> Scan:
        run, _ = planned(lens)

        def patterns(positions: npt.NDArray[np.float64]) -> Reals:
            ramps_y = np.exp(-2j * np.pi * positions[:, :1] * ky[:, 0])
            return run(ramps_y, np.exp(-2j * np.pi * positions[:, 1:] * kx[0]))[0]

        return patterns

    return scan


def plane_waves(
    grid: Grid, slices: Slices, fresnel: Complexes, *, vectors: int | None = None
) -> Callable[[npt.NDArray[np.int64]], Complexes]:
    """Flat indices (n,) on the grid -> the exit waves (n, ny, nx) of the plane waves there, each of amplitude 1.

    Within the band limit: beyond, where the propagator is zero, there is none. Arguments and errors as in `engine`.
    """
    # A probe whose ramps light one place of the grid; what the workspace holds after it is its exit wave.
    run, waves = _planner(grid, slices, fresnel, vectors)((fresnel != 0).astype(fresnel.dtype))
    ny, nx = grid.shape

    def exits(indices: npt.NDArray[np.int64]) -> Complexes:
        out = np.empty((len(indices), ny, nx), fresnel.dtype)
        for wave, index in zip(out, indices, strict=True):
            row, column = (np.arange(n)[None] == i for n, i in zip(grid.shape, divmod(int(index), nx), strict=True))
            wave[...] = waves(run(row, column)[1])
        return out

    return exits


def _planner(grid: Grid, slices: Slices, fresnel: Complexes, vectors: int | None) -> Callable[[Complexes], _Planned]:
    """lens -> (run, waves).

    run: ramps (n, ny) and (n, nx), of which a probe is the product with the lens -> (patterns, workspace)
    waves: a workspace -> the last probe's exit wave (ny, nx), zero frequency first
    """
    library = _library
    if library is None:
        raise InputError("namsa was installed without its compiled engine: use the plain engine")
    if not supports(grid.shape):
        raise InputError(f"grid_shape {grid.shape} has prime factors beyond 7: use the plain engine")
    ny, nx = grid.shape
    dtype, real = fresnel.dtype, fresnel.real.dtype
    lanes = (vectors or vector_bytes()) // real.itemsize
    padded_y, padded_x = (-(-n // lanes) * lanes for n in grid.shape)
    order_y, order_x = digit_reversed(ny), digit_reversed(nx)
    twiddles = [_twiddles(n, dtype) for n in grid.shape]
    # In one piece, which NumPy asks the system to lay out on large pages.
    transmissions = _aligned((len(slices.transmissions), padded_y // lanes, nx, 2, lanes), real)
    for waves, t in zip(transmissions, slices.transmissions, strict=True):
        _conjugated_rows(t, order_x, waves)

    def planned(lens: Complexes) -> _Planned:
        lit = np.zeros(padded_x, dtype=bool)
        lit[:nx] = ((lens != 0) | (fresnel != 0)).any(axis=0)
        kept = lit.reshape(-1, lanes).any(axis=1)
        group = np.flatnonzero(kept).astype(np.intc)
        # How much of y's last level passes on, (radix, nx), and of x's first level takes, (radix,).
        passed = (fresnel[order_y] != 0).reshape(-1, radices(ny)[-1], nx).any(axis=0)
        taken = lit[:nx].reshape(radices(nx)[0], -1).any(axis=1)
        arrays = (
            np.array([_dark(passed[:, g * lanes : (g + 1) * lanes].any(axis=1)) for g in group], dtype=np.intc),
            group,
            np.where(kept, np.cumsum(kept) - 1, -1).astype(np.intc),
            ((order_y + ny // 2) % ny).astype(np.intc),
            np.asarray(slices.order, dtype=np.intc),
            np.array([t.ctypes.data for t in transmissions], dtype=np.uintp),
            _waves(lens[order_y], lanes, real, group),
            _waves(fresnel[order_y] / (ny * nx), lanes, real, group),
        )
        plan = _Plan(
            *(_transform(n, w) for n, w in zip(grid.shape, twiddles, strict=True)),
            real.itemsize,
            lanes,
            padded_y,
            padded_x,
            len(group),
            len(slices.order),
            _dark(taken),
            *(array.ctypes.data for array in arrays),
        )
        plan.alive = twiddles, transmissions, arrays  # the plan itself holds their addresses only

        def run(along_y: Complexes, along_x: Complexes) -> tuple[Reals, Reals]:
            n = len(along_y)
            ramps_y, ramps_x = along_y[:, order_y].astype(dtype, order="C"), _waves(along_x, lanes, real, group)
            workspace = _aligned((len(group) * padded_y + padded_x, 2, lanes), real)
            workspace[...] = 0
            out = np.empty((n, ny, nx), real)
            library.fused_patterns(
                ctypes.byref(plan), n, *(array.ctypes.data for array in (ramps_y, ramps_x, workspace, out))
            )
            return out, workspace

        def waves(workspace: Reals) -> Complexes:
            columns = workspace[: len(group) * padded_y].reshape(-1, padded_y, 2, lanes)[:, :ny].swapaxes(0, 1)
            wave = np.zeros((ny, padded_x // lanes, lanes), dtype)
            wave[order_y[:, None], group] = columns[:, :, 0] + 1j * columns[:, :, 1]
            return wave.reshape(ny, padded_x)[:, :nx]

        return run, waves

    return planned


def digit_reversed(n: int) -> Integers:
    """The frequency, in multiples of the lowest, at each place of a forward transform's output."""
    order, step = np.zeros(1, dtype=np.int64), 1
    for radix in radices(n):
        order = (order[:, None] + step * np.arange(radix)).ravel()
        step *= radix
    return order


def _blocks(n: int) -> list[int]:
    """How many values each of a level's blocks has, after the level has split them off."""
    return [int(n // product) for product in np.cumprod(radices(n))]


def _dark(lit: npt.NDArray[np.bool_]) -> int:
    """How many in the middle of a level's values, which are its highest frequencies, are not lit."""
    values = len(lit)
    counts = range(values, 0, -2)
    return next((n for n in counts if not lit[(values - n) // 2 : (values + n) // 2].any()), 0)


def _twiddles(n: int, dtype: npt.DTypeLike) -> Complexes:
    """exp(−2πi jk/(rm)) of all levels of radix r and blocks of m, j < m slowest, 0 < k < r."""
    levels = [
        np.exp(-2j * np.pi / (radix * block) * np.arange(block)[:, None] * np.arange(1, radix)).ravel()
        for radix, block in zip(radices(n), _blocks(n), strict=True)
    ]
    return np.concatenate(levels).astype(dtype)


def _transform(n: int, twiddles: Complexes) -> _Transform:
    factors, blocks = radices(n), _blocks(n)
    sizes = [2 * block * (radix - 1) for radix, block in zip(factors, blocks, strict=True)]
    offsets = [sum(sizes[:level]) for level in range(len(sizes))]
    integers, longs = ctypes.c_int * _LEVELS, ctypes.c_long * _LEVELS
    return _Transform(n, integers(*factors), integers(*blocks), longs(*offsets), twiddles.ctypes.data)


def _waves(array: Complexes, lanes: int, real: npt.DTypeLike, group: Any = slice(None)) -> Reals:
    """(length, across) as waves (groups, length, 2, lanes), of the groups across that `group` picks."""
    length, across = array.shape
    padded = np.zeros((length, -(-across // lanes), lanes), array.dtype)
    padded.reshape(length, -1)[:, :across] = array
    picked = padded[:, group].swapaxes(0, 1)
    waves = _aligned((len(picked), length, 2, lanes), real)
    waves[:, :, 0], waves[:, :, 1] = picked.real, picked.imag
    return waves


def _conjugated_rows(array: Complexes, order: Integers, out: Reals) -> None:
    """Rows of (across, length), conjugated and in `order`, as waves; a group at a time, which fits a core's cache."""
    lanes = out.shape[-1]
    for group, start in zip(out, range(0, len(array), lanes), strict=True):
        rows = array[start : start + lanes].T[order]
        across = rows.shape[1]
        group[:, 0, :across], group[:, 1, :across], group[:, :, across:] = rows.real, -rows.imag, 0


def _aligned(shape: tuple[int, ...], real: npt.DTypeLike) -> Reals:
    """An empty array that vectors can be loaded from; NumPy alone promises 16 bytes."""
    size = int(np.prod(shape)) * np.dtype(real).itemsize
    buffer = np.empty(size + _ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % _ALIGNMENT
    return buffer[start : start + size].view(real).reshape(shape)
