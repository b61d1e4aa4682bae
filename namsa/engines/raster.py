"""Patterns of a raster from scattering matrices: sums over plane waves as few, large matrix products.

All rows of a raster have the same x and all columns the same y. The sum over a plane wave's ky is a product of matrices
for each kx, and the sum over kx one product for all rows. The detector's columns are summed while a row of its
reciprocal pixels is in the cache, its rows at the end.

As a function of the position in the periodic cell, a pixel of a pattern is a sum of the waves k_b − k_b′ for pairs of
plane waves. An even raster with more points along an axis than these have frequencies determines it everywhere. The
average over a Gaussian source is then exact (`SourceAverage`): each wave is damped, and the sum is evaluated at the
positions of the scan. It takes the patterns of that raster, however wide the source is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from namsa.arrays import Booleans, Floats
from namsa.engines.prism import ScatteringMatrix
from namsa.physics.backend import array_module, run_in_batches, to_host
from namsa.physics.coherence import FWHM
from namsa.physics.grid import Array, Grid

_SOURCE_POINTS = 16  # coherent probes per position that a source takes, at least, if it is sampled
_PIXELS = (256, 4096)  # host, device: pixels per product


@dataclass(frozen=True)
class RasterProbe:
    """A coherent probe at all positions of a raster."""

    lens: Array  # the probe at the origin in reciprocal space, (ny, nx) complex, zero frequency first
    y: Floats  # positions (ry,) of the rows, Å
    x: Floats  # positions (rx,) of the columns, Å


@dataclass(frozen=True)
class SourceAverage:
    """The average of patterns over a Gaussian source, from an even raster over the cell to the positions of a scan."""

    y: Floats  # rows (ry,) of the even raster, Å
    x: Floats  # columns (rx,) of the even raster, Å
    along_y: Floats  # matrix (sy, ry) from the raster to the rows of the scan
    along_x: Floats  # matrix (sx, rx) from the raster to the columns of the scan


def axes(positions: Floats, scan_shape: tuple[int, int] | None) -> tuple[Floats, Floats] | None:
    """Returns the rows (sy,) and columns (sx,) of a raster of positions (n, 2), (y, x), Å; `None` if they are none."""
    if scan_shape is None:
        return None
    y, x = np.moveaxis(positions.reshape(*scan_shape, 2), -1, 0)
    return (y[:, 0], x[0]) if np.all(y == y[:, :1]) and np.all(x == x[:1]) else None


def source_average(
    grid: Grid, beams: Booleans, y: Floats, x: Floats, source_size_angstrom: float
) -> SourceAverage | None:
    """Returns the average over a source, `None` if points of the source take fewer probes than the even raster.

    Args:
        beams: Plane waves of the lens, (ny, nx), zero frequency first.
        y: Rows (sy,) of the scan, Å.
        x: Columns (sx,) of the scan, Å.
    """
    sides = []
    for axis, (scan, extent) in enumerate(zip((y, x), grid.extent_angstrom, strict=True)):
        lit = np.flatnonzero(np.fft.fftshift(beams.any(axis=1 - axis)))
        highest = int(lit[-1] - lit[0])
        frequencies = np.arange(-highest, highest + 1) / extent
        damping = np.exp(-2 * (np.pi * source_size_angstrom / FWHM * frequencies) ** 2)
        raster = np.arange(len(frequencies)) * extent / len(frequencies)
        waves = np.exp(2j * np.pi * frequencies * (scan[:, None, None] - raster[:, None]))
        sides.append((raster, (waves @ damping).real / len(frequencies)))
    (raster_y, along_y), (raster_x, along_x) = sides
    if len(raster_y) * len(raster_x) > _SOURCE_POINTS * len(y) * len(x):
        return None
    return SourceAverage(raster_y, raster_x, along_y, along_x)


def sum_patterns(
    matrix: ScatteringMatrix,  # the scattering matrix; patterns have its precision
    grid: Grid,
    probes: Sequence[RasterProbe],  # the coherent probes, with rasters of one shape
    binning: tuple[Array, Array],  # the detector's matrices (Wy, Wx) of `namsa.physics.detector.bin_matrices`
    on_pixels: Callable[[int, int], None] = lambda done, total: None,  # called as `on_pixels(done, total)`
) -> Array:
    """Returns the patterns of a raster, summed over coherent probes, (dy, rx, ry, dx), on the host or the device.

    Threads share the reciprocal pixels on a CPU. They should have a BLAS of one thread each.
    """
    xp, (ny, nx), dtype = array_module(matrix.waves), grid.shape, matrix.waves.dtype
    row, column = np.divmod(matrix.beams, nx)
    lit = np.any([(to_host(probe.lens) != 0)[row, column] for probe in probes], axis=0)
    starts = np.flatnonzero(np.diff(column, prepend=-1))
    stops = [*starts[1:], len(column)]
    members = [slice(a, b) for a, b in zip(starts, stops, strict=True) if lit[a:b].any()]  # plane waves of a kx
    ky, kx = grid.frequencies()
    columns = kx[0, [column[part.start] for part in members]]
    amplitudes = []
    for probe in probes:
        of_lens = probe.lens[xp.asarray(row), xp.asarray(column)]
        by_y = xp.asarray(np.exp(-2j * np.pi * probe.y[:, None] * ky[row, 0]).astype(dtype)) * of_lens
        by_x = xp.asarray(np.exp(-2j * np.pi * probe.x[:, None] * columns).astype(dtype))
        amplitudes.append((by_y, by_x))
    rows_y, columns_x = len(probes[0].y), len(probes[0].x)

    # Pixels are sorted by ky, with the zero frequency in the centre.
    y, x = np.divmod(matrix.pixels, nx)
    first = [*np.flatnonzero(np.diff(y, prepend=-1)).tolist(), len(y)]
    half, wide = binning[1], _PIXELS[xp is not np]
    x = (x + nx // 2) % nx
    halves = xp.empty((len(first) - 1, columns_x * rows_y, half.shape[1]), matrix.waves.real.dtype)

    def work(part: slice) -> None:
        lines_of = list(range(part.start, part.stop))
        begin, end = first[part.start], first[part.stop]
        waves = matrix.waves[:, begin:end]
        total: Any = 0
        for by_y, by_x in amplitudes:
            lines = xp.empty((len(members), rows_y, end - begin), dtype)
            for line, own in zip(lines, members, strict=True):
                xp.matmul(by_y[:, own], waves[own], out=line)
            exits = by_x @ lines.reshape(len(members), -1)
            total = total + (exits.real**2 + exits.imag**2)
        total = total.reshape(columns_x * rows_y, end - begin)
        for line in lines_of:
            own = slice(first[line], first[line + 1])
            halves[line] = total[:, own.start - begin : own.stop - begin] @ half[xp.asarray(x[own])]

    rows_per_product = max(1, wide * (len(first) - 1) // max(1, len(y)))
    run_in_batches(work, len(first) - 1, rows_per_product, xp is np, on_pixels)
    of_rows = binning[0][:, xp.asarray((y[first[:-1]] + ny // 2) % ny)]
    binned = of_rows @ halves.reshape(len(first) - 1, -1)
    return binned.reshape(len(of_rows), columns_x, rows_y, -1)


def at_scan(patterns: Array, average: SourceAverage | None) -> Array:
    """Returns patterns at the positions of the scan, (sy · sx, dy, dx).

    Args:
        average: The average over the source. `None` if the raster is the scan.
    """
    xp, (dy, rx, ry, dx) = array_module(patterns), patterns.shape
    if average:
        along_y, along_x = (xp.asarray(side.astype(patterns.dtype)) for side in (average.along_y, average.along_x))
        patterns = (along_x @ patterns.reshape(dy, rx, ry * dx)).reshape(dy, -1, ry, dx)
        patterns = xp.maximum(along_y @ patterns, 0)  # rounding can make an intensity of zero slightly negative
    scan = patterns.transpose(2, 1, 0, 3)
    return xp.ascontiguousarray(scan).reshape(-1, dy, dx)
