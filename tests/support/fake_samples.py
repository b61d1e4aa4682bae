"""A small dataset that takes no simulation: three crystals, and samples of random numbers drawn

from the seed.
"""

import hashlib
import json
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from ase.build import bulk

from namsa import Sample
from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.dataset import factory
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset, Shard
from namsa.dataset.sharing import RankLayout

MATERIALS = tuple(
    Material(f"{symbol}-{structure}", symbol, group, bulk(symbol, structure, a, cubic=True), "test")
    for symbol, structure, group, a in (
        ("Cu", "fcc", "Fm-3m", 3.61),
        ("Fe", "bcc", "Im-3m", 2.87),
        ("Si", "diamond", "Fd-3m", 5.43),
    )
)


def config(**sections: Any) -> SimulationConfig:
    """Returns a configuration of 12 samples: 3 materials, two zone axes, two thicknesses."""
    tree = {
        "simulation": {"grid_shape": [8, 10]},
        "split": {"train": 1, "dev": 0, "test": 0},
        "specimen": {"zone_axes": [[0, 0, 1], [1, -1, 0]], "thickness_angstrom": [20, 12.5]},
    }
    return SimulationConfig.model_validate(tree | sections)


def sample(seed: int = 0, **provenance: Any) -> Sample:
    """Returns six patterns of 5 × 7 pixels at 2 × 3 positions; no two sides of its shapes are
    equal.
    """
    rng = np.random.default_rng(seed)
    geometry = {
        "scan_shape": [2, 3],
        "positions_angstrom": rng.uniform(0, 9, (6, 2)).tolist(),
        "energy_ev": 200e3,
        "semiangle_mrad": 4.0,
        "thickness_angstrom": 20.0,
        "grid_shape": [8, 10],
        "extent_angstrom": [16.0, 18.0],
        "detector_sampling_mrad": [2.0, 1.5],
        "detector_origin_mrad": [-4.0, -4.5],
        "density_sampling_angstrom": [0.5, 0.25],
        "density_origin_angstrom": [1.0, 3.0],
        "config_hash": "0123456789abcdef",
    }
    return Sample(
        rng.exponential(1e-3, (6, 5, 7)).astype(np.float32),
        rng.normal(5, 1, (2, 3)).astype(np.float32),
        rng.normal(100, 20, (8, 10)).astype(np.float32),
        geometry | provenance,
    )


def raster_provenance(
    scan: tuple[int, int],
    detector: tuple[int, int],
    extent: tuple[float, float],
    grid: tuple[int, int],
    pixel_mrad: float,
) -> dict:
    """Returns what a sample of 20 Å says whose scan fills the cell, with the axis in the middle of
    its detector.
    """
    y, x = (np.arange(n) * length / n for n, length in zip(scan, extent, strict=True))
    return {
        "scan_shape": list(scan),
        "positions_angstrom": np.stack(np.meshgrid(y, x, indexing="ij"), -1)
        .reshape(-1, 2)
        .tolist(),
        "extent_angstrom": list(extent),
        "grid_shape": list(grid),
        "detector_sampling_mrad": [pixel_mrad, pixel_mrad],
        "detector_origin_mrad": [-(n - 1) / 2 * pixel_mrad for n in detector],
        "density_sampling_angstrom": [length / n for length, n in zip(extent, grid, strict=True)],
        "density_origin_angstrom": [0.0, 0.0],
        "energy_ev": 200e3,
        "semiangle_mrad": 10.0,
        "thickness_angstrom": 20.0,
    }


def raster_sample(raster: tuple[int, int, int, int], seed: int = 0) -> Sample:
    """Returns patterns (sy, sx, dy, dx) with a density of the detector's shape."""
    rng = np.random.default_rng(seed)
    small = sample(seed)
    positions = rng.uniform(0, 9, (raster[0] * raster[1], 2)).tolist()
    patterns = rng.exponential(1e-3, (raster[0] * raster[1], *raster[2:])).astype(np.float32)
    density = rng.uniform(0, 4, raster[2:]).astype(np.float32)
    provenance = small.provenance | {
        "scan_shape": list(raster[:2]),
        "positions_angstrom": positions,
    }
    return replace(small, cbed=patterns, density=density, provenance=provenance)


def simulate(config: SimulationConfig, material: Material, entry: Entry) -> Sample:
    """Returns the fake sample of an entry."""
    return sample(
        entry.seed, id=entry.id, material=material.name, config_hash=config.samples_hash()
    )


def simulate_otherwise(config: SimulationConfig, material: Material, entry: Entry) -> Sample:
    """Returns another fake sample of an entry, whose record has as many bytes."""
    return simulate(config, material, replace(entry, seed=entry.seed + 1))


def replace_shard(path: Path, other: Path) -> None:
    """Replaces a shard by another one of the same size, and keeps the time of its modification."""
    status = path.stat()
    assert other.stat().st_size == status.st_size
    assert other.read_bytes() != path.read_bytes()
    path.write_bytes(other.read_bytes())
    os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns))


def contents(directory: Path) -> dict[str, str]:
    """Returns a digest of each sample's header and arrays, by id."""
    digests = {}
    with Dataset(directory) as dataset:
        for sample_id in dataset.ids:
            record = dataset.read(sample_id)
            arrays = (
                record.cbed,
                record.density,
                record.projected_potential,
                record.positions_angstrom,
            )
            text = json.dumps(record.header).encode() + b"".join(
                array.tobytes() for array in arrays
            )
            digests[sample_id] = hashlib.sha256(text).hexdigest()
    return digests


def change_a_bit(path: Path, sample_id: str) -> None:
    """Changes a bit in the middle of a record of a shard, also where pages that were given up hold
    it.
    """
    with Shard(path) as shard:
        record = shard.read_bytes(sample_id)
    content = bytearray(path.read_bytes())
    place = -1
    while (place := content.find(record, place + 1)) >= 0:
        content[place + len(record) // 2] ^= 1
    path.write_bytes(content)


def signed(record: bytes, change: Callable[[dict], dict | None], version: int = 1) -> bytes:
    """Returns a record whose header is changed in place, or replaced by what `change` returns; its
    digest fits.
    """
    length = int.from_bytes(record[12:16], "little")
    header = json.loads(record[32 : 32 + length])
    text = json.dumps(change(header) or header).encode()
    prefix = b"NAMSA4D\n" + struct.pack("<II", version, len(text))
    rest = text + bytes(-(32 + len(text)) % 64) + record[-(-(32 + length) // 64) * 64 :]
    return prefix + xxhash.xxh3_128_digest(prefix + rest) + rest


def ids_of(path: Path) -> tuple[str, ...]:
    """The ids in a shard."""
    with Shard(path) as shard:
        return shard.ids


def produce(
    directory: Path,
    rank: int = 0,
    size: int = 1,
    *,
    settings: SimulationConfig | None = None,
    local_size: int = 1,
    limit: int | None = None,
    time_limit_s: float | None = None,
    simulate: Callable[[SimulationConfig, Material, Entry], Sample] = simulate,
    **options: Any,
) -> factory.ProductionSummary:
    """Runs the factory on one rank, with `simulate` in place of the simulation."""

    def prepare(
        config: SimulationConfig, material: Material, entries: Sequence[Entry]
    ) -> Callable[[Entry], Sample]:
        return partial(simulate, config, material)

    layout = RankLayout(rank, size, local_size)
    limits = factory.RunLimits(limit, time_limit_s)
    options.setdefault("prepare", prepare)
    return factory.produce(settings or config(), directory, layout, limits, **options)
