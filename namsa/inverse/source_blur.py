"""The blur of patterns along a scan by a source of finite size.

Along each axis, patterns are continued beyond the scan as its ends and what is odd about them: a
straight line stays one. (If they were mirrored, positions near the edges would seem to lie further
out.)
"""

import numpy as np

from namsa.base.arrays import Array, Floats


def blurred(
    patterns: Array, scan: tuple[int, int], step_angstrom: tuple[float, float], variance: float
) -> Array:
    """Returns the patterns of a source from those of a point.

    Args:
        patterns: `(n, dy, dx)`, of a raster of positions.
        scan: Number of positions (y, x).
        step_angstrom: Distances of positions (y, x).
        variance: Variance of the source along one axis, Å².
    """
    along_y, along_x = blur_matrices(scan, step_angstrom, variance)
    return apply(along_y, along_x, scan, patterns)


def by_variance(
    patterns: Array, scan: tuple[int, int], step_angstrom: tuple[float, float], variance: float
) -> Array:
    """Returns the derivative of what `blurred` returns by the variance."""
    along_y, along_x = blur_matrices(scan, step_angstrom, variance)
    slope_y = _slope_matrix(scan[0], step_angstrom[0], variance)
    slope_x = _slope_matrix(scan[1], step_angstrom[1], variance)
    of_y = apply(slope_y, along_x, scan, patterns)
    of_x = apply(along_y, slope_x, scan, patterns)
    return of_y + of_x


def apply(along_y: Array, along_x: Array, scan: tuple[int, int], patterns: Array) -> Array:
    """Returns patterns after matrices along the rows and the columns of the scan."""
    rows = (along_y @ patterns.reshape(scan[0], -1)).reshape(*scan, -1)
    return np.asarray((along_x @ rows).reshape(patterns.shape))


def blur_matrices(
    scan: tuple[int, int], step_angstrom: tuple[float, float], variance: float
) -> tuple[Array, Array]:
    """Returns the matrices of the blur along y and x."""
    along_y = _blur_matrix(scan[0], step_angstrom[0], variance)
    along_x = _blur_matrix(scan[1], step_angstrom[1], variance)
    return along_y, along_x


def _blur_matrix(n: int, step: float, variance: float) -> Array:
    """Returns the matrix of the blur of n positions."""
    line = _line_matrix(n)
    sines, decay = _sines(n, step)
    odd = (sines * np.exp(decay * variance)) @ sines.T @ (np.eye(n) - line)
    return (odd + line).astype(np.float32)


def _slope_matrix(n: int, step: float, variance: float) -> Array:
    """Returns the derivative of the blur's matrix by the variance."""
    sines, decay = _sines(n, step)
    odd = (sines * decay * np.exp(decay * variance)) @ sines.T @ (np.eye(n) - _line_matrix(n))
    return odd.astype(np.float32)


def _line_matrix(n: int) -> Floats:
    """Returns the matrix that draws the straight line from the first to the last of n values."""
    place = np.linspace(0, 1, n)
    line = np.zeros((n, n))
    line[:, 0] += 1 - place
    line[:, -1] += place
    return line


def _sines(n: int, step: float) -> tuple[Floats, Floats]:
    """Returns the sines that vanish at both ends of n positions, and their decays per Å²."""
    intervals = max(n - 1, 1)
    order = np.arange(1, n - 1)
    place = np.linspace(0, 1, n)
    phase = np.pi * (n - 1) * np.outer(place, order) / intervals
    sines = np.sqrt(2 / intervals) * np.sin(phase)
    decay = -2 * np.pi**2 * (order / (2 * intervals * step)) ** 2
    return sines, decay
