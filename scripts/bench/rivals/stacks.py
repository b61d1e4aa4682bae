"""Patterns as all methods get them, with what is true of them: the benchmark's samples at a dose, or cases in files."""

import hashlib
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa import sample_file
from namsa.config.simulation import SimulationConfig
from namsa.crystals.select import select_materials
from namsa.dataset import manifest
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import Entry
from namsa.dataset.sample_setup import build_supercell
from namsa.dataset.shards import Dataset
from namsa.dataset.simulate_entry import simulate_entry
from namsa.io import hdf5
from namsa.physics import density_target as target
from namsa.physics.detector import add_poisson_noise
from namsa.physics.grid import Grid
from namsa.pixels import PixelGrid, density_grid
from namsa.sample import Sample
from train.measure.atomic_columns import AtomicColumns, specimen_columns

Image = npt.NDArray[np.float64]

TARGETS = ("density", "potential")
# What a microscope's file says: nothing about aberrations, source, tilt or specimen.
TOLD = (
    "energy_ev",
    "semiangle_mrad",
    "scan_shape",
    "positions_angstrom",
    "detector_sampling_mrad",
    "detector_origin_mrad",
)
SEEN_BEFORE = {"Fe4C-215-cP5"}  # the test material on which the first settings of the search were tried


@dataclass(frozen=True)
class Stack:
    """A sample at a dose; truth: by `TARGETS`, at the scan's positions; read_seconds: CPU time to read it.

    Of the provenance, a method may use the optics and the scan. Without atoms, no columns are compared. Ptychography
    begins with a probe of the defocus `c10`, Å, which is an estimate from the patterns.
    """

    id: str
    patterns: npt.NDArray[Any]
    provenance: dict[str, Any]
    frame: PixelGrid
    truth: dict[str, Image]
    atoms: AtomicColumns | None
    max_q: float
    read_seconds: float = 0.0
    c10: float = 0.0


class Samples:
    """The held-out samples: of the dataset `data`, or simulated when they are first wanted and kept as HDF5."""

    def __init__(self, config: SimulationConfig, directory: Path, data: Path | None) -> None:
        self.config, self.directory = config, directory
        materials = select_materials(config.materials, run_generator=True)
        self.materials = {material.name: material for material in materials}
        everything = tuple(self.materials.values())
        self.entries = manifest.ensure(data, config, everything) if data else build_entries(config, everything)
        self.data = Dataset(data) if data else None

    def stack(self, entry: Entry, dose: float) -> Stack:
        """The sample of `entry`, counted at `dose` electrons/Å², or noiseless where that is 0."""
        started = time.thread_time()
        sample = self._sample(entry)
        read_seconds = time.thread_time() - started
        p, frame = sample.provenance, density_grid(sample.provenance)
        patterns = sample.cbed
        if dose:
            patterns = add_poisson_noise(patterns, dose * frame.step[0] * frame.step[1], entry.seed)
        supercell = build_supercell(self.config, self.materials[entry.material], entry)
        atoms = specimen_columns(supercell.atoms, frame, sample.density.shape)
        truth, max_q = truths(sample), p["density_max_q_per_angstrom"]
        return Stack(f"{entry.id}-{dose:g}", patterns, p, frame, truth, atoms, max_q, read_seconds)

    def mean_image(self, thickness: float) -> tuple[dict[str, Image], int]:
        """The mean of the training samples of a thickness, of those that are in `data`, and how many they are."""
        fit = [e for e in self.entries if (e.split, e.thickness_angstrom) == ("train", thickness)]
        there = [e for e in fit if self.data and e.id in self.data]
        return mean_truth(truths(self._sample(entry)) for entry in there), len(there)

    def _sample(self, entry: Entry) -> Sample:
        if self.data and entry.id in self.data:
            return self.data.read(entry.id).sample()
        path = self.directory / f"{entry.id}.h5"
        if not path.exists():
            hdf5.write_samples(path, [(entry.id, simulate_entry(self.config, self.materials[entry.material], entry))])
        ((_, sample),) = sample_file.read_samples(path)
        return sample


def choose(entries: Iterable[Entry], split: str, thickness: float, count: int) -> list[Entry]:
    """`count` of a split, another material each until all had their turn: in the same order at every thickness."""
    fit = [e for e in entries if (e.split, e.thickness_angstrom) == (split, thickness) and not e.skipped]
    fit = [e for e in fit if e.material not in SEEN_BEFORE]
    fit.sort(key=lambda e: hashlib.sha256(f"{e.material} {e.zone_axis}".encode()).digest())
    had: Counter[str] = Counter()
    turn = {}
    for entry in fit:
        turn[entry.id] = had[entry.material]
        had[entry.material] += 1
    return sorted(fit, key=lambda e: turn[e.id])[:count]


def case(path: Path, told: tuple[str, ...] = TOLD) -> Stack:
    """The one sample of a file of `namsa simulate` or `Sample.save`, on a raster, whose density is the truth.

    Args:
        path: The file. Its density lies at the scan's positions, with the limit of its band in the provenance.
        told: The names in the provenance that methods are told.
    """
    started = time.thread_time()
    ((name, sample),) = sample_file.read_samples(path)
    p, frame = sample.provenance, density_grid(sample.provenance)
    known = {key: p[key] for key in told}
    truth, max_q = {"density": sample.density.astype(np.float64)}, p["density_max_q_per_angstrom"]
    return Stack(name, sample.cbed, known, frame, truth, None, max_q, time.thread_time() - started)


def truths(sample: Sample) -> dict[str, Image]:
    """By `TARGETS`: the density, and the projected potential under the density's window, at its pixels."""
    p, frame = sample.provenance, density_grid(sample.provenance)
    grid = Grid(sample.projected_potential.shape, tuple(p["extent_angstrom"]))
    window = target.band_limited(sample.projected_potential.astype(np.float64), grid, p["density_max_q_per_angstrom"])
    potential = target.at_positions(window, grid, *frame.coordinates(sample.density.shape))
    return {"density": sample.density.astype(np.float64), "potential": potential}


def mean_truth(all_truths: Iterable[dict[str, Image]]) -> dict[str, Image]:
    total: dict[str, Any] = dict.fromkeys(TARGETS, 0.0)
    count = 0
    for count, truth in enumerate(all_truths, start=1):  # noqa: B007 - its last value is the number of them
        total = {wanted: total[wanted] + truth[wanted] for wanted in TARGETS}
    return {wanted: image / max(count, 1) for wanted, image in total.items()}
