"""PRISM: multislice once for every plane wave of the lens, and every probe as a sum of them.

Multislice is linear. A probe at r is the sum of the lens's plane waves b with amplitudes ψ_b
exp(−2πi k_b·r), so its exit wave is the same sum over their exit waves S_b(k), the scattering
matrix. That is PRISM (Ophus, Adv. Struct. Chem. Imaging 3 (2017) 13) with interpolation factor 1:
all plane waves of the periodic grid take part, and the patterns equal those of multislice to
rounding. S depends on the specimen, not on the lens: aberrations, defoci and source points share
it.

The sum over b is a sum over ky for every row of the scan, then a sum over kx for every probe. Both
are matrix products; a raster needs far fewer of them than a list of positions. S holds only the
pixels that are detected. Where PRISM costs less than multislice there are fewer plane waves than
probes, and S is smaller than the probes' exit waves together.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal, NamedTuple

import numpy as np

from namsa.base.arrays import Booleans, Floats, Integers
from namsa.engines.interface import BatchedProbes, PlaneWaves, waves_per_batch
from namsa.physics.backend import array_module, run_in_batches, to_host
from namsa.physics.grid import Array, Grid

MethodName = Literal["auto", "multislice", "prism"]

LARGEST_MATRIX_BYTES = 2**31
# patterns per batch; up to four times that, so that rows share what is read of S
BATCH_BYTES = 2**25
_BATCH_ROWS = 8
_PRODUCT_BYTES_ON_HOST = 2**20  # part of S per product, which stays in the cache of a core
_PRODUCT_BYTES_ON_DEVICE = 2**28
_ROWS = 32  # rows of the scan per product, at most
_PIXELS = 256  # pixels of the pattern per product, at least

# Cost of an operation, relative to one of the probes' propagation. Transforms are faster than small
# matrix products. Plane waves cost twice as much because S also takes memory, and because a GPU
# propagates them with the plain engine.
PLANE_WAVE_COST = 2.0
PRODUCT_COST = 12.0


class Work(NamedTuple):
    """The counts that determine the cost of a specimen's patterns, on any machine."""

    shape: tuple[int, int]  # pixels (ny, nx) of the grid
    slices: int  # slices of the specimen
    probes: int  # probe positions
    rows: int  # runs of consecutive positions with the same y
    # coherent probes per position, which differ in lens and shift (see `coherence.modes`)
    coherent: int
    beams: int  # plane waves that the lens lets through
    columns: int  # different kx among the plane waves
    pixels: int  # reciprocal pixels that are computed


class PlaneWaveReuse(NamedTuple):
    """Lens and detector, as PRISM needs them."""

    beams: Booleans  # where any of the lenses is not zero, (ny, nx), zero frequency first
    # The pixels to compute, (ny, nx), zero frequency first; the others stay zero (see
    # `detected_pixels`).
    pixels: Booleans
    batch: int  # positions per batch


