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
    if band is not None:
        return _limited(density, pixels, band, scan)
    covered = np.multiply(density.shape, pixels.step)
    if not np.allclose(covered, extent, rtol=1e-3):
        return None
    return _at_positions(density, pixels, scan)


def _limited(density: Floats, pixels: PixelGrid, band: float, scan: FittedScan) -> Array | None:
    """Returns a density that is band-limited already; `None` if its band or places are others."""
    same_places = (
        density.shape == scan.plan.scan_shape
        and np.allclose(pixels.step, scan.pixels.step)
        and np.allclose(pixels.origin, scan.pixels.origin, atol=1e-3)
    )
    if not same_places or not np.isclose(band, scan.model.max_q, rtol=1e-3):
        return None
    return density.astype(np.float32)


def _at_positions(density: Floats, pixels: PixelGrid, scan: FittedScan) -> Array:
    """Returns the density of a periodic cell, `(ny, nx)`, at the positions of a scan."""
    rows, columns = density.shape
    step_y, step_x = pixels.step
    grid = Grid((rows, columns), (rows * step_y, columns * step_x))
    coefficients = density_target.band_limited(density, grid, scan.model.max_q)
    y, x = scan.pixels.coordinates(scan.plan.scan_shape)
    origin_y, origin_x = pixels.origin
    found = density_target.at_positions(coefficients, grid, y - origin_y, x - origin_x)
    return found.astype(np.float32)
