"""Samples of random numbers in a shard, and experiments that divide them over two ranks."""

from pathlib import Path
from typing import Any

import synthetic

from namsa.dataset import records
from namsa.dataset.entry import Entry
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.shards import shard_path
from train.experiment.experiment import Experiment
from train.strategies.division.parts.division import RankSplit

SCAN = (4, 8)
DETECTOR = (8, 12)
TREE = synthetic.experiment().model_dump(exclude_unset=True)


def split(axis: str, part: int) -> RankSplit:
    return RankSplit(2, "yx".index(axis), 0, part)


def experiment(
    layout: str,
    axis: str,
    tiles: tuple[int, int, int, int] | None = None,
    data_format: str = "channels_last",
    **inputs: Any,
) -> Experiment:
    if layout == "scan":
        pixels = (DETECTOR[0] * DETECTOR[1], *SCAN)
    else:
        pixels = (SCAN[0] * SCAN[1], *DETECTOR)
    tree = TREE | {
        "scan": {"shape": SCAN, **({"step_angstrom": (0.5, 0.5)} if layout == "scan" else {})},
        "target": {"at": "scan"} if layout == "scan" else {},
        "data": {"dtype": "float32", "tiles": tiles},
        "network": TREE["network"] | {"data_format": data_format},
        "training": TREE["training"]
        | {
            "batch_size": 2,
            "split": {"ways": 2, "axis": axis},
            "inputs": {"layout": layout, **inputs},
        },
    }
    coordinates = 2 * inputs.get("coordinates", False)
    channels = {"virtual": 4}.get(inputs.get("channels", ""), pixels[0]) + coordinates
    tree["network"]["input_shape"] = (channels, *pixels[1:])
    return Experiment.model_validate(tree)


def write(
    folder: Path, job: Experiment, tiles: tuple[int, int, int, int] | None, count: int = 4
) -> list[Entry]:
    """The entries of `count` samples in a shard."""
    with ShardWriter(shard_path(folder, 0)) as writer:
        for seed in range(count):
            sample = synthetic.sample(seed, SCAN, job.sample_shapes()[1], config_hash="0")
            writer.put(f"sample-{seed}", records.encode(sample, "float32", tiles))
    names = [f"sample-{seed}" for seed in range(count)]
    return [
        Entry(name, name, "X", "P1", (0, 0, 1), 20.0, seed, "train")
        for seed, name in enumerate(names)
    ]