def choose(
    method: str,  # "multislice" or "prism"; "auto" chooses by `pays`
    slices: int,  # slices of the specimen
    positions: Floats,  # probe positions (n, 2) as (y, x), Å
    coherent: int,  # coherent probes per position
    beams: Booleans,  # plane waves of the lens, as in `PlaneWaveReuse`
    fresnel: Array,  # the propagator over one slice, (ny, nx) complex, zero frequency first
    # The detector's matrices (`detector.bin_matrices`), or `None`.
    matrices: tuple[Array, ...] | None,
) -> PlaneWaveReuse | None:
    """Returns the settings of PRISM; `None` if every probe is propagated."""
    work = work_of(slices, positions, coherent, beams, fresnel, matrices)
    pixels = detected_pixels(fresnel, matrices)
    if method == "multislice" or (method == "auto" and not pays(work, fresnel.dtype.itemsize)):
        return None
    return PlaneWaveReuse(
        beams, pixels, batch_size(work.shape, fresnel.real.dtype.itemsize, work.probes // work.rows)
    )


def work_of(
    slices: int,
    positions: Floats,
    coherent: int,
    beams: Booleans,
    fresnel: Array,
    matrices: tuple[Array, ...] | None,
) -> Work:
    """Returns the counts of a simulation; arguments as `choose`."""
    pixels = detected_pixels(fresnel, matrices)
    return count_work(slices, positions, coherent, beams, pixels)


def operations(work: Work, reuses: bool) -> float:
    """Returns the weighted floating-point operations of a simulation.

    Args:
        reuses: Whether probes are added up from plane waves.
    """
    if not reuses:
        return propagation_operations(work, work.probes * work.coherent)
    plane_waves = PLANE_WAVE_COST * propagation_operations(work, work.beams)
    return plane_waves + PRODUCT_COST * product_operations(work)


def propagation_operations(work: Work, waves: int) -> float:
    """Returns the floating-point operations that propagate `waves`: two transforms and two products
    per slice.
    """
    pixels = work.shape[0] * work.shape[1]
    return waves * work.slices * pixels * (2 * 5 * float(np.log2(pixels)) + 2 * 6)


def product_operations(work: Work) -> float:
    """Returns the floating-point operations that compute all patterns from S."""
    return 8.0 * work.coherent * work.pixels * (work.rows * work.beams + work.probes * work.columns)


def pays(work: Work, itemsize: int) -> bool:
    """Returns whether PRISM takes fewer weighted operations, and S fits in `LARGEST_MATRIX_BYTES`.

    The operations are counted, not measured: the choice, and with it a sample's last digits, is the
    same on every machine.

    Args:
        itemsize: Bytes per number of S.
    """
    small = work.beams * work.pixels * itemsize <= LARGEST_MATRIX_BYTES
    return small and operations(work, True) < operations(work, False)


def count_work(
    slices: int, positions: Floats, coherent: int, beams: Booleans, pixels: Booleans
) -> Work:
    """Counts the work of a simulation.

    Rows are runs of positions with one y. A list that is no raster has nearly as many rows as
    positions.

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


def detected_pixels(fresnel: Array, matrices: tuple[Array, ...] | None = None) -> Booleans:
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
    rows = to_host(matrices[0]).any(axis=0)
    columns = to_host(matrices[1]).any(axis=1)
    return through & np.fft.ifftshift(np.outer(rows, columns))


def batch_size(shape: tuple[int, int], itemsize: int, row: int = 1) -> int:
    """Returns how many positions to compute together, in whole rows of `row` positions if
    possible.
    """
    pattern = shape[0] * shape[1] * itemsize
    count = max(1, BATCH_BYTES // pattern, min(_BATCH_ROWS * row, 4 * BATCH_BYTES // pattern))
    if count <= row:
        return count
    return count - count % row


@dataclass(frozen=True)
class ScatteringMatrix:
    """The exit waves of a specimen's plane waves."""

    # exit waves of the plane waves at the pixels, (n_beams, n_pixels), on the host or the device
    waves: Array
    # flat indices (n_beams,) of the plane waves on the grid, sorted by column. Zero frequency first
    beams: Integers
    pixels: Integers  # flat indices (n_pixels,) of the pixels on the grid, zero frequency first

    def part(self, beams: Booleans, pixels: Booleans) -> "ScatteringMatrix":
        """Returns the part of some plane waves at some pixels. Its sums have the bits of a matrix
        of these alone.

        Args:
            beams: Which plane waves, (ny, nx), zero frequency first.
            pixels: Which pixels, (ny, nx), zero frequency first.
        """
        xp = array_module(self.waves)
        kept_beams = beams.ravel()[self.beams]
        kept_pixels = pixels.ravel()[self.pixels]
        waves = self.waves
        if not kept_beams.all():
            waves = waves[xp.asarray(np.flatnonzero(kept_beams))]
        if not kept_pixels.all():
            waves = waves[:, xp.asarray(np.flatnonzero(kept_pixels))]
        return ScatteringMatrix(waves, self.beams[kept_beams], self.pixels[kept_pixels])


def scattering_matrices(
    plane_waves: PlaneWaves,
    fresnel: Array,  # the propagator over one slice, (ny, nx); the waves have its type
    reuse: PlaneWaveReuse,  # which plane waves and pixels
    # Numbers of slices, increasing. The last digits of a matrix may depend on the depths before it.
    depths: Sequence[int],
    # Called as `on_beams(done, total)`.
    on_beams: Callable[[int, int], None] = lambda done, total: None,
) -> list[ScatteringMatrix]:
    """Computes the scattering matrices of a specimen's first slices; returns one matrix for each
    depth.

    Plane waves are propagated a few at a time, in threads on a CPU. Each writes its own row.
    """
    xp = array_module(fresnel)
    on_host = isinstance(fresnel, np.ndarray)
    ny, nx = fresnel.shape
    column, row = np.nonzero(reuse.beams.T)  # sorted by column, each of which is one product
    beams = row * nx + column
    centred = np.flatnonzero(np.fft.fftshift(reuse.pixels))
    pixels = np.fft.fftshift(np.arange(ny * nx).reshape(ny, nx)).ravel()[centred]
    waves = [xp.empty((len(beams), len(pixels)), fresnel.dtype) for _ in depths]

    def work(batch: slice) -> None:
        exit_waves = plane_waves.exit_waves(beams[batch], depths, pixels)
        for of_depth, behind in zip(waves, exit_waves, strict=True):
            of_depth[batch] = behind

    run_in_batches(work, len(beams), waves_per_batch(fresnel), on_host, on_beams)
    return [ScatteringMatrix(of_depth, beams, pixels) for of_depth in waves]


class PrismEngine:
    """Adds probes up from a specimen's scattering matrix.

    Threads that share its probes should have a BLAS of one thread each.

    Args:
        matrix: The scattering matrix; patterns have its precision.
    """

    def __init__(self, grid: Grid, matrix: ScatteringMatrix, batch: int) -> None:
        xp = array_module(matrix.waves)
        ny, nx = grid.shape
        self.xp = xp
        self.shape: tuple[int, int] = (ny, nx)
        self.dtype = matrix.waves.dtype
        self.batch = batch
        self.matrix = matrix.waves
        row, column = np.divmod(matrix.beams, nx)
        # of the plane waves on the grid
        self.rows = xp.asarray(row)
        self.columns = xp.asarray(column)
        y, x = np.divmod(matrix.pixels, nx)
        # Flat indices on the pattern, zero frequency in the centre.
        self.pixels = xp.asarray((y + ny // 2) % ny * nx + (x + nx // 2) % nx)

        starts = np.flatnonzero(np.diff(column, prepend=-1))
        self.of_column = []  # the plane waves of each kx
        for start, stop in pairwise([*starts.tolist(), len(column)]):
            self.of_column.append(slice(start, stop))
        ky, kx = grid.frequencies()
        self.ky = xp.asarray(ky[row, 0])
        self.kx = xp.asarray(kx[0, column[starts]])
        product_bytes = _PRODUCT_BYTES_ON_HOST if xp is np else _PRODUCT_BYTES_ON_DEVICE
        self.width = max(_PIXELS, product_bytes // (len(column) * self.dtype.itemsize))

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
        """Returns the patterns (n, ny, nx) of probes at `positions` (n, 2), in the precision of the
        propagator.
        """
        engine = self._engine
        ny, nx = engine.shape
        xp = engine.xp
        dtype = engine.dtype
        out = xp.zeros((len(positions), ny * nx), engine.matrix.real.dtype)
        y, x = xp.asarray(positions).T[:, :, None]
        for raster in _rasters(positions[:, 0]):
            block = slice(raster.start, raster.start + raster.rows * raster.length)
            phases_y = xp.exp(-2j * np.pi * y[block][:: raster.length] * engine.ky)
            by_y = phases_y.astype(dtype) * self._amplitudes
            phases_x = xp.exp(-2j * np.pi * x[block] * engine.kx)
            by_x = phases_x.astype(dtype).reshape(raster.rows, raster.length, -1)
            for start in range(0, len(engine.pixels), engine.width):
                matrix = engine.matrix[:, start : start + engine.width]
                pixels = engine.pixels[start : start + engine.width]
                sums_over_ky = xp.empty((len(engine.of_column), raster.rows, len(pixels)), dtype)
                for sum_over_ky, beams in zip(sums_over_ky, engine.of_column, strict=True):
                    xp.matmul(by_y[:, beams], matrix[beams], out=sum_over_ky)
                waves = by_x @ sums_over_ky.swapaxes(0, 1)
                waves = waves.reshape(raster.rows * raster.length, -1)
                out[block, pixels] = waves.real**2 + waves.imag**2
        return out.reshape(-1, ny, nx)


def _run_lengths(y: Floats) -> Integers:
    return np.diff(np.flatnonzero(np.diff(y, prepend=np.nan, append=np.nan) != 0))


class _Raster(NamedTuple):
    """A block of rows of one length in a list of positions."""

    start: int  # the first position
    rows: int
    length: int  # positions per row


def _rasters(y: Floats) -> Iterator[_Raster]:
    """Splits positions, by their y, into blocks of rows of one length."""
    start = 0
    for length, rows in groupby(_run_lengths(y).tolist()):
        left = len(list(rows))
        while left:
            count = min(left, _ROWS)
            yield _Raster(start, count, length)
            start += count * length
            left = left - count
