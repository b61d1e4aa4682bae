"""PRISM: multislice once for every plane wave of the lens, and every probe as a sum of them.

Multislice is linear. A probe at r is the sum of the lens's plane waves b with amplitudes ψ_b exp(−2πi k_b·r), so its
exit wave is the same sum over their exit waves S_b(k), the scattering matrix. That is PRISM (Ophus, Adv. Struct. Chem.
Imaging 3 (2017) 13) with interpolation factor 1: all plane waves of the periodic grid take part, and the patterns equal
those of multislice to rounding. S depends on the specimen, not on the lens: aberrations, defoci and source points share
it.

The sum over b is a sum over ky for every row of the scan, then a sum over kx for every probe. Both are matrix products;
a raster needs far fewer of them than a list of positions. S holds only the pixels that are detected. Where PRISM costs
less than multislice there are fewer plane waves than probes, and S is smaller than the probes' exit waves together.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, NamedTuple

import numpy as np

from namsa.arrays import Booleans, Floats, Integers
from namsa.engines.interface import BatchedProbes, PlaneWaves, waves_per_batch
from namsa.physics.backend import array_module, run_in_batches, to_host
from namsa.physics.grid import Array, Grid

MethodName = Literal["auto", "multislice", "prism"]

LARGEST_MATRIX_BYTES = 2**31
BATCH_BYTES = 2**25  # patterns per batch; up to four times that, so that rows share what is read of S
_BATCH_ROWS = 8
_PRODUCT_BYTES = (2**20, 2**28)  # host, device: part of S per product, which stays in the cache of a core
_ROWS = 32  # rows of the scan per product, at most
_PIXELS = 256  # pixels of the pattern per product, at least

# Cost of an operation, relative to one of the probes' propagation. Transforms are faster than small matrix products.
# Plane waves cost twice as much because S also takes memory, and because a GPU propagates them with the plain engine.
PLANE_WAVE_COST = 2.0
PRODUCT_COST = 12.0


class Work(NamedTuple):
    """The counts that determine the cost of a specimen's patterns, on any machine."""

    shape: tuple[int, int]  # pixels (ny, nx) of the grid
    slices: int  # slices of the specimen
    probes: int  # probe positions
    rows: int  # runs of consecutive positions with the same y
    coherent: int  # coherent probes per position, which differ in lens and shift (see `coherence.modes`)
    beams: int  # plane waves that the lens lets through
    columns: int  # different kx among the plane waves
    pixels: int  # reciprocal pixels that are computed


class PlaneWaveReuse(NamedTuple):
    """What PRISM needs to know of the lens and the detector."""

    beams: Booleans  # where any of the lenses is not zero, (ny, nx), zero frequency first
    # The pixels to compute, (ny, nx), zero frequency first; the others stay zero (see `detected_pixels`).
    pixels: Booleans
    batch: int  # positions per batch


