"""The layout of arrays for fused.c: lanes of vectors, digit-reversed orders and twiddle factors.

Columns of lens and propagator, and rows of a transmission, are stored as `waves`: neighbouring
columns (rows) are the lanes of the processor's vectors, and real and imaginary parts are separate,
(groups, length, 2, lanes). Transforms leave their output digit-reversed.
"""

import ctypes

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.engines.fused_library import LEVELS, Transform

Reals = npt.NDArray[np.floating]
Complexes = npt.NDArray[np.complexfloating]
Integers = npt.NDArray[np.integer]


_ALIGNMENT = 64  # of the widest vectors, and of a cache line


def radices(n: int) -> list[int]:
    """Returns the radices of a transform of n values; their product is n if it has no prime factors
    beyond 7.
    """
    factors = []
    for radix in (7, 5, 3, 8, 4, 2):
        # Radix 2 moves as much memory as radix 8 and computes less, so 16 is 4·4, not 8·2.
        while n % radix == 0 and (radix, n) != (8, 16):
            factors.append(radix)
            n //= radix
    return factors


def digit_reversed(n: int) -> Integers:
    """Returns the frequency, in multiples of the lowest, at each place of the output of a forward
    transform.
    """
    order = np.zeros(1, dtype=np.int64)
    step = 1
    for radix in radices(n):
        order = (order[:, None] + step * np.arange(radix)).ravel()
        step *= radix
    return order


def block_sizes(n: int) -> list[int]:
    """Returns how many values a block has after each level."""
    return [int(n // product) for product in np.cumprod(radices(n))]


def central_zeros(used: npt.NDArray[np.bool_]) -> int:
    """Returns how many values in the middle of a level, its highest frequencies, are not used."""
    values = len(used)
    for count in range(values, 0, -2):
        if not used[(values - count) // 2 : (values + count) // 2].any():
            return count
    return 0


def twiddle_factors(n: int, dtype: npt.DTypeLike) -> Complexes:
    """Returns exp(−2πi jk/(rm)) of all levels of radix r and blocks of m, j < m slowest, 0 < k <
    r.
    """
    levels = []
    for radix, block in zip(radices(n), block_sizes(n), strict=True):
        unit = -2j * np.pi / (radix * block)
        levels.append(np.exp(unit * np.arange(block)[:, None] * np.arange(1, radix)).ravel())
    return np.concatenate(levels).astype(dtype)


def transform_plan(n: int, twiddles: Complexes) -> Transform:
    """Returns the plan of a transform of n values."""
    factors = radices(n)
    sizes = block_sizes(n)
    offsets = [0]
    for radix, block in zip(factors, sizes, strict=True):
        offsets.append(offsets[-1] + 2 * block * (radix - 1))
    offsets.pop()
    integers = ctypes.c_int * LEVELS
    longs = ctypes.c_long * LEVELS
    return Transform(n, integers(*factors), integers(*sizes), longs(*offsets), twiddles.ctypes.data)


def as_waves(
    array: Array, lanes: int, real: npt.DTypeLike, group: slice | Integers = slice(None)
) -> Reals:
    """Returns an array (length, across) as waves (groups, length, 2, lanes), of the groups across
    in `group`.
    """
    length, across = array.shape
    padded = np.zeros((length, -(-across // lanes), lanes), array.dtype)
    padded.reshape(length, -1)[:, :across] = array
    picked = padded[:, group].swapaxes(0, 1)
    waves = aligned((len(picked), length, 2, lanes), real)
    waves[:, :, 0] = picked.real
    waves[:, :, 1] = picked.imag
    return waves


def conjugated_rows(array: Complexes, order: Integers, out: Reals) -> None:
    """Writes rows of (across, length), conjugated and in `order`, as waves, by groups that fit the
    cache of a core.
    """
    lanes = out.shape[-1]
    for group, start in zip(out, range(0, len(array), lanes), strict=True):
        rows = array[start : start + lanes].T[order]
        across = rows.shape[1]
        group[:, 0, :across] = rows.real
        group[:, 1, :across] = -rows.imag
        group[:, :, across:] = 0


def aligned(shape: tuple[int, ...], real: npt.DTypeLike) -> Reals:
    """Returns an empty array that is aligned for vectors; NumPy itself guarantees 16 bytes only."""
    size = int(np.prod(shape)) * np.dtype(real).itemsize
    buffer = np.empty(size + _ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % _ALIGNMENT
    return buffer[start : start + size].view(real).reshape(shape)
