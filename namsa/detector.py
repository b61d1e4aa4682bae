"""From the reciprocal grid to a detector's pixels."""

from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.config import Detector
from namsa.errors import InputError
from namsa.grid import Array, Grid


def axes(grid: Grid, wavelength: float, detector: Detector | None) -> tuple[tuple[float, float], tuple[float, float]]:
    """(pitch, angle of the first pixel's centre), each (y, x) in mrad.

    On the reciprocal grid the optic axis is a pixel's centre; on a detector it is the centre of the whole, so that
    turning or mirroring a pattern is exact.
    """
    if detector is None:
        pitch_y, pitch_x = (wavelength / extent * 1e3 for extent in grid.extent_angstrom)
        return (pitch_y, pitch_x), (-(grid.shape[0] // 2) * pitch_y, -(grid.shape[1] // 2) * pitch_x)
    pixel = detector.pixel_mrad
    return (pixel, pixel), (-(detector.shape[0] - 1) / 2 * pixel, -(detector.shape[1] - 1) / 2 * pixel)


def bin_matrices(
    grid: Grid, wavelength: float, detector: Detector
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(Wy, Wx), shapes (dy, ny) and (nx, dx), so that Wy @ pattern @ Wx is what the pixels collect.

    The pixels are centred on the optic axis. A reciprocal pixel's intensity is spread evenly over it and shared by
    overlap, so that what lands on the detector is conserved. Patterns have the zero frequency in the centre.

    Raises InputError where a detector's pixel is finer than the reciprocal grid, or the detector reaches past the
    band limit, where patterns are empty.
    """
    shape, pixel_mrad = detector.shape, detector.pixel_mrad
    pitch_mrad = [wavelength / extent * 1e3 for extent in grid.extent_angstrom]
    if pixel_mrad < 0.999 * max(pitch_mrad):
        raise InputError(
            f"detector.pixel_mrad {pixel_mrad:g} is finer than the reciprocal grid's {max(pitch_mrad):.3f} mrad: use a "
            f"cell of {wavelength / pixel_mrad * 1e3:.1f} Å or more (now {min(grid.extent_angstrom):.1f} Å)"
        )
    reach_mrad, limit_mrad = max(shape) * pixel_mrad / 2, grid.band_limit * wavelength * 1e3
    if reach_mrad > limit_mrad:
        raise InputError(
            f"the detector reaches {reach_mrad:.1f} mrad, beyond the grid's band limit of {limit_mrad:.1f} mrad: "
            f"use pixels of {max(grid.sampling_angstrom) * limit_mrad / reach_mrad:.3f} Å or less, or fewer pixels"
        )
    wy = _overlap(grid.shape[0], pitch_mrad[0], shape[0], pixel_mrad)
    wx = _overlap(grid.shape[1], pitch_mrad[1], shape[1], pixel_mrad)
    return wy, wx.T


def _overlap(n: int, pitch: float, pixels: int, pixel: float) -> npt.NDArray[np.float64]:
    centres = (np.arange(n) - n // 2) * pitch
    edges = (np.arange(pixels + 1) - pixels / 2) * pixel
    low = np.maximum(centres[None, :] - pitch / 2, edges[:-1, None])
    high = np.minimum(centres[None, :] + pitch / 2, edges[1:, None])
    return np.clip(high - low, 0, None) / pitch


def collect(patterns: Array, matrices: tuple[Any, Any] | None) -> Array:
    """`patterns` (n, ny, nx) as the detector's pixels see them, (n, dy, dx)."""
    return patterns if matrices is None else matrices[0] @ patterns @ matrices[1]
