"""The true density of a simulated scan, as far as its file holds it."""

from pathlib import Path

import numpy as np

from namsa.base.arrays import Array, Floats
from namsa.base.errors import InputError
from namsa.base.pixels import PixelGrid, density_grid, scan_grid
from namsa.base.provenance_values import value
from namsa.physics import density_target
from namsa.physics.grid import Grid
from namsa.samples.sample_file import open_samples

from ....apply.scans import FittedScan


def true_density(path: Path, scan: FittedScan) -> Array | None:
    """Returns the true density at the positions of a scan, in the band of its network.

    Args:
        path: The scan's file.
        scan: The scan, by the raster that the file states.

    Returns:
        `(sy, sx)`, e/Å²; `None` if the file does not hold one sample of this raster and its
        density.
    """
    if scan.model.experiment.target.kind != "density":
        return None
    try:
        with open_samples(path) as samples:
            if len(samples) != 1:
                return None
            (sample,) = samples.values()
            provenance = sample.provenance()
            raster = scan_grid(provenance)
            if raster is None or not np.allclose(raster.step, scan.data.scan_step_angstrom):
                return None
            density = np.asarray(sample.arrays()["density"][:], np.float64)
            pixels = density_grid(provenance)
            band = value(provenance, "density_max_q_per_angstrom", None)
            extent = value(provenance, "extent_angstrom")
    except InputError:
        return None
    covered = np.multiply(density.shape, pixels.step)
    if np.allclose(covered, extent, rtol=1e-3):
        return _of_cell(density, pixels, band, scan)
    if band is None:
        return None
    return _limited(density, pixels, band, scan)


def _limited(density: Floats, pixels: PixelGrid, band: float, scan: FittedScan) -> Array | None:
    """Returns a density at the positions of the scan; `None` if its band or places are others."""
    same_places = (
        density.shape == scan.plan.scan_shape
        and np.allclose(pixels.step, scan.pixels.step)
        and np.allclose(pixels.origin, scan.pixels.origin, atol=1e-3)
    )
    if not same_places or not np.isclose(band, scan.model.max_q, rtol=1e-3):
        return None
    return density.astype(np.float32)


def _of_cell(
    density: Floats, pixels: PixelGrid, band: float | None, scan: FittedScan
) -> Array | None:
    """Returns the density of a periodic cell at the positions of a scan.

    Args:
        density: `(ny, nx)`, e/Å².
        band: Frequency at which the window of the stored density reaches zero, 1/Å; `None` for a
            density without one.

    Returns:
        `(sy, sx)`, e/Å²; `None` if the stored density has less than the network's band.
    """
    max_q = scan.model.max_q
    if band is not None and band < max_q * (1 - 1e-3):
        return None
    rows, columns = density.shape
    step_y, step_x = pixels.step
    grid = Grid((rows, columns), (rows * step_y, columns * step_x))
    coefficients = density_target.band_limited(density, grid, max_q)
    if band is not None:
        q = np.sqrt(grid.squared_frequency())
        within = q < min(max_q, band)
        # The network's window replaces the stored one. Their quotient is at most 1.
        coefficients[within] /= density_target.window(q, band)[within]
        coefficients[~within] = 0
    y, x = scan.pixels.coordinates(scan.plan.scan_shape)
    origin_y, origin_x = pixels.origin
    density_at_positions = density_target.at_positions(
        coefficients, grid, y - origin_y, x - origin_x
    )
    return density_at_positions.astype(np.float32)
