"""Patterns of a raster from scattering matrices: sums over plane waves as few, large matrix
products.

All rows of a raster have the same x and all columns the same y. The sum over a plane wave's ky is a
product of matrices for each kx, and the sum over kx one product for all rows. The detector's
columns are summed while a row of its reciprocal pixels is in the cache, its rows at the end.

As a function of the position in the periodic cell, a pixel of a pattern is a sum of the waves k_b −
k_b′ for pairs of plane waves. An even raster with more points along an axis than these have
frequencies determines it everywhere. The average over a Gaussian source is then exact
(`SourceAverage`): each wave is damped, and the sum is evaluated at the positions of the scan. It
takes the patterns of that raster, however wide the source is.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Booleans, Floats
from namsa.engines.prism import ScatteringMatrix
from namsa.physics.backend import array_module, run_in_batches, to_host
from namsa.physics.coherence import FWHM
from namsa.physics.grid import Array, Grid

_SOURCE_POINTS = 16  # coherent probes per position that a source takes, at least, if it is sampled
_PIXELS_ON_HOST = 256  # per product
_PIXELS_ON_DEVICE = 4096


@dataclass(frozen=True)
class RasterProbe:
    """A coherent probe at all positions of a raster."""

    # the probe at the origin in reciprocal space, (ny, nx) complex, zero frequency first
    lens: Array
    y: Floats  # positions (ry,) of the rows, Å
    x: Floats  # positions (rx,) of the columns, Å


@dataclass(frozen=True)
class SourceAverage:
    """The average of patterns over a Gaussian source, from an even raster over the cell to the
    positions of a scan.
    """

    y: Floats  # rows (ry,) of the even raster, Å
    x: Floats  # columns (rx,) of the even raster, Å
    along_y: Floats  # matrix (sy, ry) from the raster to the rows of the scan
    along_x: Floats  # matrix (sx, rx) from the raster to the columns of the scan


def axes(positions: Floats, scan_shape: tuple[int, int] | None) -> tuple[Floats, Floats] | None:
    """Returns the rows (sy,) and columns (sx,) of a raster of positions (n, 2), (y, x), Å; `None`
    if they are none.
    """
    if scan_shape is None:
        return None
    raster = positions.reshape(*scan_shape, 2)
    y = raster[..., 0]
    x = raster[..., 1]
    if np.all(y == y[:, :1]) and np.all(x == x[:1]):
        return (y[:, 0], x[0])
    return None


def source_average(
    grid: Grid, beams: Booleans, y: Floats, x: Floats, source_size_angstrom: float
) -> SourceAverage | None:
    """Returns the average over a source, `None` if points of the source take fewer probes than the
    even raster.

    Args:
        beams: Plane waves of the lens, (ny, nx), zero frequency first.
        y: Rows (sy,) of the scan, Å.
        x: Columns (sx,) of the scan, Å.
    """
    ly, lx = grid.extent_angstrom
    raster_y, along_y = _average_along(beams.any(axis=1), y, ly, source_size_angstrom)
    raster_x, along_x = _average_along(beams.any(axis=0), x, lx, source_size_angstrom)
    if len(raster_y) * len(raster_x) > _SOURCE_POINTS * len(y) * len(x):
        return None
    return SourceAverage(raster_y, raster_x, along_y, along_x)


def _average_along(
    beams: Booleans, scan: Floats, extent: float, source_size_angstrom: float
) -> tuple[Floats, Floats]:
    """Returns an even raster along an axis (r,), Å, and the matrix (s, r) from it to the scan.

    Args:
        beams: At which frequencies along the axis there are plane waves, (n,), zero first.
        scan: Positions (s,) of the scan, Å.
        extent: Side of the cell, Å.
    """
    lit = np.flatnonzero(np.fft.fftshift(beams))
    highest = int(lit[-1] - lit[0])
    frequencies = np.arange(-highest, highest + 1) / extent
    damping = np.exp(-2 * (np.pi * source_size_angstrom / FWHM * frequencies) ** 2)
    raster = np.arange(len(frequencies)) * extent / len(frequencies)
    waves = np.exp(2j * np.pi * frequencies * (scan[:, None, None] - raster[:, None]))
    return raster, (waves @ damping).real / len(frequencies)


def sum_patterns(
    matrix: ScatteringMatrix,  # the scattering matrix; patterns have its precision
    grid: Grid,
    probes: Sequence[RasterProbe],  # the coherent probes, with rasters of one shape
    # The detector's matrices (Wy, Wx) of `namsa.physics.detector.bin_matrices`.
    binning: tuple[Array, Array],
    # Called as `on_pixels(done, total)`.
    on_pixels: Callable[[int, int], None] = lambda done, total: None,
) -> Array:
    """Returns the patterns of a raster, summed over coherent probes, (dy, rx, ry, dx), on the host
    or the device.

    Threads share the reciprocal pixels on a CPU. They should have a BLAS of one thread each.
    """
    xp = array_module(matrix.waves)
    ny, nx = grid.shape
    dtype = matrix.waves.dtype
    beams_of_column, amplitudes = _amplitudes(matrix, grid, probes)
    rows_y = len(probes[0].y)
    columns_x = len(probes[0].x)

    # Pixels are sorted by ky, with the zero frequency in the centre.
    y, x = np.divmod(matrix.pixels, nx)
    # Where the pixels of each ky begin, and the last ones end.
    bounds = [*np.flatnonzero(np.diff(y, prepend=-1)).tolist(), len(y)]
    rows_of_pixels = len(bounds) - 1
    bins_y, bins_x = binning
    x = (x + nx // 2) % nx
    binned_x = xp.empty(
        (rows_of_pixels, columns_x * rows_y, bins_x.shape[1]), matrix.waves.real.dtype
    )

    def work(rows: slice) -> None:
        begin = bounds[rows.start]
        end = bounds[rows.stop]
        waves = matrix.waves[:, begin:end]
        total: Array = 0.0
        for by_y, by_x in amplitudes:
            sums_over_ky = xp.empty((len(beams_of_column), rows_y, end - begin), dtype)
            for sum_over_ky, beams in zip(sums_over_ky, beams_of_column, strict=True):
                xp.matmul(by_y[:, beams], waves[beams], out=sum_over_ky)
            exits = by_x @ sums_over_ky.reshape(len(beams_of_column), -1)
            total = total + (exits.real**2 + exits.imag**2)
        total = total.reshape(columns_x * rows_y, end - begin)
        for row in range(rows.start, rows.stop):
            start = bounds[row]
            stop = bounds[row + 1]
            bins = bins_x[xp.asarray(x[start:stop])]
            binned_x[row] = total[:, start - begin : stop - begin] @ bins

    pixels_per_product = _PIXELS_ON_HOST if xp is np else _PIXELS_ON_DEVICE
    rows_per_product = max(1, pixels_per_product * rows_of_pixels // max(1, len(y)))
    run_in_batches(work, rows_of_pixels, rows_per_product, xp is np, on_pixels)
    of_rows = bins_y[:, xp.asarray((y[bounds[:-1]] + ny // 2) % ny)]
    binned = of_rows @ binned_x.reshape(rows_of_pixels, -1)
    return binned.reshape(len(of_rows), columns_x, rows_y, -1)


class _ProbeAmplitudes(NamedTuple):
    """Amplitudes of the plane waves of a coherent probe, by the positions of the raster."""

    by_y: Array  # with the lens, (ry, n), of each plane wave
    by_x: Array  # (rx, m), of each kx


def _amplitudes(
    matrix: ScatteringMatrix, grid: Grid, probes: Sequence[RasterProbe]
) -> tuple[list[slice], list[_ProbeAmplitudes]]:
    """Returns those plane waves of one kx that any lens lets through, as slices of the matrix's,
    and the amplitudes of each probe.
    """
    xp = array_module(matrix.waves)
    dtype = matrix.waves.dtype
    row, column = np.divmod(matrix.beams, grid.shape[1])
    lit = np.any([(to_host(probe.lens) != 0)[row, column] for probe in probes], axis=0)
    starts = np.flatnonzero(np.diff(column, prepend=-1)).tolist()
    beams_of_column = []
    for start, stop in itertools.pairwise([*starts, len(column)]):
        if lit[start:stop].any():
            beams_of_column.append(slice(start, stop))
    ky, kx = grid.frequencies()
    columns = kx[0, [column[beams.start] for beams in beams_of_column]]
    amplitudes = []
    for probe in probes:
        of_lens = probe.lens[xp.asarray(row), xp.asarray(column)]
        phases_y = np.exp(-2j * np.pi * probe.y[:, None] * ky[row, 0]).astype(dtype)
        phases_x = np.exp(-2j * np.pi * probe.x[:, None] * columns).astype(dtype)
        by_y = xp.asarray(phases_y) * of_lens
        amplitudes.append(_ProbeAmplitudes(by_y, xp.asarray(phases_x)))
    return beams_of_column, amplitudes


def at_scan(patterns: Array, average: SourceAverage | None) -> Array:
    """Returns patterns at the positions of the scan, (sy · sx, dy, dx).

    Args:
        average: The average over the source. `None` if the raster is the scan.
    """
    xp = array_module(patterns)
    dy, rx, ry, dx = patterns.shape
    if average:
        along_y = xp.asarray(average.along_y.astype(patterns.dtype))
        along_x = xp.asarray(average.along_x.astype(patterns.dtype))
        patterns = (along_x @ patterns.reshape(dy, rx, ry * dx)).reshape(dy, -1, ry, dx)
        # Rounding can make an intensity of zero slightly negative.
        patterns = xp.maximum(along_y @ patterns, 0)
    scan = patterns.transpose(2, 1, 0, 3)
    return xp.ascontiguousarray(scan).reshape(-1, dy, dx)
