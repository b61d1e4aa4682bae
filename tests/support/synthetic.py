"""A dataset in memory, of random samples that went through a record and back."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from namsa import Sample
from namsa.dataset import records
from namsa.dataset.entry import Entry
from train.experiment.experiment import Experiment

SCAN = (2, 3)
DETECTOR = (8, 12)
TARGET = (8, 12)


class Memory:
    """`train.input.views.Readable` over records in memory."""

    def __init__(self, encoded: dict[str, bytes]) -> None:
        self.encoded = encoded

    @contextmanager
    def view(self, sample_id: str, check: bool = False) -> Iterator[records.Record]:
        yield records.decode(self.encoded[sample_id], check)


def experiment(**training: Any) -> Experiment:
    """Six probes on a detector of 8 × 12 pixels, a small network with dropout and normalisation."""
    tree = {
        "seed": 5,
        "scan": {"shape": SCAN},
        "data": {"dtype": "float32"},
        "simulation": {"grid_shape": TARGET},
        "detector": {"shape": DETECTOR, "pixel_mrad": 2.0},
        "network": {
            "input_shape": (SCAN[0] * SCAN[1], *DETECTOR),
            "layers": (1, 1, 1),
            "growth": 4,
            "kernel": 3,
            "first_kernel": 3,
            "first_filters": 4,
            "dropout": 0.25,
        },
        "training": {"epochs": 2, "optimizer": {"lars": "none", "learning_rate": 1e-3}} | training,
    }
    return Experiment.model_validate(tree)


def sample(
    seed: int, scan: tuple[int, int] = SCAN, target: tuple[int, int] = TARGET, **more: Any
) -> Sample:
    """Random patterns and density; the scan fills the cell, so that mirrors are symmetries."""
    rng = np.random.default_rng(seed)
    extent = (6.0, 9.0)
    y, x = (np.arange(n) * length / n for n, length in zip(scan, extent, strict=True))
    provenance = {
        "aberrations": {},
        "scan_shape": list(scan),
        "positions_angstrom": np.stack(np.meshgrid(y, x, indexing="ij"), -1)
        .reshape(-1, 2)
        .tolist(),
        "extent_angstrom": list(extent),
        "grid_shape": list(TARGET),
        "detector_sampling_mrad": [2.0, 2.0],
        "detector_origin_mrad": [-(n - 1.0) for n in DETECTOR],
        "density_sampling_angstrom": [length / n for length, n in zip(extent, TARGET, strict=True)],
        "density_origin_angstrom": [0.0, 0.0],
    }
    patterns = rng.exponential(1 / 96, (scan[0] * scan[1], *DETECTOR)).astype(np.float32)
    density = rng.uniform(0, 4, target).astype(np.float32)
    return Sample(patterns, density, np.zeros(TARGET, np.float32), provenance | more)


def dataset(count: int) -> tuple[Memory, list[Entry]]:
    """(dataset, entries) of `count` samples."""
    names = [f"sample-{index:02d}" for index in range(count)]
    entries = []
    for seed, name in enumerate(names):
        entries.append(Entry(name, name, "X", "P1", (0, 0, 1), 20.0, seed, "train"))
    return Memory(
        {entry.id: bytes(records.encode(sample(entry.seed), "float32")) for entry in entries}
    ), entries
