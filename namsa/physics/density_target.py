"""The target of a network: the density, band-limited to what the probe can transfer, on the grid or
at positions.
"""

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Floats
from namsa.physics.grid import Grid


def band_limited(density: Floats, grid: Grid, max_q: float) -> npt.NDArray[np.complex128]:
    """Returns the Fourier coefficients of a density (ny, nx), e/Å², under ½(1 + cos(πq/q_max)), up
    to `max_q`, 1/Å.

    A hard edge would ring, and the density would be negative in places.

    Returns:
        Coefficients (ny, nx), zero frequency first.
    """
    return np.fft.fft2(density) * window(np.sqrt(grid.squared_frequency()), max_q)


def window(q: Floats, max_q: float) -> Floats:
    """Returns the cosine window of `band_limited` at frequencies `q`, 1/Å."""
    return np.where(q < max_q, 0.5 * (1 + np.cos(np.pi * np.minimum(q / max_q, 1))), 0)


def on_grid(coefficients: npt.NDArray[np.complex128]) -> Floats:
    """Returns the field of Fourier `coefficients` on their own grid, (ny, nx)."""
    return np.fft.ifft2(coefficients).real


def at_positions(
    coefficients: npt.NDArray[np.complex128], grid: Grid, y: Floats, x: Floats
) -> Floats:
    """Returns a field at the points of a raster, as an exact Fourier sum without interpolation,
    (sy, sx).

    Args:
        coefficients: Fourier coefficients (ny, nx), zero frequency first.
        y: Rows (sy,) of the raster, Å.
        x: Columns (sx,) of the raster, Å.
    """
    ky, kx = grid.frequencies()
    phase_y = np.exp(2j * np.pi * y[:, None] * ky.T)
    phase_x = np.exp(2j * np.pi * kx.T * x[None, :])
    return (phase_y @ coefficients @ phase_x).real / coefficients.size
