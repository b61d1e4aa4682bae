"""A job whose samples the ranks keep in memory, and the same from the disk: OUT/RANK.json; `test_jobs.py`.

    python tests/support/memory_ranks.py OUT WAYS [resumed] [hdf5]

With `resumed`, a third job from memory stops within its second epoch and goes on. With `hdf5`, one reads its parts of
samples from an HDF5 file.
After the first epoch of the job from memory, the training records on the disk are overwritten.
"""

import json
import sys
from pathlib import Path

import yaml
from kernel_counts import read_counts
from tiny import CONFIG, differences, numbers

import train.main
from namsa.dataset import lmdb_structure, manifest
from namsa.dataset.shards import Dataset, shard_paths
from namsa.dataset.slab_file import write_slab_file
from train.ranks import reduction
from train.strategies.source.memory.source import Source


def overwrite_training_records(folder):
    training = {entry.id for entry in manifest.read(folder) if entry.split == "train"}
    for shard in shard_paths(folder):
        with shard.open("r+b") as file:
            for sample_id, (start, size) in lmdb_structure.locations(shard).items():
                if sample_id in training:
                    file.seek(start)
                    file.write(bytes(size))


def main(out, ways, others):
    data, found = out / "data", {"asked": [], "differ": []}
    # One group of gradients: the fusion of several depends on time, and more than two ranks sum in another order then.
    sections = {"epochs": 3, "inputs": {}, "split": {"ways": ways}, "checkpoints": {}, "exchange": {"groups": 1}}
    tree = CONFIG | {
        "data": {"directory": str(data)} | ({"tiles": [1, 1, ways, 1]} if ways > 1 else {}),
        "training": CONFIG["training"] | sections,
    }
    config = out / "tiny.yaml"
    if not config.exists():
        config.write_text(yaml.safe_dump(tree))
    train.main.write_report = lambda run_dir: None
    memory, end_epoch = "data.source.kind=memory", Source.end_epoch

    def run(name, *overrides):
        train.main.train(config, overrides, out / name)

    run("disk")
    for name in others:
        if name == "hdf5":
            with reduction.together():
                if reduction.rank() == 0:
                    with Dataset(data) as dataset:
                        write_slab_file(out / "slabs.h5", dataset)
            run(name, f"data.source={{kind: slabs, file: {out / 'slabs.h5'}}}")
            continue
        run(name, memory, "training.steps=6")  # within the second epoch
        run(name, memory)
    counts = []

    def counted(source):
        end_epoch(source)
        if counts:
            counts[-1].__exit__(None, None, None)
        elif reduction.rank() == 0:
            overwrite_training_records(data)
        with reduction.together():
            pass
        counts.append(read_counts())
        found["asked"].append(counts[-1].__enter__())

    Source.end_epoch = counted
    run("memory", memory)
    if reduction.rank() == 0:
        for name in (*others, "memory"):
            found["differ"] += [f"{name} {each}" for each in differences(out / name, out / "disk")]
        found["steps"] = len(numbers(out / "disk"))
    found["asked"] = [each.get("asked") for each in found["asked"]]
    (out / f"{reduction.rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
