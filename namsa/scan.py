"""Probe positions of a regular scan."""

import numpy as np
import numpy.typing as npt

from namsa.config import Scan


def positions(
    scan: Scan, extent_angstrom: tuple[float, float], rng: np.random.Generator
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(y, x) coordinates of the scan's rows and columns in Å, shapes (sy,) and (sx,).

    Without a step the scan fills the periodic cell of `extent_angstrom` (y, x) evenly, its last position one step
    before the first comes again.
    """
    step = scan.step_angstrom or tuple(
        extent / count for extent, count in zip(extent_angstrom, scan.shape, strict=True)
    )
    origin = rng.uniform(0, extent_angstrom) if scan.origin_angstrom == "random" else scan.origin_angstrom
    y, x = (origin[axis] + step[axis] * np.arange(scan.shape[axis]) for axis in (0, 1))
    return y, x


def raster(y: npt.NDArray[np.float64], x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Rows and columns as a list of positions (sy·sx, 2), x fastest."""
    return np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1).reshape(-1, 2)
