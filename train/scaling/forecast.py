"""What a training job will take, told before it begins: `python -m train CONFIG --dry-run`.

Numbers of samples and steps follow from the configuration, FLOP and activations from the network. Seconds are those of
a few steps taken here and now, on random samples in memory, by the very step that will train, and so hold for this
machine, as busy as it is. What simulating the missing samples takes is `namsa.dataset.estimate`'s.

Not in the seconds: waiting for data (a disk that cannot keep up), other ranks' gradients, evaluation and the report.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from fcdensenet.build import build
from fcdensenet.count import count as weigh
from namsa.crystals.select import select_materials
from namsa.dataset import estimate
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset, shard_paths
from namsa.text import duration, plural
from train.experiment.experiment import Experiment
from train.input import selection
from train.measure import performance
from train.optimization import precision
from train.optimization.loop import make_step
from train.optimization.optimizers import LarsAdam
from train.ranks import reduction

Tree = dict[str, Any]
STEPS, SECONDS = 3, 2.0  # that are measured after the first: at least so many, and no fewer than fill this
LINE_BYTES = 600  # of metrics.jsonl and TensorBoard's events, a step


def forecast(experiment: Experiment, ranks: int = 1) -> Tree:
    """Samples, steps, seconds, memory and disk of training `experiment` on `ranks` ranks; JSON types.

    To be called after `reduction.start`. Raises InputError where the samples are too few for the ranks.
    """
    training = experiment.training
    entries, simulation = _samples(experiment, ranks)
    to_learn = selection.limit([entry for entry in entries if entry.split == "train"], training.samples)
    steps = len(to_learn) // ranks // training.batch_size
    if not steps:
        raise selection.too_few_samples(len(to_learn), ranks, training.batch_size)
    step = _step(experiment)
    weight = weigh(experiment.network, training.recompute)
    stored = "float32" if training.precision.compute == "float32" else "float16"  # bfloat16 takes as much
    return {
        "ranks": ranks,
        "train_samples": len(to_learn),
        "held_out_samples": sum(entry.split != "train" for entry in entries),
        "simulation": simulation,
        "parameters": weight.parameters,
        "step_flop": training.batch_size * weight.step_flop,
        "steps_per_epoch": steps,
        "epochs": training.epochs,
        "steps": steps * training.epochs,
        **step,
        "seconds": step["first_step_s"] + steps * training.epochs * step["step_s"],
        "activation_bytes": training.batch_size * weight.activation_bytes(stored),
        "disk_bytes": training.checkpoints.keep * step["checkpoint_bytes"] + LINE_BYTES * steps * training.epochs,
    }


def _samples(experiment: Experiment, ranks: int) -> tuple[Sequence[Entry], Tree | None]:
    """The entries that will be there, and what simulating those that are not takes; None where none is missing."""
    directory = experiment.data.directory
    there: set[str] = set()
    if directory.is_dir() and shard_paths(directory):
        with Dataset(directory) as dataset:
            selection.check_configuration(dataset, experiment)
            there = set(dataset.ids)
    materials = select_materials(experiment.materials)
    entries = [entry for entry in build_entries(experiment, materials) if not entry.skipped]
    missing = sum(entry.id not in there for entry in entries)
    if not missing or experiment.data.stage_from:
        return entries, None
    whole, part = estimate.estimate_dataset(experiment, materials, ranks), missing / len(entries)
    return entries, {
        "samples": missing,
        "seconds": part * whole.seconds_per_rank,
        "memory_bytes": whole.memory_bytes,
        "disk_bytes": round(part * whole.disk_bytes),
    }


def _step(experiment: Experiment) -> Tree:
    """Seconds of the first step, which builds the graph, and of later ones; the most memory; bytes of a checkpoint."""
    training = experiment.training
    keras.utils.clear_session()
    with precision.policy(training.precision.compute):
        model = build(experiment.network, experiment.seed, training.recompute)
        optimizer = precision.with_loss_scale(LarsAdam(training.optimizer), training)
        optimizer.build(model.trainable_variables)
        waiting = reduction.gradient_buffers(model.trainable_variables, training.reduction)
    step, batch = make_step(model, optimizer, training, waiting), _batch(experiment)
    rate, delta = (tf.constant(number, tf.float32) for number in (0.0, training.loss.huber_delta))

    def seconds() -> float:
        begun = time.perf_counter()
        step(*batch, rate, delta).numpy()
        return time.perf_counter() - begun

    first, later = seconds(), [seconds()]
    while len(later) < STEPS or sum(later) < SECONDS:
        later.append(seconds())
    return {
        "first_step_s": first,
        "step_s": float(np.median(later)),
        "memory_mib": performance.peak_memory_mib(),
        "checkpoint_bytes": sum(
            np.asarray(variable).nbytes for variable in (*model.variables, *optimizer.variables, *waiting)
        ),
    }


def _batch(experiment: Experiment) -> tuple[Any, Any]:
    """Random patterns and densities, as the step takes them."""
    network, training = experiment.network, experiment.training
    channels, *image = network.input_shape
    rng = np.random.default_rng(0)

    def maps(count: int) -> Any:
        first = network.data_format == "channels_first"
        shape = (training.batch_size, count, *image) if first else (training.batch_size, *image, count)
        return rng.random(shape, np.float32)

    computed = training.precision.compute.removeprefix("mixed_")
    return tf.cast(maps(channels), computed), tf.constant(maps(network.output_channels))


# ---- In words -------------------------------------------------------------------------------------------------------


def rows(found: Tree) -> Iterator[tuple[str, str]]:
    """What `forecast` found, as (name, value) for a table."""
    ranks = found["ranks"]
    if simulation := found["simulation"]:
        yield (
            "to simulate",
            f"{plural(simulation['samples'], 'sample')}: {duration(simulation['seconds'])}, "
            f"{simulation['disk_bytes'] / 1e9:.3g} GB on disk",
        )
    yield "samples", f"{found['train_samples']} to train on, {found['held_out_samples']} held out"
    yield "network", f"{found['parameters']:,} parameters, {found['step_flop']:.3g} FLOP a step of one rank"
    yield (
        "steps",
        f"{found['steps']}: {found['epochs']} epochs of {found['steps_per_epoch']}, on {plural(ranks, 'rank')}",
    )
    yield (
        "a step",
        f"{1e3 * found['step_s']:.3g} ms, {found['step_flop'] / found['step_s'] / 1e9:.3g} GFLOP/s, "
        "measured here and now",
    )
    yield "training", f"{duration(found['seconds'])}, waiting for data, other ranks and evaluation left out"
    yield (
        "memory a rank",
        f"{found['memory_mib']:,.0f} MiB, measured; of that {found['activation_bytes'] / 2**20:,.1f} MiB activations",
    )
    yield "disk", f"{found['disk_bytes'] / 1e6:,.1f} MB in the run directory, most of it checkpoints"
