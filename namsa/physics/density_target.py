"""The density a network learns: band-limited to what the probe can carry, sampled where the network needs it."""

import numpy as np
import numpy.typing as npt

from namsa.physics.grid import Grid


def band_limited(density: npt.NDArray[np.float64], grid: Grid, max_q: float) -> npt.NDArray[np.complex128]:
    """The Fourier coefficients of `density` (ny, nx) under a cosine window that ends at `max_q` (1/Å).

    ½(1 + cos(πq/q_max)): a hard edge would ring, and a density that rings below zero is no density.
    """
    return np.fft.fft2(density) * window(np.sqrt(grid.squared_frequency()), max_q)


def window(q: npt.NDArray[np.float64], max_q: float) -> npt.NDArray[np.float64]:
    """The cosine window of `band_limited` at frequencies `q` (1/Å)."""
    return np.where(q < max_q, 0.5 * (1 + np.cos(np.pi * np.minimum(q / max_q, 1))), 0)


def on_grid(coefficients: npt.NDArray[np.complex128]) -> npt.NDArray[np.float64]:
    """The field on the simulation's grid, (ny, nx)."""
    return np.fft.ifft2(coefficients).real


def at_positions(
    coefficients: npt.NDArray[np.complex128], grid: Grid, y: npt.NDArray[np.float64], x: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The field at the crossings of rows `y` and columns `x` (Å), (sy, sx): Fourier's sum, hence no interpolation."""
    ky, kx = grid.frequencies()
    phase_y = np.exp(2j * np.pi * y[:, None] * ky.T)
    phase_x = np.exp(2j * np.pi * kx.T * x[None, :])
    return (phase_y @ coefficients @ phase_x).real / coefficients.size
