"""A small crystal without symmetry, the same in every slice; its sample and its experiment."""

from typing import Literal

import ase
import numpy as np

import namsa
from namsa.config.loading import validate
from namsa.physics import density_target
from namsa.physics.grid import Grid
from namsa.samples.sample import Sample
from train.experiment.experiment import Experiment

MAX_Q = 1.25
SCAN = (14, 18)
STEP = (0.4, 0.35)
THICKNESS = 12.0
TREE = {
    "microscope": {"energy_ev": 200e3, "semiangle_mrad": 20, "aberrations": {"C10": -40.0}},
    "scan": {"shape": SCAN, "step_angstrom": STEP, "origin_angstrom": [0.0, 0.0]},
    "simulation": {"sampling_angstrom": 0.2, "slice_thickness_angstrom": 2.0},
    "detector": {"shape": [16, 16], "pixel_mrad": 4},
    "target": {"at": "scan", "max_q_per_angstrom": MAX_Q},
    "network": {"input_shape": [256, *SCAN], "layers": [1, 1, 1]},
    "training": {"epochs": 1, "inputs": {"layout": "scan"}},
}
EXPERIMENT = validate(Experiment, TREE, "test")


def crystal(symbol: str = "Si", scale: float = 1.0) -> ase.Atoms:
    """Returns a plane of atoms without any symmetry, the same in every slice of 2 Å."""
    flat = np.array([[1.1, 1.4], [3.9, 2.6], [6.2, 4.8], [2.3, 5.9], [7.4, 1.2]]) * scale
    positions = np.concatenate(
        [np.column_stack([flat, np.full(5, 2.0 * n + 1.0)]) for n in range(6)]
    )
    return ase.Atoms([symbol] * 30, positions, cell=[8.8 * scale, 7.6 * scale, THICKNESS], pbc=True)


def sample(
    atoms: ase.Atoms, precision: Literal["float32", "float64"] = "float32"
) -> tuple[Sample, np.ndarray]:
    """Returns a sample and its band-limited density at the scan's positions."""
    lx, ly, _ = atoms.cell.lengths()
    y, x = (step * np.arange(n) + 0.9 for n, step in zip(SCAN, STEP, strict=True))
    positions = np.stack(np.meshgrid(y, x, indexing="ij"), -1).reshape(-1, 2)
    simulated = namsa.simulate(
        atoms,
        energy_ev=200e3,
        semiangle_mrad=20,
        slice_thickness_angstrom=2.0,
        grid_shape=(40, 48),
        positions_angstrom=positions,
        aberrations={"C10": -40.0},
        detector=EXPERIMENT.detector,
        scan_shape=SCAN,
        precision=precision,
    )
    grid = Grid((40, 48), (ly, lx))
    coefficients = density_target.band_limited(simulated.density.astype(float), grid, MAX_Q)
    return simulated, density_target.at_positions(coefficients, grid, y, x)
