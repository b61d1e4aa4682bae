"""The pixels and the band of a sample's projected density."""

from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Array, Floats
from namsa.dataset.sample_setup import SampleSetup
from namsa.physics import density_target
from namsa.physics.grid import Grid
from namsa.physics.optics import BeamSettings, is_parallel, probe_limit


def axes_of_density(setup: SampleSetup) -> tuple[Floats, Floats]:
    """Returns the rows and columns of the density, Å."""
    if setup.config.target.at == "scan" and setup.scan_axes:
        return setup.scan_axes
    ny, nx = setup.grid.shape
    dy, dx = setup.grid.sampling_angstrom
    return np.arange(ny) * dy, np.arange(nx) * dx


class DensityPixels(NamedTuple):
    """The pixels of a density, and its band limit."""

    grid: Grid  # the pixels of the projected density
    # Rows and columns of the scan, Å, where the density is wanted; `None`: on the grid.
    scan_axes: tuple[Floats, Floats] | None
    step_angstrom: list[float]  # distance (y, x) of the pixels, Å
    origin_angstrom: list[float]  # position (y, x) of the first pixel, Å
    max_q_per_angstrom: float  # frequency at which the density's window reaches zero, 1/Å

    def of(self, density: Array) -> Array:
        """Returns a projected density (ny, nx), band-limited, on these pixels."""
        coefficients = density_target.band_limited(
            density.astype(np.float64), self.grid, self.max_q_per_angstrom
        )
        if self.scan_axes is None:
            return density_target.on_grid(coefficients).astype(density.dtype)
        at_scan = density_target.at_positions(coefficients, self.grid, *self.scan_axes)
        return at_scan.astype(density.dtype)


def density_pixels(setup: SampleSetup) -> DensityPixels:
    """Returns the pixels and the band limit of a sample's density."""
    config = setup.config
    grid = setup.grid
    axes = setup.scan_axes if config.target.at == "scan" else None
    step = list(grid.sampling_angstrom)
    origin = [0.0, 0.0]
    if axes:
        step = [float(axis[1] - axis[0]) if len(axis) > 1 else 0.0 for axis in axes]
        origin = [float(axis[0]) for axis in axes]
    return DensityPixels(grid, axes, step, origin, _largest_frequency(setup))


def _largest_frequency(setup: SampleSetup) -> float:
    """Returns the frequency at which the density's window reaches zero, 1/Å."""
    config = setup.config
    if config.target.max_q_per_angstrom:
        return config.target.max_q_per_angstrom
    beam = BeamSettings(config.microscope.energy_ev, config.microscope.semiangle_mrad, {})
    if is_parallel(setup.grid, beam):
        return setup.grid.band_limit
    return probe_limit(beam.energy_ev, beam.semiangle_mrad)
