"""The stored reference cases (tests/reference/README.md), computed in float64 by an independent
program.
"""

import json
from pathlib import Path
from typing import Any

import ase
import numpy as np

from namsa.base.arrays import Array

FOLDER = Path(__file__).parents[1] / "reference"
CASES = json.loads((FOLDER / "cases.json").read_text())


def load(name: str, aperture_edge: str = "amplitude") -> tuple[ase.Atoms, dict[str, Any], Any]:
    """Returns (atoms, arguments of `namsa.simulate`, stored arrays) of a case.

    Args:
        aperture_edge: What falls linearly over the edge; that of the stored arrays is the
            amplitude.
    """
    case = CASES[name]
    arrays = np.load(FOLDER / f"{name}.npz", allow_pickle=False)
    atoms = ase.Atoms(
        arrays["numbers"], positions=arrays["positions"], cell=arrays["cell"], pbc=True
    )
    keys = ("energy_ev", "semiangle_mrad", "slice_thickness_angstrom", "aberrations")
    arguments = {key: case[key] for key in keys}
    arguments |= {
        "grid_shape": case["grid_shape_yx"],
        "positions_angstrom": arrays["probe_positions_yx"],
        "aperture_edge": aperture_edge,
    }
    return atoms, arguments, arrays


def pattern_of_intensity_edge(arrays: Any, name: str, shape: tuple[int, int]) -> Array:
    """Returns the pattern (ny, nx) of the second probe with an edge whose intensity falls linearly,
    of Lobato's table.
    """
    y0, y1, x0, x1 = (int(edge) for edge in arrays["box_y0y1x0x1"])
    full = np.zeros(shape)
    with np.load(FOLDER / "intensity_edge.npz", allow_pickle=False) as patterns:
        full[y0:y1, x0:x1] = patterns[name]
    return full


def full_patterns(arrays: Any, table: str, shape: tuple[int, int]) -> Array:
    """Returns the stored patterns on the full grid, (n, ny, nx), zero outside the stored box."""
    y0, y1, x0, x1 = (int(edge) for edge in arrays["box_y0y1x0x1"])
    full = np.zeros((len(arrays["probe_positions_yx"]), *shape))
    full[:, y0:y1, x0:x1] = arrays[f"cbed_{table}"]
    return full
