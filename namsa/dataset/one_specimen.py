"""The one specimen of a single simulation: the first of a configuration, a crystal with a charge
density, or vacuum.
"""

import math
from pathlib import Path

import ase

from namsa.config.simulation import SimulationConfig
from namsa.crystals.cif import to_material
from namsa.crystals.material import Material
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import Entry
from namsa.io.charge_density import ChargeDensity

_VACUUM_ANGSTROM = 2.0  # thickness, which changes no pattern
_ROUNDING = 1e-6  # relative


def of_density(
    config: SimulationConfig, density: ChargeDensity, path: Path
) -> tuple[SimulationConfig, Material]:
    """Returns the configuration of whole cells of a charge density, and its crystal.

    Args:
        path: The file of the density.
    """
    a, b, _ = density.atoms.cell.lengths().tolist()
    least_y, least_x = config.specimen.lateral_angstrom
    lateral = (_whole_cells(least_y, b), _whole_cells(least_x, a))  # a stays along x, b along y
    specimen = config.specimen.model_copy(update={"lateral_angstrom": lateral})
    material = to_material(density.atoms, [], "P1", path, "file", as_is=True)
    return config.model_copy(update={"specimen": specimen}), material


def vacuum(config: SimulationConfig) -> tuple[SimulationConfig, Material]:
    """Returns the configuration of an empty cell, and the empty cell as a material."""
    y, x = config.specimen.lateral_angstrom
    thickness = min(config.specimen.thickness_angstrom[0], _VACUUM_ANGSTROM)
    empty = ase.Atoms(cell=(x, y, thickness), pbc=True)
    specimen = config.specimen.model_copy(
        update={
            "zone_axes": ((0, 0, 1),),
            "simplest_zone_axes": None,
            "kinds": None,
            "frozen_phonons": None,
            "thickness_angstrom": (float(empty.cell[2, 2]),),
        }
    )
    material = Material("vacuum", "vacuum", "P1", empty, "--vacuum")
    return config.model_copy(update={"specimen": specimen}), material


def first_entry(config: SimulationConfig, material: Material) -> tuple[SimulationConfig, Entry]:
    """Returns the configuration with its first zone axis and thickness only, and its one manifest
    entry.
    """
    specimen = config.specimen
    of_one = specimen.model_copy(
        update={
            "zone_axes": specimen.zone_axes[:1],
            "simplest_zone_axes": specimen.simplest_zone_axes and 1,
            "thickness_angstrom": specimen.thickness_angstrom[:1],
        }
    )
    config = config.model_copy(update={"specimen": of_one})
    return config, build_entries(config, (material,))[0]


def _whole_cells(least_angstrom: float, side_angstrom: float) -> float:
    """Returns the length of the fewest cells that are at least `least_angstrom` long.

    Rounding neither adds a cell here nor where the specimen is built.
    """
    cells = math.ceil(least_angstrom / side_angstrom - _ROUNDING)
    return side_angstrom * cells * (1 - _ROUNDING)
