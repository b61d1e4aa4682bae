"""The grid and the slices of a sample, as `namsa.simulate` and `namsa.scatter` would choose them."""

from collections.abc import Sequence

import ase
import numpy as np

from namsa.config.bounds import LARGEST_EXTENT
from namsa.config.simulation import SimulationConfig
from namsa.crystals.orient import CellFit
from namsa.crystals.sites import wrap_along_beam
from namsa.errors import InputError
from namsa.physics import detector as detectors
from namsa.physics import sampling
from namsa.physics.grid import CONVENTIONAL_BAND, Grid, fast_shape
from namsa.physics.optics import wavelength_angstrom
from namsa.physics.slice_plan import SlicePlan, layer_slices, slice_count
from namsa.physics.specimen import atom_list

# Of crystals, where a choice for each specimen is not known yet: to share work out.
_USUAL_PIXEL_ANGSTROM, _USUAL_SLICE_ANGSTROM = 0.08, 1.8


def recorded_mrad(config: SimulationConfig, lengths_angstrom: tuple[float, float, float]) -> float | None:
    """Returns the largest angle along y and x that is recorded, mrad; `None` if nothing limits it."""
    if config.detector is None:
        return None
    lx, ly, _ = lengths_angstrom
    return detectors.reach_mrad(config.detector, (ly, lx), wavelength_angstrom(config.microscope.energy_ev))


def layer_plan(config: SimulationConfig, snapshots: Sequence[ase.Atoms], max_angle_mrad: float) -> SlicePlan:
    """Returns slices that follow the layers of a specimen, as `namsa.simulate` and `namsa.scatter` find them."""
    lx, ly, lz = (float(length) for length in snapshots[0].cell.lengths())
    reach = sampling.reach_of_interest(recorded_mrad(config, (lx, ly, lz)), max_angle_mrad)
    extent = sampling.layer_extent(config.microscope.energy_ev, reach)
    z = np.concatenate([wrap_along_beam(atoms).positions[:, 2] for atoms in snapshots])
    return layer_slices(z, lz, extent)


def equal_thickness(config: SimulationConfig, lengths_angstrom: tuple[float, float, float]) -> float:
    """Returns the largest thickness of equal slices, Å, or the usual one where slices follow layers not yet known."""
    given = config.simulation.slice_thickness_angstrom
    if given != "auto":
        return given
    if config.simulation.follows_layers:
        return _USUAL_SLICE_ANGSTROM
    reach = sampling.reach_of_interest(recorded_mrad(config, lengths_angstrom), largest_angle_mrad(config))
    return sampling.layer_extent(config.microscope.energy_ev, reach)


def slices_of_sample(
    config: SimulationConfig, fit: CellFit, thickness_angstrom: float, plan: SlicePlan | None = None
) -> tuple[int, float]:
    """Returns the number of slices of a sample, and its thickness, Å: all of the supercell, or a part for `scatter`.

    The largest listed thickness is that of the supercell, whole periods of the crystal, whatever the method.

    Args:
        plan: The slices of the supercell, if they follow its layers. `None` estimates their number.
    """
    depth = fit.lengths_angstrom[2]
    count = plan.count if plan else slice_count(depth, equal_thickness(config, fit.lengths_angstrom))
    if config.simulation.method != "scatter" or thickness_angstrom == max(config.specimen.thickness_angstrom):
        return count, depth
    if plan and config.simulation.follows_layers:
        slices = max(1, plan.slices_up_to(thickness_angstrom))
        return slices, float(plan.ends_angstrom[slices - 1])
    slices = min(max(1, round(thickness_angstrom * count / depth)), count)
    return slices, depth if slices == count else depth * slices / count


def largest_angle_mrad(config: SimulationConfig) -> float:
    """Returns the largest angle of a plane wave of any sample with the axis, mrad."""
    tilts = config.varied_quantities().get("beam_tilt_mrad", (config.microscope.beam_tilt_mrad,))
    return config.microscope.semiangle_mrad + max(float(np.linalg.norm(tilt)) for tilt in tilts)


def simulation_grid(
    config: SimulationConfig, lengths_angstrom: tuple[float, float, float], atoms: ase.Atoms | None = None
) -> Grid:
    """Returns the grid across the beam of a supercell.

    Args:
        lengths_angstrom: Sides (x, y, z), Å.
        atoms: The supercell's atoms, for which pixels may be chosen. `None` takes usual ones then.

    Raises:
        InputError: If it has too many pixels.
    """
    lx, ly, _ = lengths_angstrom
    simulation, pixel, band = config.simulation, config.simulation.sampling_angstrom, CONVENTIONAL_BAND
    if pixel == "auto":
        band, pixel = 1.0, _USUAL_PIXEL_ANGSTROM
        if atoms is not None:
            reach = sampling.reach_of_interest(recorded_mrad(config, lengths_angstrom), largest_angle_mrad(config))
            columns = sampling.measure_columns(atom_list(atoms), (ly, lx))
            pixel = sampling.largest_pixel(columns, config.microscope.energy_ev, reach, simulation.accuracy)
    shape = simulation.grid_shape or fast_shape((ly, lx), pixel or 0.0)
    if max(shape) > LARGEST_EXTENT:
        raise InputError(
            f"pixels of {pixel:g} Å make a grid of {shape[0]}×{shape[1]} over {ly:.4g}×{lx:.4g} "
            f"Å; use larger pixels or a smaller cell, for {LARGEST_EXTENT} pixels or fewer along each axis"
        )
    return Grid(shape, (ly, lx), band)
