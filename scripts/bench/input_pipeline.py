"""Rate at which samples are read from shards in the page cache into tensors, against memcpy, TFRecord and HDF5.

    scripts/uv run python scripts/bench/input_pipeline.py [--rounds 5] [--sizes small medium paper] [--json]

One process writes the records to three stores in a temporary folder, reads them once, and then reads them in
interleaved rounds. GB/s count patterns and densities; numbers are medians over the rounds.

memcpy      np.copyto of the same bytes from the mapped pages of the shard to memory that has been used before; with one
            thread, and with one per core
namsa       `train.input.batches.read_batches`: one copy to the tensors of the host, as the training job reads them in
            all epochs but the first
namsa, first  the same in a job's first epoch: headers are read, checksums are compared (TFRecord always does so) and
            memory is used for the first time
namsa, x y  `train.input.batches.batches`: the same, and the network's input and target, which TensorFlow computes from
            them on the device (here, the CPU)
TFRecord    tf.train.Example in uncompressed files, one per core, interleaved, parsed (decode_raw) and batched by
            tf.data with its own choice of parallelism, in any order; samples are parsed singly or in batches, whichever
            is faster
HDF5        contiguous float16 dataset, read with h5py's read_direct into reused memory, as namsa does; no checksum

A second line gives GB per core second of the process, which other work on the machine disturbs less. "ratio" is the
rate of namsa divided by that of memcpy with one thread, the lowest of all sizes. The last lines say how long the steps
of the quickstart's training job wait for their batches.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import h5py
import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table

from namsa import Sample
from namsa.dataset import records
from namsa.dataset.entry import Entry
from namsa.dataset.shard_writer import ShardWriter
from namsa.dataset.shards import Dataset, shard_path
from namsa.physics.backend import available_cores
from train.execution.tensorflow import host_tensor
from train.experiment.experiment import Experiment
from train.input.batches import batches, read_batches
from train.input.normalisation import Batch
from train.input.readahead import Buffers
from train.input.views import ReadCache
from train.reports.runs import read_steps

CONFIG = Path(__file__).parents[2] / "configs/quickstart.yaml"
V100_STEP_S = 0.863  # of the paper's network, a sample


class Size(NamedTuple):
    scan: tuple[int, int]
    detector: tuple[int, int]
    layout: str
    samples: int
    passes: int  # over the samples, in one measurement
    batch: int
    compute: str = "float32"
    data_format: str = "channels_last"


SIZES = {
    "small": Size((24, 24), (16, 16), "scan", 256, 8, 2),  # the quickstart's
    "medium": Size((8, 8), (128, 128), "detector", 128, 8, 4),
    "paper": Size((32, 32), (512, 512), "detector", 2, 12, 1, "mixed_float16", "channels_first"),
}


def main() -> int:
    options = parse()
    result: dict[str, Any] = {"cores": available_cores(), "sizes": {}}
    table = Table("", "", *METHODS, "namsa of memcpy", "of memcpy, threads", box=None)
    for name in options.sizes:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            found = measure(SIZES[name], Path(folder), options.rounds)
        result["sizes"][name] = found
        kind = f"{name}: {found['sample_mb']:.1f} MB a sample, {SIZES[name].batch} a batch"
        for unit, speeds, ratios in (
            ("GB/s", found["gb_s"], (found["ratio"], found["ratio_all_cores"])),
            ("GB per core second", found["gb_per_core_second"], (found["ratio_core_seconds"],)),
        ):
            table.add_row(kind, unit, *(f"{speeds[method]:.2f}" for method in METHODS), *(f"{r:.2f}" for r in ratios))
            kind = ""
    console = Console(width=150)
    console.print(table)
    if "paper" in result["sizes"]:
        found = result["sizes"]["paper"]
        result["paper_sample_s"] = found["sample_mb"] / 1e3 / found["gb_s"]["namsa"]
        console.print(f"paper: {result['paper_sample_s']:.3f} s a sample; a V100's step takes {V100_STEP_S} s")
    if not options.no_job:
        result["job"] = job(options.folder)
        console.print(
            "quickstart, {steps} steps: {step_ms:.0f} ms a step, of which {data_ms:.2f} ms wait for a batch "
            "({data_share:.2%} of the time; the longest wait {data_max_ms:.1f} ms)".format(**result["job"])
        )
    result["ratio"] = min(found["ratio"] for found in result["sizes"].values())
    if options.json:
        print(json.dumps(result))
    return 0


def measure(size: Size, folder: Path, rounds: int) -> dict[str, Any]:
    experiment = configure(size)
    entries = [Entry(f"s{i:04d}", f"m{i}", "X", "P1", (0, 0, 1), 20.0, i, "train") for i in range(size.samples)]
    store(size, folder, entries)
    share = entries * size.passes
    with ExitStack() as stack:
        dataset = stack.enter_context(Dataset(folder))
        views = [stack.enter_context(dataset.view(entry.id, check=False)) for entry in entries]
        sample_bytes = views[0].cbed.nbytes + views[0].density.nbytes
        cache, buffers = ReadCache(), Buffers()
        places = [places_of(views[0], size) for _ in range(available_cores())]
        parsed: dict[str, Callable[[], Any]] = {}
        for order in ("single", "batch"):
            parsed[order] = lambda order=order: list_all(tfrecord(size, folder, order))
        fastest = min(parsed, key=lambda order: (parsed[order](), timed(parsed[order]))[1])
        methods: dict[str, Callable[[], Any]] = {
            "memcpy": lambda: memcpy(views * size.passes, places[:1]),
            "memcpy, threads": lambda: memcpy(views * size.passes, places),
            "namsa": lambda: list_all(read_batches(dataset, share, experiment, 0, as_read, cache)),
            "namsa, first": lambda: first_epoch(dataset, entries, size.passes, experiment),
            "namsa, x y": lambda: list_all(batches(dataset, share, experiment, 0, cache)),
            "TFRecord": parsed[fastest],
            "HDF5": lambda: list_all(hdf5(size, folder, np.random.default_rng(0).permutation(len(entries)), buffers)),
        }
        assert tuple(methods) == METHODS
        for method in methods.values():  # page cache, traces and thread pools
            method()
        seconds: dict[str, list[float]] = {name: [] for name in methods}
        core_seconds: dict[str, list[float]] = {name: [] for name in methods}
        for _ in range(rounds):
            for name, method in methods.items():
                busy = time.process_time()
                seconds[name].append(timed(method))
                core_seconds[name].append(time.process_time() - busy)
    total = sample_bytes * len(share)

    def speeds(of: dict[str, list[float]]) -> dict[str, float]:
        return {name: total / statistics.median(taken) / 1e9 for name, taken in of.items()}

    def ratio(to: str, of: dict[str, list[float]] = seconds) -> float:
        return statistics.median(a / b for a, b in zip(of[to], of["namsa"], strict=True))

    return {
        "sample_mb": sample_bytes / 1e6,
        "gb_s": speeds(seconds),
        "gb_per_core_second": speeds(core_seconds),
        "seconds": seconds,
        "ratio": ratio("memcpy"),
        "ratio_core_seconds": ratio("memcpy", core_seconds),
        "ratio_all_cores": ratio("memcpy, threads"),
        "over_tfrecord": ratio("TFRecord"),
        "over_hdf5": ratio("HDF5"),
        "tfrecord_parses": fastest,
    }


METHODS = ("memcpy", "memcpy, threads", "namsa", "namsa, first", "namsa, x y", "TFRecord", "HDF5")


# ---- Stores ---------------------------------------------------------------------------------------------------------


def configure(size: Size) -> Experiment:
    planes, image = (size.scan, size.detector) if size.layout == "detector" else (size.detector, size.scan)
    network = {"input_shape": (planes[0] * planes[1], *image), "layers": (1, 1, 1), "growth": 4}
    return Experiment.model_validate(
        {
            "scan": {"shape": size.scan},
            "simulation": {"grid_shape": image},
            "detector": {"shape": size.detector, "pixel_mrad": 1.0},
            "target": {"at": "scan" if size.layout == "scan" else "grid"},
            "network": network | {"data_format": size.data_format},
            "training": {
                "epochs": 1,
                "batch_size": size.batch,
                "inputs": {"layout": size.layout},
                "precision": {"compute": size.compute},
            },
        }
    )


def store(size: Size, folder: Path, entries: list[Entry]) -> None:
    """The same few samples under many names, as LMDB, TFRecord and HDF5."""
    image = size.scan if size.layout == "scan" else size.detector
    with ExitStack() as stack:
        writer = stack.enter_context(ShardWriter(shard_path(folder, 0), samples_per_commit=16))
        file = stack.enter_context(h5py.File(folder / "samples.h5", "w"))
        shape = (len(entries), *size.scan, *size.detector)
        cbed = file.create_dataset("cbed", shape, "f2")
        density = file.create_dataset("density", (len(entries), *image), "f4")
        paths = [str(folder / f"{rank}.tfrecord") for rank in range(min(available_cores(), len(entries)))]
        writers = [stack.enter_context(tf.io.TFRecordWriter(path)) for path in paths]
        made = [records.encode(sample(size, image, seed)) for seed in range(1 if size.samples < 16 else 8)]
        for index, entry in enumerate(entries):
            record = made[index % len(made)]
            writer.put(entry.id, record)
            found = records.decode(record)
            cbed[index], density[index] = found.cbed.reshape(shape[1:]), found.density
            scale = found.header["arrays"]["cbed"]["scale"]
            feature = {
                "cbed": tf.train.Feature(bytes_list=tf.train.BytesList(value=[found.cbed.tobytes()])),
                "density": tf.train.Feature(bytes_list=tf.train.BytesList(value=[found.density.tobytes()])),
                "scale": tf.train.Feature(float_list=tf.train.FloatList(value=[scale])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writers[index % len(writers)].write(example.SerializeToString())


def sample(size: Size, image: tuple[int, int], seed: int) -> Sample:
    """Random patterns with a provenance as long as that of a simulation."""
    rng = np.random.default_rng(seed)
    probes, pixels = size.scan[0] * size.scan[1], size.detector[0] * size.detector[1]
    cbed = rng.standard_exponential((probes, *size.detector), np.float32)
    cbed *= np.float32(1 / pixels)
    provenance = {
        "config_hash": "bench",
        "scan_shape": list(size.scan),
        "positions_angstrom": rng.random((probes, 2)).tolist(),
        "extent_angstrom": [10.0, 10.0],
        "grid_shape": [126, 100],
        "detector_sampling_mrad": [1.0, 1.0],
        "detector_origin_mrad": [0.0, 0.0],
        "density_sampling_angstrom": [0.1, 0.1],
        "density_origin_angstrom": [0.0, 0.0],
        "others": {f"a_setting_of_the_simulation_{index:02d}": rng.random() for index in range(25)},
    }
    return Sample(cbed, rng.random(image, np.float32), np.zeros((126, 100), np.float32), provenance)


# ---- Readers --------------------------------------------------------------------------------------------------------


def as_read(batch: Batch, _: Any) -> Batch:
    return batch


def first_epoch(dataset: Dataset, entries: list[Entry], passes: int, experiment: Experiment) -> None:
    cache = ReadCache()
    for _ in range(passes):
        cache.views.clear()
        list_all(read_batches(dataset, entries, experiment, 0, as_read, cache))


Places = list[tuple[Any, Any]]  # of patterns and density: a batch's


def places_of(view: records.Record, size: Size) -> Places:
    return [(np.ones_like(view.cbed), np.ones_like(view.density)) for _ in range(size.batch)]


def memcpy(views: list[records.Record], places: list[Places]) -> None:
    """Copies patterns and density of each record, by a thread for each of `places`, which are few and used again."""
    threads = len(places)
    if threads == 1:
        for index, view in enumerate(views):
            copy(view, *places[0][index % len(places[0])], slice(None))
        return
    with ThreadPoolExecutor(threads) as pool:
        if views[0].cbed.nbytes > 2**26:  # each thread a part of every sample
            parts = [slice(*bounds) for bounds in spans(len(views[0].cbed), threads)]
            list(pool.map(lambda part: [copy(view, *places[0][0], part) for view in views], parts))
        else:  # each thread samples of its own, to places of its own
            shares = [views[slice(*span)] for span in spans(len(views), threads)]
            list(pool.map(lambda share, own: memcpy(share, [own]), shares, places))


def copy(view: records.Record, cbed: Any, density: Any, part: slice) -> None:
    np.copyto(cbed[part], view.cbed[part])
    np.copyto(density, view.density)


def spans(count: int, parts: int) -> list[tuple[int, int]]:
    return [(count * part // parts, count * (part + 1) // parts) for part in range(parts)]


def tfrecord(size: Size, folder: Path, order: str) -> Iterator[Any]:
    auto = tf.data.AUTOTUNE
    image = size.scan if size.layout == "scan" else size.detector
    bytes_, float_ = tf.io.FixedLenFeature([], tf.string), tf.io.FixedLenFeature([], tf.float32)
    features = {"cbed": bytes_, "density": bytes_, "scale": float_}

    def parse(serialized: Any, lead: tuple[int, ...], parser: Callable[..., Any]) -> Any:
        found = parser(serialized, features)
        cbed = tf.reshape(tf.io.decode_raw(found["cbed"], tf.float16), (*lead, *size.scan, *size.detector))
        return cbed, found["scale"], tf.reshape(tf.io.decode_raw(found["density"], tf.float32), (*lead, *image))

    paths = sorted(str(path) for path in folder.glob("*.tfrecord"))
    files = tf.data.Dataset.from_tensor_slices(paths * 1).repeat(size.passes)
    read = files.interleave(
        lambda path: tf.data.TFRecordDataset(path, buffer_size=2**23),
        cycle_length=len(paths),
        num_parallel_calls=auto,
        deterministic=False,
    )
    if order == "single":
        read = read.map(lambda one: parse(one, (), tf.io.parse_single_example), auto, deterministic=False)
        read = read.batch(size.batch, drop_remainder=True)
    else:
        read = read.batch(size.batch, drop_remainder=True)
        lead = (size.batch,)
        read = read.map(lambda some: parse(some, lead, tf.io.parse_example), auto, deterministic=False)
    return iter(read.prefetch(2 if size.samples < 16 else auto))


def hdf5(size: Size, folder: Path, order: Any, buffers: Buffers) -> Iterator[Any]:
    image = size.scan if size.layout == "scan" else size.detector
    with h5py.File(folder / "samples.h5") as file:
        for at in range(0, size.passes * len(order), size.batch):
            cbed = buffers.empty((size.batch, *size.scan, *size.detector), "f2")
            density = buffers.empty((size.batch, *image), "f4")
            for slot in range(size.batch):
                index = order[(at + slot) % len(order)]
                file["cbed"].read_direct(cbed, np.s_[index], np.s_[slot])
                file["density"].read_direct(density, np.s_[index], np.s_[slot])
            yield host_tensor(cbed), host_tensor(density)


def list_all(batches: Iterator[Any]) -> int:
    """Takes every batch, and lets go of it before the next; how many there were."""
    count = 0
    for batch in batches:  # to ask a tensor's shape takes as long as half a small sample's copy
        count += 1
        del batch
    return count


def timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


# ---- The job --------------------------------------------------------------------------------------------------------


def job(parent: str | None) -> dict[str, float]:
    """Three epochs of the quickstart on fewer materials, and what its metrics.jsonl says after the first."""
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        settings = ("materials.limit=16", "training.epochs=3", f"data.directory={folder}/data")
        overrides = [word for setting in settings for word in ("--set", setting)]
        command = [sys.executable, "-m", "train", CONFIG, *overrides, "--run-dir", f"{folder}/run"]
        subprocess.run(command, check=True, stdout=sys.stderr)
        taken = read_steps(Path(folder) / "run/metrics.jsonl", ("epoch", "data_s", "step_s"))
    waits, steps = (taken[name][taken["epoch"] > 0] for name in ("data_s", "step_s"))
    return {
        "steps": len(steps),
        "step_ms": 1e3 * float(np.median(steps)),
        "data_ms": 1e3 * float(np.median(waits)),
        "data_max_ms": 1e3 * float(waits.max()),
        "data_share": float(waits.sum() / steps.sum()),
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--folder", help="where to put the temporary folder; 4 GB for the paper's samples")
    parser.add_argument("--no-job", action="store_true", help="leave out the training job")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
