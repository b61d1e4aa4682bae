"""Plane-wave reuse: multislice once for every plane wave of the lens, and every probe as a sum of them.

Multislice is linear. A probe at r is the lens's plane waves b, of amplitudes ψ_b exp(−2πi k_b·r), and so its exit wave
is the same sum over their exit waves S_b(k), the scattering matrix. That is PRISM (Ophus, Adv. Struct. Chem. Imaging 3
(2017) 13) with interpolation factor 1: all plane waves of the periodic grid take part, and the patterns are those of
multislice to rounding. S knows the specimen, not the lens: aberrations, defoci and source points share it.

The sum over b is one over ky for every row of the scan, then one over kx for every probe: matrix products, of which a
raster needs far fewer than a list of positions. S has only the pixels that are seen. Where reuse pays there are fewer
plane waves than probes, and S is smaller than the probes' exit waves together would be.
"""

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.engines import multislice
from namsa.physics.backend import array_module, in_batches, to_host
from namsa.physics.grid import Array, Grid

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

LARGEST_MATRIX_BYTES = 2**31
BATCH_BYTES = 2**25  # of patterns worked out together; for rows to share what is read of S, up to four times that
_BATCH_ROWS = 8
_WAVES_BYTES = (2**20, 2**28)  # host, device: of plane waves together, as simulate has it for probes
_PRODUCT_BYTES = (2**20, 2**28)  # host, device: of S in one product, which stays in a core's cache
_ROWS, _PIXELS = 32, 256  # of the scan, at most, and of the pattern, at least, in one product

# What an operation takes, those of the probes' propagation as the unit. Transforms beat small matrix products; and
# twice over, because S also takes memory, and because a GPU's plane waves go the plain way.
PLANE_WAVE_COST = 2.0
PRODUCT_COST = 12.0


class Work(NamedTuple):
    """What the cost of a specimen's patterns follows from, on whatever machine.

    probes, rows: positions, and runs of them with one y
    coherent: probes at each position, which differ in lens and shift (see `coherence.modes`)
    beams, columns: plane waves that the lens lights, and how many kx they have
    seen: reciprocal pixels that are worked out
    """

    shape: tuple[int, int]
    slices: int
    probes: int
    rows: int
    coherent: int
    beams: int
    columns: int
    seen: int


class Reuse(NamedTuple):
    """What `engine` needs to know of the lens and the detector, and how many positions to give it at once."""

    beams: Booleans
    wanted: Booleans
    batch: int


