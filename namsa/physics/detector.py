"""The detector: from the reciprocal grid to pixels, with point spread and shot noise.

Patterns are fractions of the incident beam. Angles are in mrad from the optic axis.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special
from scipy.linalg import toeplitz

from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.config.instrument import Detector
from namsa.physics.backend import available_cores
from namsa.physics.grid import Array, Grid

_NOISE = 2  # index of the noise's random stream among those of a sample's seed
# electrons: above this mean, the search for a count is faster from the mean than from 0
_BRIGHT = 16.0
# Pixels may be finer than the reciprocal grid by 2 %: neighbours then share a little intensity.
FINEST_OF_RECIPROCAL = 0.98


@dataclass(frozen=True)
class PixelRow:
    """The detector's pixels along one axis."""

    count: int  # number of pixels
    size_mrad: float  # size of a pixel, mrad
    edge: float  # outer edge of the first pixel, in pixels from the optic axis


def pixels(grid: Grid, wavelength: float, detector: Detector | None) -> tuple[PixelRow, PixelRow]:
    """Returns the detector's pixels along y and x, or those of the whole reciprocal grid without a
    detector.

    Pixels of `pixel_mrad` have the optic axis in the centre of the detector, so that rotating or
    mirroring a pattern is exact. Pixels of the reciprocal grid have it in the centre of pixel
    number count // 2; if they are binned by an even number, half a reciprocal pixel away from it.

    Raises:
        InputError: If a pixel is finer than the reciprocal grid, or the detector reaches beyond the
            band limit, where patterns are empty.
    """
    pitch_y, pitch_x = (wavelength / extent * 1e3 for extent in grid.extent_angstrom)
    if detector is None:
        ny, nx = grid.shape
        return PixelRow(ny, pitch_y, -(ny // 2) - 0.5), PixelRow(nx, pitch_x, -(nx // 2) - 0.5)
    limit = grid.band_limit * wavelength * 1e3
    _check_reach(detector.max_angle_mrad or 0, limit, grid)
    if detector.pixel_mrad is None:
        y = _grid_pixels(pitch_y, limit, detector, axis=0)
        x = _grid_pixels(pitch_x, limit, detector, axis=1)
        # The band limit ends somewhere in the last pixel.
        overhang = detector.binning * max(pitch_y, pitch_x)
    else:
        size = detector.pixel_mrad
        if size < FINEST_OF_RECIPROCAL * max(pitch_y, pitch_x):
            raise InputError(
                f"detector.pixel_mrad {size:g} is finer than the reciprocal grid's "
                f"{max(pitch_y, pitch_x):.3f} mrad: use a cell of "
                f"{wavelength / size * 1e3:.1f} Å or more "
                f"(now {min(grid.extent_angstrom):.1f} Å)"
                f"{_in_radians(size, max(pitch_y, pitch_x))}"
            )
        y = _square_pixels(size, limit, detector, axis=0)
        x = _square_pixels(size, limit, detector, axis=1)
        overhang = 0.0
    if detector.shape is not None:
        reach = max(-y.edge * y.size_mrad, -x.edge * x.size_mrad)
        _check_reach(reach - overhang, limit, grid)
    return y, x


def _in_radians(pixel_mrad: float, pitch_mrad: float) -> str:
    """Returns a question about a pixel that is usual in rad and not in mrad, or nothing."""
    if 1e3 * pixel_mrad < pitch_mrad or pixel_mrad > 0.02:
        return ""
    return f". Is it in rad? Then give pixel_mrad {1e3 * pixel_mrad:g}"


def reach_mrad(
    detector: Detector, extent_angstrom: tuple[float, float], wavelength: float
) -> float | None:
    """Returns the largest angle along y and x that a detector records, mrad; `None` if that is the
    band limit.

    Args:
        extent_angstrom: Sides (Ly, Lx) of the cell, whose reciprocal pixels it may count in, Å.
    """
    if detector.shape is None:
        return detector.max_angle_mrad
    reaches = []
    for count, extent in zip(detector.shape, extent_angstrom, strict=True):
        size = detector.pixel_mrad or detector.binning * 1e3 * wavelength / extent
        reaches.append(count * size / 2)
    return max(reaches)


def _grid_pixels(pitch: float, limit: float, detector: Detector, axis: int) -> PixelRow:
    """Returns pixels of `binning` reciprocal pixels each; without a shape, as many as reach
    `max_angle_mrad`.
    """
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
    """Returns pixels of `size` mrad; without a shape, as many as reach `max_angle_mrad` or else the
    band limit.
    """
    if detector.shape is not None:
        count = detector.shape[axis]
    elif detector.max_angle_mrad is not None:
        count = 2 * int(np.ceil(detector.max_angle_mrad / size - 1e-9))
    else:
        count = 2 * int(limit / size + 1e-9)
    return PixelRow(count, size, -count / 2)


def _check_reach(reach: float, limit: float, grid: Grid) -> None:
    """Raises InputError if the detector reaches beyond the band limit; both in mrad."""
    if reach > limit:
        raise InputError(
            f"the detector reaches {reach:.1f} mrad, beyond the grid's band limit of {limit:.1f} "
            f"mrad: use pixels of {max(grid.sampling_angstrom) * limit / reach:.3f} Å or less, or "
            "a smaller detector"
        )


def sampling_and_origin(
    grid: Grid, wavelength: float, detector: Detector | None
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Returns the pixels' size and the angle of the first pixel's centre, each as (y, x) in mrad.

    Arguments and errors as `pixels`.
    """
    y, x = pixels(grid, wavelength, detector)
    return (y.size_mrad, x.size_mrad), ((y.edge + 0.5) * y.size_mrad, (x.edge + 0.5) * x.size_mrad)


def bin_matrices(
    grid: Grid,
    wavelength: float,
    detector: Detector,
    shift_mrad: tuple[float, float] = (0.0, 0.0),
) -> tuple[Floats, Floats]:
    """Returns matrices (Wy, Wx) such that Wy @ pattern @ Wx is the pattern that the pixels record.

    The intensity of a reciprocal pixel is taken as uniform over its area and shared among the
    detector's pixels by overlap, so that intensity on the detector is conserved. Intensity that the
    point spread moves over the detector's edge is lost. Patterns have the zero frequency in the
    centre.

    Args:
        shift_mrad: Angle (y, x) of the patterns that the optic axis of the detector is at, mrad.

    Returns:
        Wy, (dy, ny), and Wx, (nx, dx).

    Raises:
        InputError: If detector and grid do not fit; see `pixels`.
    """
    matrices = []
    for axis, row in enumerate(pixels(grid, wavelength, detector)):
        pitch = wavelength / grid.extent_angstrom[axis] * 1e3
        overlap = _overlap(grid.shape[axis], pitch, row, shift_mrad[axis])
        matrices.append(_point_spread(row.count, detector.point_spread_pixels) @ overlap)
    return matrices[0], matrices[1].T


def _overlap(n: int, pitch: float, row: PixelRow, shift_mrad: float = 0.0) -> Floats:
    """Returns the share (count, n) of each reciprocal pixel that lies in each detector pixel."""
    centres = (np.arange(n) - n // 2) * pitch - shift_mrad
    edges = (np.arange(row.count + 1) + row.edge) * row.size_mrad
    low = np.maximum(centres[None, :] - pitch / 2, edges[:-1, None])
    high = np.minimum(centres[None, :] + pitch / 2, edges[1:, None])
    return np.clip(high - low, 0, None) / pitch


def _point_spread(count: int, rms: float) -> Floats:
    """Returns the matrix (count, count) of the discrete Gaussian exp(−t) Iₙ(t), t = rms².

    Unlike a sampled Gaussian it has this rms and the sum 1 for any width. Lindeberg, IEEE Trans.
    Pattern Anal. Mach. Intell. 12, 234 (1990).
    """
    return np.asarray(toeplitz(special.ive(np.arange(count), rms**2)))


def bin_patterns(patterns: Array, matrices: tuple[Array, Array] | None) -> Array:
    """Returns patterns as the detector's pixels record them, (n, dy, dx).

    Args:
        patterns: Patterns (n, ny, nx), zero frequency in the centre.
        matrices: The matrices of `bin_matrices`. `None` returns the patterns unchanged.
    """
    if matrices is None:
        return patterns
    return matrices[0] @ patterns @ matrices[1]


def electrons_per_pattern(
    detector: Detector | None, positions: Floats, scan_shape: tuple[int, int] | None
) -> float | None:
    """Returns the number of electrons per pattern; `None` if there is no noise.

    Args:
        positions: Probe positions (n, 2) as (y, x), Å.
        scan_shape: Rows and columns (sy, sx) if the positions are a raster. A dose is multiplied by
            its step's area.

    Raises:
        InputError: If a dose is given and the positions are not a raster of two rows and columns or
            more.
    """
    if detector is None:
        return None
    if detector.dose_electrons_per_angstrom2 is None:
        return detector.electrons_per_pattern
    if scan_shape is None or min(scan_shape) < 2:
        raise InputError(
            "a dose needs a raster of two rows and columns or more: give electrons_per_pattern "
            "instead"
        )
    raster = positions.reshape(*scan_shape, 2)
    down = raster[1, 0] - raster[0, 0]
    along = raster[0, 1] - raster[0, 0]
    area = abs(down[0] * along[1] - down[1] * along[0])
    return float(detector.dose_electrons_per_angstrom2 * area)


def add_poisson_noise(
    patterns: npt.NDArray[np.floating], electrons: float, seed: int, first_pattern: int = 0
) -> npt.NDArray[np.floating]:
    """Returns patterns with the shot noise of a number of electrons per pattern.

    An electron is counted in one pixel: a point spread in `patterns` moves electrons, and the noise
    of the pixels is independent. The count of each pixel is the quantile of its own random number,
    which is drawn from (seed, number of the pattern). Threads and batches do not change it. Where
    the last digits of two engines differ, a few counts differ by one, and the rest of the pattern
    is the same.

    Args:
        patterns: Expected patterns (n, dy, dx), fractions of the beam.
        first: Number of the first pattern in the scan.

    Returns:
        Poisson counts divided by `electrons`, (n, dy, dx), in the precision of `patterns`.
    """
    noisy = np.empty_like(patterns)

    def count(index: int) -> None:
        quantile = np.random.default_rng([seed, _NOISE, first_pattern + index]).random(
            patterns[index].size
        )
        counts = _poisson(quantile, patterns[index].ravel().astype(np.float64) * electrons)
        noisy[index] = (counts / electrons).reshape(patterns.shape[1:])

    with ThreadPoolExecutor(available_cores()) as pool:
        list(pool.map(count, range(len(patterns))))
    return noisy


def _poisson(quantile: Floats, mean: Floats) -> Floats:
    """Returns the least k whose cumulative probability exceeds `quantile` in [0, 1); all of shape
    (n,).
    """
    counts = np.zeros(len(mean))
    bright = np.flatnonzero(mean >= _BRIGHT)
    counts[bright] = _search_from_mean(quantile[bright], mean[bright])

    # Probabilities are summed from k = 0 on. Rounding can keep the sum below 1, so k has an upper
    # limit.
    left = np.flatnonzero(mean < _BRIGHT)
    q = quantile[left]
    m = mean[left]
    probability = np.exp(-m)
    cumulative = probability.copy()
    for k in range(1, 128):
        above = np.flatnonzero(q >= cumulative)
        left = left[above]
        q = q[above]
        m = m[above]
        probability = probability[above]
        cumulative = cumulative[above]
        if not len(left):
            break
        counts[left] = k
        probability *= m / k
        cumulative += probability
    return counts


def _search_from_mean(quantile: Floats, mean: Floats) -> Floats:
    """Returns the same as `_poisson`, searched from an estimate near the mean."""
    quantile = np.maximum(quantile, 2.0**-54)
    z = special.ndtri(quantile)
    # Cornish–Fisher expansion, wrong by about one at most
    counts = np.maximum(np.floor(mean + np.sqrt(mean) * z + (z**2 - 1) / 6), 0)
    low = np.flatnonzero(special.pdtr(counts, mean) <= quantile)
    while len(low):
        counts[low] += 1
        low = low[special.pdtr(counts[low], mean[low]) <= quantile[low]]
    high = np.flatnonzero((counts > 0) & (special.pdtr(counts - 1, mean) > quantile))
    while len(high):
        counts[high] -= 1
        high = high[
            (counts[high] > 0) & (special.pdtr(counts[high] - 1, mean[high]) > quantile[high])
        ]
    return counts
