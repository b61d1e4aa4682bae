"""From the reciprocal grid to what a camera records: its pixels, its point spread and the electrons' noise.

Patterns are fractions of the incident beam throughout. Angles are in mrad, from the optic axis.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special
from scipy.linalg import toeplitz

from namsa.config.instrument import Detector
from namsa.errors import InputError
from namsa.physics.backend import available_cores
from namsa.physics.grid import Array, Grid

_NOISE = 2  # the noise's stream among those of a sample's seed
_BRIGHT = 16.0  # electrons: from here on, looking for a count from its mean is faster than from 0


@dataclass(frozen=True)
class PixelRow:
    """A row of detector pixels: their number and size, and the first one's outer edge in pixels from the optic axis."""

    count: int
    size_mrad: float
    edge: float


def pixels(grid: Grid, wavelength: float, detector: Detector | None) -> tuple[PixelRow, PixelRow]:
    """The detector's pixels along y and x; those of the whole reciprocal grid where `detector` is None.

    PixelRow of `pixel_mrad` have the optic axis in the centre of the whole, so that turning or mirroring a pattern is
    exact. The reciprocal grid's own have it in the centre of one, number count // 2; binned by an even number, half a
    reciprocal pixel off it.

    Raises InputError where a pixel is finer than the reciprocal grid, or the detector reaches past the band limit,
    where patterns are empty.
    """
    pitch = [wavelength / extent * 1e3 for extent in grid.extent_angstrom]
    if detector is None:
        y, x = (PixelRow(n, p, -(n // 2) - 0.5) for n, p in zip(grid.shape, pitch, strict=True))
        return y, x
    limit = grid.band_limit * wavelength * 1e3
    _check_reach(detector.max_angle_mrad or 0, limit, grid)
    if detector.pixel_mrad is None:
        y, x = (_grid_pixels(p, limit, detector, axis) for axis, p in enumerate(pitch))
        overhang = detector.binning * max(pitch)  # the band limit ends somewhere in the last pixel
    else:
        size = detector.pixel_mrad
        if size < 0.999 * max(pitch):
            raise InputError(
                f"detector.pixel_mrad {size:g} is finer than the reciprocal grid's {max(pitch):.3f} mrad: use a "
                f"cell of {wavelength / size * 1e3:.1f} Å or more (now {min(grid.extent_angstrom):.1f} Å)"
            )
        y, x = (_square_pixels(size, limit, detector, axis) for axis in (0, 1))
        overhang = 0.0
    if detector.shape is not None:
        _check_reach(max(-row.edge * row.size_mrad for row in (y, x)) - overhang, limit, grid)
    return y, x


def _grid_pixels(pitch: float, limit: float, detector: Detector, axis: int) -> PixelRow:
    """`binning` pixels of the reciprocal grid in each; without a shape, all that reach `max_angle_mrad`."""
    b = detector.binning
    if detector.shape is None:
        reach = int((detector.max_angle_mrad or limit) / pitch + 1e-9)
        centre = max(0, -(((b - 1) // 2 - reach) // b))
        count = 2 * centre + 1
    else:
        count = detector.shape[axis]
        centre = count // 2
    return PixelRow(count, b * pitch, -centre - (b // 2 + 0.5) / b)


def _square_pixels(size: float, limit: float, detector: Detector, axis: int) -> PixelRow:
    if detector.shape is not None:
        count = detector.shape[axis]
    elif detector.max_angle_mrad is not None:
        count = 2 * int(np.ceil(detector.max_angle_mrad / size - 1e-9))
    else:
        count = 2 * int(limit / size + 1e-9)
    return PixelRow(count, size, -count / 2)


def _check_reach(reach: float, limit: float, grid: Grid) -> None:
    if reach > limit:
        raise InputError(
            f"the detector reaches {reach:.1f} mrad, beyond the grid's band limit of {limit:.1f} mrad: "
            f"use pixels of {max(grid.sampling_angstrom) * limit / reach:.3f} Å or less, or a smaller detector"
        )


def sampling_and_origin(grid: Grid, wavelength: float, detector: Detector | None) -> tuple[tuple[float, float], tuple[float, float]]:
    """(pitch, angle of the first pixel's centre), each (y, x) in mrad."""
    y, x = pixels(grid, wavelength, detector)
    return (y.size_mrad, x.size_mrad), ((y.edge + 0.5) * y.size_mrad, (x.edge + 0.5) * x.size_mrad)


def bin_matrices(
    grid: Grid, wavelength: float, detector: Detector
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(Wy, Wx), shapes (dy, ny) and (nx, dx), so that Wy @ pattern @ Wx is what the pixels record.

    A reciprocal pixel's intensity is spread evenly over it and shared by overlap, so that what lands on the detector is
    conserved; what the point spread carries over the detector's edge is lost. Patterns have the zero frequency in the
    centre. Raises InputError as `pixels` does.
    """
    wy, wx = (
        _point_spread(row.count, detector.point_spread_pixels) @ _overlap(n, wavelength / extent * 1e3, row)
        for n, extent, row in zip(grid.shape, grid.extent_angstrom, pixels(grid, wavelength, detector), strict=True)
    )
    return wy, wx.T


def _overlap(n: int, pitch: float, row: PixelRow) -> npt.NDArray[np.float64]:
    centres = (np.arange(n) - n // 2) * pitch
    edges = (np.arange(row.count + 1) + row.edge) * row.size_mrad
    low = np.maximum(centres[None, :] - pitch / 2, edges[:-1, None])
    high = np.minimum(centres[None, :] + pitch / 2, edges[1:, None])
    return np.clip(high - low, 0, None) / pitch


def _point_spread(count: int, rms: float) -> npt.NDArray[np.float64]:
    """(count, count) matrix of the discrete Gaussian exp(−t) Iₙ(t), t = rms².

    Unlike a sampled Gaussian it has that rms and the sum 1 however narrow it is. Lindeberg, IEEE Trans. Pattern Anal.
    Mach. Intell. 12, 234 (1990).
    """
    return np.asarray(toeplitz(special.ive(np.arange(count), rms**2)))


def bin_patterns(patterns: Array, matrices: tuple[Any, Any] | None) -> Array:
    """`patterns` (n, ny, nx) as the detector's pixels see them, (n, dy, dx)."""
    return patterns if matrices is None else matrices[0] @ patterns @ matrices[1]


def electrons_per_pattern(
    detector: Detector | None, positions: npt.NDArray[np.float64], scan_shape: tuple[int, int] | None
) -> float | None:
    """Electrons a pattern; None without noise. A dose is shared out by the area of the raster's step.

    positions: (n, 2) in Å. Raises InputError for a dose where the positions are no raster that has an area.
    """
    if detector is None:
        return None
    if detector.dose_electrons_per_angstrom2 is None:
        return detector.electrons_per_pattern
    if scan_shape is None or min(scan_shape) < 2:
        raise InputError("a dose needs a raster of two rows and columns or more: give electrons_per_pattern instead")
    raster = positions.reshape(*scan_shape, 2)
    down, along = raster[1, 0] - raster[0, 0], raster[0, 1] - raster[0, 0]
    return float(detector.dose_electrons_per_angstrom2 * abs(down[0] * along[1] - down[1] * along[0]))


def add_poisson_noise(patterns: npt.NDArray[Any], electrons: float, seed: int) -> npt.NDArray[Any]:
    """What a beam of `electrons` a pattern leaves of the expected `patterns` (n, dy, dx): Poisson's counts.

    They are given over `electrons`, so that they stay fractions of the beam. An electron is counted in one pixel: a
    point spread in `patterns` moves electrons and leaves the pixels' noise independent. Every pixel's count is the
    quantile of its own random number, drawn from (seed, number of the pattern): threads and batches do not change it,
    and the last digits in which two engines differ move a few counts by one, and not the rest of a pattern.
    """
    noisy = np.empty_like(patterns)

    def count(index: int) -> None:
        quantile = np.random.default_rng([seed, _NOISE, index]).random(patterns[index].size)
        counts = _poisson(quantile, patterns[index].ravel().astype(np.float64) * electrons)
        noisy[index] = (counts / electrons).reshape(patterns.shape[1:])

    with ThreadPoolExecutor(available_cores()) as pool:
        list(pool.map(count, range(len(patterns))))
    return noisy


def _poisson(quantile: npt.NDArray[np.float64], mean: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The least k whose cumulative probability is above `quantile`, which lies in [0, 1); both of shape (n,)."""
    counts = np.zeros(len(mean))
    bright = np.flatnonzero(mean >= _BRIGHT)
    counts[bright] = _search_from_mean(quantile[bright], mean[bright])

    # Probabilities summed from 0 on; rounding keeps the sum from 1, so there is a last k to try.
    left = np.flatnonzero(mean < _BRIGHT)
    q, m = quantile[left], mean[left]
    probability = np.exp(-m)
    cumulative = probability.copy()
    for k in range(1, 128):
        above = np.flatnonzero(q >= cumulative)
        left = left[above]
        q, m, probability, cumulative = (values[above] for values in (q, m, probability, cumulative))
        if not len(left):
            break
        counts[left] = k
        probability *= m / k
        cumulative += probability
    return counts


def _search_from_mean(quantile: npt.NDArray[np.float64], mean: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    quantile = np.maximum(quantile, 2.0**-54)
    z = special.ndtri(quantile)
    counts = np.maximum(np.floor(mean + np.sqrt(mean) * z + (z**2 - 1) / 6), 0)  # Cornish and Fisher: off by one or so
    low = np.flatnonzero(special.pdtr(counts, mean) <= quantile)
    while len(low):
        counts[low] += 1
        low = low[special.pdtr(counts[low], mean[low]) <= quantile[low]]
    high = np.flatnonzero((counts > 0) & (special.pdtr(counts - 1, mean) > quantile))
    while len(high):
        counts[high] -= 1
        high = high[(counts[high] > 0) & (special.pdtr(counts[high] - 1, mean[high]) > quantile[high])]
    return counts
