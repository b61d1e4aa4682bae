"""A job that takes seconds, and what it leaves: its steps' numbers and the arrays of its last
checkpoint.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml

# Keys of a row that differ between two equal runs because they are measured with clocks and meters.
NOT_REPRODUCIBLE = {
    *("step_s", "compute_s", "comm_s", "sync_s", "misc_s", "data_s", "wall_s"),
    *("samples_per_s", "flop_per_s", "memory_mib", "energy_j", "energy_gpu_j"),
    *("simulated", "simulator_s", "simulator_wait_s"),
}
CONFIG: dict[str, Any] = {
    "name": "tiny",
    "seed": 3,
    "materials": {
        "builtin": [
            "Ag-225-cF4",
            "Al-225-cF4",
            "Ar-225-cF4",
            "C-227-cF8",
            "Ca-225-cF4",
            "Cu-225-cF4",
        ]
    },
    "split": {"train": 0.6, "dev": 0.2, "test": 0.2},
    "specimen": {
        "thickness_angstrom": [4.0, 8.0],
        "lateral_angstrom": [7.0, 8.0],
        "max_strain": 0.15,
    },
    "microscope": {"energy_ev": 100e3, "semiangle_mrad": 15.0},
    "scan": {"shape": [2, 3]},
    "simulation": {"grid_shape": [32, 48]},
    "network": {
        "input_shape": [6, 32, 48],
        "layers": [1, 1, 1],
        "growth": 4,
        "kernel": 3,
        "first_kernel": 3,
        "first_filters": 4,
        "dropout": 0.25,
    },
    "training": {"epochs": 3, "inputs": {"augment": True}, "optimizer": {"learning_rate": 1e-3}},
}


def write_config(folder: Path, **changes: Any) -> Path:
    """Writes CONFIG with other sections and a folder for samples; returns the file's path."""
    path = folder / "tiny.yaml"
    path.write_text(
        yaml.safe_dump(CONFIG | {"data": {"directory": str(folder / "data")}} | changes)
    )
    return path


def lines(run_dir: Path) -> list[str]:
    path = run_dir / "metrics.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def rows(run_dir: Path) -> list[dict]:
    return [json.loads(line) for line in lines(run_dir)]


def numbers(run_dir: Path) -> list[dict]:
    """The rows without what is measured, and so never the same."""
    reproducible = []
    for row in rows(run_dir):
        kept = {}
        for key, value in row.items():
            if key not in NOT_REPRODUCIBLE:
                kept[key] = value
        reproducible.append(kept)
    return reproducible


def newest(run_dir: Path) -> tuple[str, dict[str, np.ndarray]]:
    """The name and the arrays of the last checkpoint."""
    path = max((run_dir / "checkpoints").glob("step-*.npz"))
    with np.load(path) as file:
        return path.name, {name: array for name, array in file.items() if name != "header"}


def differences(run_dir: Path, other: Path) -> list[str]:
    """Differences, bit for bit: steps' numbers, and arrays of the last checkpoint."""
    (name, arrays), (wanted_name, wanted) = newest(run_dir), newest(other)
    differ = [f"checkpoint {name}"] * (name != wanted_name) + ["arrays"] * (
        arrays.keys() != wanted.keys()
    )
    differ += [
        f"array {key}"
        for key in wanted
        if key in arrays and arrays[key].tobytes() != wanted[key].tobytes()
    ]
    steps = zip(numbers(run_dir), numbers(other), strict=False)
    differ += [
        f"step {theirs['step']}: {ours} {theirs}" for ours, theirs in steps if ours != theirs
    ]
    return differ + ["number of steps"] * (len(numbers(run_dir)) != len(numbers(other)))
