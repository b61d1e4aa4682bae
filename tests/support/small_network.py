"""A small network of random weights as a run directory, and patterns that it takes, with their
beam.
"""

from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np

from namsa.base.arrays import Array
from namsa.config.loading import dump_yaml
from namsa.io.calibration import CalibrationOverrides
from train.experiment.experiment import Experiment
from train.networks import build
from train.optimization import checkpoint
from train.optimization.checkpoint import TrainingPosition
from train.tasks.density.scan.application import reconstruct

WINDOW = (24, 24)
DETECTOR = (4, 4)
BEAM = CalibrationOverrides(
    energy_ev=200e3,
    semiangle_mrad=20.0,
    scan_step_angstrom=(0.4, 0.4),
    pixel_mrad=(8.0, 8.0),
    centre_pixels=(1.5, 1.5),
)

OPTIONS = (
    "--energy-ev 200e3 --semiangle-mrad 20 --scan-step-angstrom 0.4 0.4 --pixel-mrad 8 "
    "--beam-intensity 1"
)


def patterns(scan: tuple[int, int], seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(0.2, 1.8, (*scan, *DETECTOR)).astype(np.float32) / 16


def stored(path: Path, values: Array, **options: Any) -> Path:
    """Writes patterns as a file that says nothing else, and returns its path."""
    with h5py.File(path, "w") as file:
        file.create_dataset("scan", data=values, **options)
    return path


def density(
    folder: Path,
    values: Array,
    run: str,
    calibration: CalibrationOverrides = BEAM,
    name: str = "out",
    beam: float = 1.0,
    **options: Any,
) -> Array:
    """Reconstructs patterns, and returns the density of the file that is written; `options` as
    for `stored`.
    """
    out = folder / f"{name}.h5"
    data = stored(folder / f"{name}-in.h5", values, **options)
    reconstruct(data, run, calibration, beam_intensity=beam).save(out)
    with h5py.File(out) as file:
        return np.asarray(file["reconstruction/density/data"])


def experiment(layout: str = "scan", **microscope: Any) -> Experiment:
    images = (16, *WINDOW) if layout == "scan" else (16, 4, 4)
    scan = {"shape": WINDOW, "step_angstrom": (0.4, 0.4)} if layout == "scan" else {"shape": (4, 4)}
    layers = (1, 1, 1)
    return Experiment.model_validate(
        {
            "name": "small",
            "microscope": {"energy_ev": 200e3, "semiangle_mrad": 20.0} | microscope,
            "scan": scan,
            "simulation": {"sampling_angstrom": 0.2}
            if layout == "scan"
            else {"grid_shape": (4, 4)},
            "detector": {"shape": DETECTOR, "pixel_mrad": 8.0},
            "target": {"at": "scan" if layout == "scan" else "grid"},
            "network": {
                "input_shape": images,
                "layers": layers,
                "growth": 6,
                "kernel": 3,
                "first_kernel": 3,
            }
            | {"first_filters": 6, "dropout": 0.2},
            "training": {
                "epochs": 1,
                "inputs": {"layout": layout, "density_scale_e_per_angstrom2": 10},
            },
        }
    )


def write_run(folder: Path, experiment: Experiment, seed: int = 3) -> str:
    """Writes a run directory with random weights and returns its path."""
    keras.utils.clear_session()
    model = build(experiment.network, seed=seed)
    rng = np.random.default_rng(seed)
    for variable in model.variables:
        # biases and statistics, too, differ from those of an untrained network
        if variable.dtype == "float32":
            if "variance" in variable.path:
                change = rng.uniform(0.0, 0.5, variable.shape)
            else:
                change = rng.normal(0, 0.1, variable.shape)
            variable.assign(np.asarray(variable) + change)
    checkpoint.save(
        folder / "checkpoints",
        TrainingPosition(step=7),
        model.variables,
        experiment.network,
        keep=1,
    )
    (folder / "config.yaml").write_text(dump_yaml(experiment))
    return str(folder)
