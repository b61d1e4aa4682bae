"""The stored reference cases (tests/reference/README.md), computed in float64 by an independent program."""

import json
from pathlib import Path

import ase
import numpy as np

FOLDER = Path(__file__).parents[1] / "reference"
CASES = json.loads((FOLDER / "cases.json").read_text())


def load(name):
    """Returns (atoms, arguments of `namsa.simulate`, stored arrays) of a case."""
    case, arrays = CASES[name], np.load(FOLDER / f"{name}.npz", allow_pickle=False)
    atoms = ase.Atoms(arrays["numbers"], positions=arrays["positions"], cell=arrays["cell"], pbc=True)
    keys = ("energy_ev", "semiangle_mrad", "slice_thickness_angstrom", "aberrations")
    arguments = {key: case[key] for key in keys}
    arguments |= {"grid_shape": case["grid_shape_yx"], "positions_angstrom": arrays["probe_positions_yx"]}
    return atoms, arguments, arrays


def full_patterns(arrays, table, shape):
    """Returns the stored patterns on the full grid, (n, ny, nx), zero outside the stored box."""
    y0, y1, x0, x1 = (int(edge) for edge in arrays["box_y0y1x0x1"])
    full = np.zeros((len(arrays["probe_positions_yx"]), *shape))
    full[:, y0:y1, x0:x1] = arrays[f"cbed_{table}"]
    return full
