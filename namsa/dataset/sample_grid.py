"""Pixels and slices of a dataset's samples, by the choice of `namsa.sampling.choice`.

All samples of a dataset are made for the largest angle of any of them, so that those of one
specimen share its pixels.
"""

from typing import Literal

import ase
import numpy as np

from namsa.config.simulation import SimulationConfig
from namsa.crystals.orient import CellFit
from namsa.crystals.sites import wrap_along_beam
from namsa.physics.grid import Grid
from namsa.physics.slice_plan import SlicePlan, slice_count
from namsa.physics.specimen import atom_list
from namsa.sampling import choice
from namsa.sampling.choice import Requirement

Sides = tuple[float, float, float]  # (x, y, z) of a supercell, Å


def requirement(
    config: SimulationConfig, lengths_angstrom: Sides, max_angle_mrad: float | None = None
) -> Requirement:
    """Returns what pixels, slices and thermal configurations of a supercell are chosen for.

    Args:
        max_angle_mrad: Largest angle of a plane wave with the axis, mrad; by default that of any
            sample.
    """
    lx, ly, _ = lengths_angstrom
    energy_ev = config.microscope.energy_ev
    if max_angle_mrad is None:
        max_angle_mrad = largest_angle_mrad(config)
    recorded = choice.recorded_mrad(config.detector, (ly, lx), energy_ev)
    return Requirement(
        energy_ev,
        max_angle_mrad,
        recorded,
        config.simulation.accuracy,
        float(np.hypot(*_largest_tilt(config, "beam_tilt_mrad"))),
        _largest_tilt(config, "specimen_tilt_mrad"),
        config.simulation.divides_atoms,
    )


def layer_plan(
    config: SimulationConfig, atoms: ase.Atoms, max_angle_mrad: float | None = None
) -> SlicePlan:
    """Returns the slices of a specimen, which may follow its layers; arguments as `requirement`."""
    lx, ly, lz = (float(length) for length in atoms.cell.lengths())
    required = requirement(config, (lx, ly, lz), max_angle_mrad)
    z = wrap_along_beam(atoms).positions[:, 2]
    return choice.choose_slices(required, config.simulation, z, lz)


def equal_thickness(config: SimulationConfig, lengths_angstrom: Sides) -> float:
    """Returns the largest thickness of equal slices, Å; see `namsa.sampling.choice`."""
    return choice.equal_thickness(requirement(config, lengths_angstrom), config.simulation)


def slices_of_sample(
    config: SimulationConfig, fit: CellFit, thickness_angstrom: float, plan: SlicePlan | None = None
) -> tuple[int, float]:
    """Returns the number of slices of a sample, and its thickness, Å.

    They are those of the supercell, or of a part of it for `scatter`. The largest listed thickness
    is that of the supercell, whole periods of the crystal, whatever the method.

    Args:
        plan: The slices of the supercell, if they follow its layers. `None` estimates their number.
    """
    depth = fit.lengths_angstrom[2]
    if plan:
        count = plan.count
    else:
        count = slice_count(depth, equal_thickness(config, fit.lengths_angstrom))
    is_thickest = thickness_angstrom == max(config.specimen.thickness_angstrom)
    if config.simulation.method != "scatter" or is_thickest:
        return count, depth
    if plan and config.simulation.follows_layers:
        slices = max(1, plan.slices_up_to(thickness_angstrom))
        return slices, float(plan.ends_angstrom[slices - 1])
    slices = min(max(1, round(thickness_angstrom * count / depth)), count)
    if slices == count:
        return slices, depth
    return slices, depth * slices / count


def largest_angle_mrad(config: SimulationConfig) -> float:
    """Returns the largest angle of a plane wave of any sample with the axis, mrad."""
    tilt_mrad = float(np.hypot(*_largest_tilt(config, "beam_tilt_mrad")))
    return config.microscope.semiangle_mrad + tilt_mrad


def _largest_tilt(
    config: SimulationConfig, name: Literal["beam_tilt_mrad", "specimen_tilt_mrad"]
) -> tuple[float, float]:
    """Returns the largest tilt (y, x) of any sample, mrad."""
    tilts = config.varied_quantities().get(name)
    if tilts is None:
        return getattr(config.microscope, name)
    # In any direction, of which one stands for all.
    return (max(float(np.linalg.norm(tilt)) for tilt in tilts), 0.0)


def simulation_grid(
    config: SimulationConfig, lengths_angstrom: Sides, atoms: ase.Atoms | None = None
) -> Grid:
    """Returns the grid across the beam of a supercell.

    Args:
        lengths_angstrom: Sides (x, y, z), Å.
        atoms: The supercell's atoms, for which pixels may be chosen. `None` takes usual ones then.

    Raises:
        InputError: If it has too many pixels.
    """
    lx, ly, _ = lengths_angstrom
    required = requirement(config, lengths_angstrom)
    columns = None
    if atoms is not None and config.simulation.sampling_angstrom == "auto":
        columns = required.columns(atom_list(atoms), (ly, lx))
    return choice.choose_grid(required, config.simulation, (ly, lx), columns)