def choose(
    method: Literal["auto", "multislice", "prism"],
    slices: int,
    positions: npt.NDArray[np.float64],
    coherent: int,
    beams: Booleans,
    fresnel: Array,
    matrices: tuple[Any, ...] | None,
) -> Reuse | None:
    """None where probes are to be propagated one by one; "auto" asks `pays`. beams: as `engine` has them."""
    wanted = seen(fresnel, matrices)
    work = count(slices, positions, coherent, beams, wanted)
    if method == "multislice" or (method == "auto" and not pays(work, fresnel.dtype.itemsize)):
        return None
    return Reuse(beams, wanted, batch(work.shape, fresnel.real.dtype.itemsize, work.probes // work.rows))


def propagation_operations(work: Work, waves: int) -> float:
    """Floating-point operations that take `waves` through the specimen: two transforms and two products a slice."""
    pixels = work.shape[0] * work.shape[1]
    return waves * work.slices * pixels * (2 * 5 * float(np.log2(pixels)) + 2 * 6)


def product_operations(work: Work) -> float:
    """Floating-point operations that make all patterns of S."""
    return 8.0 * work.coherent * work.seen * (work.rows * work.beams + work.probes * work.columns)


def pays(work: Work, itemsize: int) -> bool:
    """Whether reuse takes fewer operations, weighted, and S, `itemsize` bytes a number, is of a bearable size.

    Counted, not measured: the choice, and with it a sample's last digits, is the same on every machine.
    """
    reuse = PLANE_WAVE_COST * propagation_operations(work, work.beams) + PRODUCT_COST * product_operations(work)
    small = work.beams * work.seen * itemsize <= LARGEST_MATRIX_BYTES
    return small and reuse < propagation_operations(work, work.probes * work.coherent)


def count(slices: int, positions: npt.NDArray[np.float64], coherent: int, beams: Booleans, wanted: Booleans) -> Work:
    """The work of `positions` (n, 2), with `beams` and `wanted` as `engine` has them.

    Rows are runs of positions with one y: in a list that is no raster, nearly as many as positions.
    """
    (ny, nx), lit = beams.shape, (int(np.count_nonzero(beams)), int(np.count_nonzero(beams.any(axis=0))))
    rows = len(_run_lengths(positions[:, 0]))
    return Work((ny, nx), slices, len(positions), rows, coherent, *lit, int(np.count_nonzero(wanted)))


def seen(fresnel: Array, matrices: tuple[Any, ...] | None = None) -> Booleans:
    """The pixels that the propagator lets through and the detector's `bin_matrices` see, (ny, nx), zero frequency
    first."""
    through = to_host(fresnel) != 0
    if matrices is None:
        return through
    rows, columns = to_host(matrices[0]).any(axis=0), to_host(matrices[1]).any(axis=1)
    return through & np.fft.ifftshift(np.outer(rows, columns))


def batch(shape: tuple[int, int], itemsize: int, row: int = 1) -> int:
    """How many positions to work out at once, in whole rows of `row` positions where that can be."""
    pattern = shape[0] * shape[1] * itemsize
    count = max(1, BATCH_BYTES // pattern, min(_BATCH_ROWS * row, 4 * BATCH_BYTES // pattern))
    return count - count % row if count > row else count


def scattering_matrix(
    exit_waves: multislice.PlaneWaves,
    fresnel: Array,
    beams: Integers,
    pixels: Integers,
    on_beams: Callable[[int, int], None] = lambda done, total: None,
) -> Array:
    """S (n_beams, n_pixels), `exit_waves` of the plane waves `beams` at `pixels`, all flat indices on the grid.

    Plane waves are propagated a few at a time, in threads on a CPU; each writes its own row.
    """
    xp, on_host = array_module(fresnel), isinstance(fresnel, np.ndarray)
    together = max(1, _WAVES_BYTES[not on_host] // fresnel.nbytes)
    matrix, wanted = xp.empty((len(beams), len(pixels)), fresnel.dtype), xp.asarray(pixels)

    def work(part: slice) -> None:
        matrix[part] = exit_waves(beams[part]).reshape(part.stop - part.start, -1)[:, wanted]

    in_batches(work, len(beams), together, on_host, on_beams)
    return matrix


def engine(
    grid: Grid,
    exit_waves: multislice.PlaneWaves,
    fresnel: Array,
    beams: Booleans,
    wanted: Booleans,
    on_beams: Callable[[int, int], None] = lambda done, total: None,
) -> Callable[[Array], multislice.Scan]:
    """lens -> positions (n, 2) in Å -> patterns (n, ny, nx), zero frequency in the centre; threads may share it.

    exit_waves: an engine's `plane_waves`
    lens, fresnel: (ny, nx) complex, zero frequency first; the patterns are of fresnel's precision
    beams: (ny, nx), where any of the lenses is not zero, zero frequency first
    wanted: (ny, nx), the pixels to work out, zero frequency first; the others are left at zero (see `seen`)

    Threads that share it should have a BLAS of one thread each.
    """
    xp, dtype, (ny, nx) = array_module(fresnel), fresnel.dtype, fresnel.shape
    column, row = np.nonzero(beams.T)  # sorted by column, each of which is one product
    places = np.flatnonzero(np.fft.fftshift(wanted))
    pixels = np.fft.fftshift(np.arange(ny * nx).reshape(ny, nx)).ravel()[places]
    matrix = scattering_matrix(exit_waves, fresnel, row * nx + column, pixels, on_beams)

    starts = np.flatnonzero(np.diff(column, prepend=-1))
    columns = [slice(a, b) for a, b in zip(starts, [*starts[1:], len(column)], strict=True)]
    ky, kx = grid.frequencies()
    ky, kx, places = xp.asarray(ky[row, 0]), xp.asarray(kx[0, column[starts]]), xp.asarray(places)
    width = max(_PIXELS, _PRODUCT_BYTES[xp is not np] // (len(column) * dtype.itemsize))

    def scan(lens: Array) -> multislice.Scan:
        amplitudes = lens[xp.asarray(row), xp.asarray(column)]

        def patterns(positions: npt.NDArray[np.float64]) -> Array:
            out = xp.zeros((len(positions), ny * nx), fresnel.real.dtype)
            y, x = xp.asarray(positions).T[:, :, None]
            for first, count, length in _rasters(positions[:, 0]):
                block = slice(first, first + count * length)
                by_y = xp.exp(-2j * np.pi * y[block][::length] * ky).astype(dtype) * amplitudes
                by_x = xp.exp(-2j * np.pi * x[block] * kx).astype(dtype).reshape(count, length, -1)
                for start in range(0, len(places), width):
                    part, place = matrix[:, start : start + width], places[start : start + width]
                    lines = xp.empty((len(columns), count, len(place)), dtype)
                    for line, members in zip(lines, columns, strict=True):
                        xp.matmul(by_y[:, members], part[members], out=line)
                    waves = (by_x @ lines.swapaxes(0, 1)).reshape(count * length, -1)
                    out[block, place] = waves.real**2 + waves.imag**2
            return out.reshape(-1, ny, nx)

        return patterns

    return scan


def _run_lengths(y: npt.NDArray[np.float64]) -> Integers:
    return np.diff(np.flatnonzero(np.diff(y, prepend=np.nan, append=np.nan) != 0))


def _rasters(y: npt.NDArray[np.float64]) -> Iterator[tuple[int, int, int]]:
    """Positions as blocks of a few rows of one y and one length: (the first position, rows, positions a row)."""
    first = 0
    for length, rows in groupby(_run_lengths(y).tolist()):
        left = len(list(rows))
        while left:
            count = min(left, _ROWS)
            yield first, count, length
            first, left = first + count * length, left - count