def choose(
    method: MethodName,  # "auto" chooses by `pays`
    slices: int,  # slices of the specimen
    positions: Floats,  # probe positions (n, 2) as (y, x), Å
    coherent: int,  # coherent probes per position
    beams: Booleans,  # plane waves of the lens, as in `PlaneWaveReuse`
    fresnel: Array,  # the propagator over one slice, (ny, nx) complex, zero frequency first
    matrices: tuple[Any, ...] | None,  # the detector's matrices (`detector.bin_matrices`), or `None`
) -> PlaneWaveReuse | None:
    """Returns the settings of PRISM; `None` if every probe is propagated."""
    pixels = detected_pixels(fresnel, matrices)
    work = count_work(slices, positions, coherent, beams, pixels)
    if method == "multislice" or (method == "auto" and not pays(work, fresnel.dtype.itemsize)):
        return None
    return PlaneWaveReuse(beams, pixels, batch_size(work.shape, fresnel.real.dtype.itemsize, work.probes // work.rows))


def propagation_operations(work: Work, waves: int) -> float:
    """Returns the floating-point operations that propagate `waves`: two transforms and two products per slice."""
    pixels = work.shape[0] * work.shape[1]
    return waves * work.slices * pixels * (2 * 5 * float(np.log2(pixels)) + 2 * 6)


def product_operations(work: Work) -> float:
    """Returns the floating-point operations that compute all patterns from S."""
    return 8.0 * work.coherent * work.pixels * (work.rows * work.beams + work.probes * work.columns)


def pays(work: Work, itemsize: int) -> bool:
    """Returns whether PRISM takes fewer weighted operations, and S fits in `LARGEST_MATRIX_BYTES`.

    The operations are counted, not measured: the choice, and with it a sample's last digits, is the same on every
    machine.

    Args:
        itemsize: Bytes per number of S.
    """
    reuse = PLANE_WAVE_COST * propagation_operations(work, work.beams) + PRODUCT_COST * product_operations(work)
    small = work.beams * work.pixels * itemsize <= LARGEST_MATRIX_BYTES
    return small and reuse < propagation_operations(work, work.probes * work.coherent)


def count_work(slices: int, positions: Floats, coherent: int, beams: Booleans, pixels: Booleans) -> Work:
    """Counts the work of a simulation.

    Rows are runs of positions with one y. A list that is no raster has nearly as many rows as positions.

    Args:
        positions: Probe positions (n, 2) as (y, x), Å.
        beams: As in `PlaneWaveReuse`.
        pixels: As in `PlaneWaveReuse`.
    """
    ny, nx = beams.shape
    return Work(
        shape=(ny, nx),
        slices=slices,
        probes=len(positions),
        rows=len(_run_lengths(positions[:, 0])),
        coherent=coherent,
        beams=int(np.count_nonzero(beams)),
        columns=int(np.count_nonzero(beams.any(axis=0))),
        pixels=int(np.count_nonzero(pixels)),
    )


def detected_pixels(fresnel: Array, matrices: tuple[Any, ...] | None = None) -> Booleans:
    """Returns the reciprocal pixels that the propagator lets through and the detector records.

    Args:
        fresnel: The propagator over one slice, (ny, nx), zero frequency first.
        matrices: The detector's matrices (`detector.bin_matrices`). `None` if there is no detector.

    Returns:
        Mask (ny, nx), zero frequency first.
    """
    through = to_host(fresnel) != 0
    if matrices is None:
        return through
    rows, columns = to_host(matrices[0]).any(axis=0), to_host(matrices[1]).any(axis=1)
    return through & np.fft.ifftshift(np.outer(rows, columns))


def batch_size(shape: tuple[int, int], itemsize: int, row: int = 1) -> int:
    """Returns how many positions to compute together, in whole rows of `row` positions if possible."""
    pattern = shape[0] * shape[1] * itemsize
    count = max(1, BATCH_BYTES // pattern, min(_BATCH_ROWS * row, 4 * BATCH_BYTES // pattern))
    return count - count % row if count > row else count


@dataclass(frozen=True)
class ScatteringMatrix:
    """The exit waves of a specimen's plane waves."""

    waves: Array  # exit waves of the plane waves at the pixels, (n_beams, n_pixels), on the host or the device
    beams: Integers  # flat indices (n_beams,) of the plane waves on the grid, sorted by column. Zero frequency first
    pixels: Integers  # flat indices (n_pixels,) of the pixels on the grid, zero frequency first

    def part(self, beams: Booleans, pixels: Booleans) -> "ScatteringMatrix":
        """Returns the part of some plane waves at some pixels. Its sums have the bits of a matrix of these alone.

        Args:
            beams: Which plane waves, (ny, nx), zero frequency first.
            pixels: Which pixels, (ny, nx), zero frequency first.
        """
        xp = array_module(self.waves)
        own_beams, own_pixels = beams.ravel()[self.beams], pixels.ravel()[self.pixels]
        waves = self.waves if own_beams.all() else self.waves[xp.asarray(np.flatnonzero(own_beams))]
        waves = waves if own_pixels.all() else waves[:, xp.asarray(np.flatnonzero(own_pixels))]
        return ScatteringMatrix(waves, self.beams[own_beams], self.pixels[own_pixels])


def scattering_matrices(
    plane_waves: PlaneWaves,
    fresnel: Array,  # the propagator over one slice, (ny, nx); the waves have its type
    reuse: PlaneWaveReuse,  # which plane waves and pixels
    # Numbers of slices, increasing. The last digits of a matrix may depend on the depths before it.
    depths: Sequence[int],
    on_beams: Callable[[int, int], None] = lambda done, total: None,  # called as `on_beams(done, total)`
) -> list[ScatteringMatrix]:
    """Computes the scattering matrices of a specimen's first slices; returns one matrix for each depth.

    Plane waves are propagated a few at a time, in threads on a CPU. Each writes its own row.
    """
    xp, on_host, (ny, nx) = array_module(fresnel), isinstance(fresnel, np.ndarray), fresnel.shape
    column, row = np.nonzero(reuse.beams.T)  # sorted by column, each of which is one product
    beams = row * nx + column
    centred = np.flatnonzero(np.fft.fftshift(reuse.pixels))
    pixels = np.fft.fftshift(np.arange(ny * nx).reshape(ny, nx)).ravel()[centred]
    waves = [xp.empty((len(beams), len(pixels)), fresnel.dtype) for _ in depths]

    def work(part: slice) -> None:
        for own, behind in zip(waves, plane_waves.exit_waves(beams[part], depths, pixels), strict=True):
            own[part] = behind

    run_in_batches(work, len(beams), waves_per_batch(fresnel), on_host, on_beams)
    return [ScatteringMatrix(own, beams, pixels) for own in waves]


class PrismEngine:
    """Adds probes up from a specimen's scattering matrix.

    Threads that share its probes should have a BLAS of one thread each.

    Args:
        matrix: The scattering matrix; patterns have its precision.
    """

    def __init__(self, grid: Grid, matrix: ScatteringMatrix, batch: int) -> None:
        xp, (ny, nx) = array_module(matrix.waves), grid.shape
        self.xp = xp
        self.shape: tuple[int, int] = (ny, nx)
        self.dtype = matrix.waves.dtype
        self.batch = batch
        self.matrix = matrix.waves
        row, column = np.divmod(matrix.beams, nx)
        self.rows, self.columns = xp.asarray(row), xp.asarray(column)  # of the plane waves on the grid
        y, x = np.divmod(matrix.pixels, nx)
        # Flat indices on the pattern, zero frequency in the centre.
        self.pixels = xp.asarray((y + ny // 2) % ny * nx + (x + nx // 2) % nx)

        starts = np.flatnonzero(np.diff(column, prepend=-1))
        stops = [*starts[1:], len(column)]
        self.of_column = [slice(start, stop) for start, stop in zip(starts, stops, strict=True)]  # plane waves of a kx
        ky, kx = grid.frequencies()
        self.ky, self.kx = xp.asarray(ky[row, 0]), xp.asarray(kx[0, column[starts]])
        self.width = max(_PIXELS, _PRODUCT_BYTES[xp is not np] // (len(column) * self.dtype.itemsize))

    def prepare(self, lens: Array) -> "PrismProbes":
        """Returns the probes of `lens` (ny, nx); see `namsa.engines.interface.Engine.prepare`."""
        return PrismProbes(self, lens)


class PrismProbes(BatchedProbes):
    """The probes of one lens, added up by a `PrismEngine`."""

    def __init__(self, engine: PrismEngine, lens: Array) -> None:
        super().__init__(engine.batch, engine.xp is np)
        self._engine = engine
        self._amplitudes = lens[engine.rows, engine.columns]

    def patterns(self, positions: Floats) -> Array:
        """Returns the patterns (n, ny, nx) of probes at `positions` (n, 2), in the precision of the propagator."""
        e, (ny, nx) = self._engine, self._engine.shape
        xp = e.xp
        out = xp.zeros((len(positions), ny * nx), e.matrix.real.dtype)
        y, x = xp.asarray(positions).T[:, :, None]
        for first, count, length in _rasters(positions[:, 0]):
            block = slice(first, first + count * length)
            by_y = xp.exp(-2j * np.pi * y[block][::length] * e.ky).astype(e.dtype) * self._amplitudes
            by_x = xp.exp(-2j * np.pi * x[block] * e.kx).astype(e.dtype).reshape(count, length, -1)
            for start in range(0, len(e.pixels), e.width):
                part, pixels = e.matrix[:, start : start + e.width], e.pixels[start : start + e.width]
                lines = xp.empty((len(e.of_column), count, len(pixels)), e.dtype)
                for line, members in zip(lines, e.of_column, strict=True):
                    xp.matmul(by_y[:, members], part[members], out=line)
                waves = (by_x @ lines.swapaxes(0, 1)).reshape(count * length, -1)
                out[block, pixels] = waves.real**2 + waves.imag**2
        return out.reshape(-1, ny, nx)


def _run_lengths(y: Floats) -> Integers:
    return np.diff(np.flatnonzero(np.diff(y, prepend=np.nan, append=np.nan) != 0))


def _rasters(y: Floats) -> Iterator[tuple[int, int, int]]:
    """Splits positions into blocks of rows of one length; yields (first position, rows, positions per row)."""
    first = 0
    for length, rows in groupby(_run_lengths(y).tolist()):
        left = len(list(rows))
        while left:
            count = min(left, _ROWS)
            yield first, count, length
            first, left = first + count * length, left - count
