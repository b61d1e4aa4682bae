"""Forecast of a training job, before it begins: `namsa-train CONFIG --dry-run`.

Numbers of samples and steps follow from the configuration; FLOP and activations follow from the
network. Times are measured in a few steps on random samples in memory, with the same step function
as in training. They hold for this machine with its current load. A step of more than `MOST_FLOP` is
measured on a smaller image and scaled by area; without a GPU channels are last and numbers float32,
since processors compute float16 in software, if at all. The cost of simulating missing samples
comes from `namsa.dataset.estimate`. Of crystals that are derived in large numbers, some stand for
all, unless there is a manifest.

The times leave out waiting for data (a disk that is too slow), the gradients of other ranks,
evaluation and the report.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from keras import ops

from fcdensenet.config import NetworkConfig
from fcdensenet.split import part_shape
from namsa.base.errors import InputError, stored_warnings
from namsa.base.memory import check_memory_for
from namsa.base.text import plural
from namsa.crystals.material import Material
from namsa.crystals.select import select_few, select_materials
from namsa.dataset import estimate, manifest
from namsa.dataset.entries import build_entries
from namsa.dataset.entry import Entry, feasible_entries, materials_named
from namsa.dataset.shards import Dataset, shard_paths

from ..execution import backend
from ..experiment.experiment import Experiment
from ..experiment.sections import Training
from ..input import selection
from ..input.batches import kept_window_bytes, random_batch
from ..input.source import source_of
from ..measure import performance
from ..networks import Network, count, count_part
from ..optimization.loop import make_step
from ..optimization.optimizers import assemble
from ..tasks import task_of
from . import memory
from .results import Forecast, SimulationForecast, StepForecast

MIN_SECONDS = 2.0  # measured after the first step: at least as long
MOST_FLOP = 2e11  # of a step that is measured: a second on a processor
FEW_MATERIALS = 200  # that are derived by substitution, to stand for all
HEADER_BYTES = 8000  # of a checkpoint: what made it, without the names of variables
LOG_BYTES = 600  # per step, in metrics.jsonl and TensorBoard's events


def forecast(experiment: Experiment, ranks: int = 1, samples: "Samples | None" = None) -> Forecast:
    """Returns what training takes: samples, steps, time, memory and disk space.

    `connection.start` must have been called.

    Args:
        samples: What `count_samples` returns, which is called without it.

    Raises:
        InputError: If there are too few samples for the ranks, or the dataset is of another
            configuration.
    """
    training = experiment.training
    samples = samples or count_samples(experiment, ranks)
    train_samples = min(samples.training, training.samples or samples.training)
    rank_samples = training.batch_size * training.accumulate  # of one rank in one step
    epochs = _epochs(experiment, train_samples, ranks)
    steps = epochs.steps
    kept_in_memory = _checked_store_bytes(experiment, train_samples, ranks)
    measured = _measure_step(experiment, ranks)
    network = count_part(experiment.network, training.split, training.recompute)
    images = experiment.images_per_sample()
    batch_images = training.batch_size * images
    largest_batches = {}
    for name, gib in memory.GPUS_GIB.items():
        largest_batches[name] = memory.largest_batch(experiment, ranks, gib)
    result: Forecast = {
        "ranks": ranks,
        "train_samples": epochs.samples,
        "held_out_samples": samples.held_out,
        "simulation": samples.simulation,
        "parameters": network.parameters,
        "step_flop": rank_samples * images * network.step_flop,
        "steps_per_epoch": epochs.steps_per_epoch,
        "epochs": math.ceil(steps / epochs.steps_per_epoch),
        "steps": steps,
        **measured,
        "seconds": measured["first_step_s"] + steps * measured["step_s"],
        "activation_bytes": batch_images * network.activation_bytes(memory.stored_type(training)),
        "memory": memory.step_memory(experiment, ranks, backend.execution().has_gpu())._asdict(),
        "gpu_memory": memory.step_memory(experiment, ranks, on_gpu=True)._asdict(),
        "largest_batches": largest_batches,
        # A rank takes other samples in each epoch, and keeps the windows of all that it has taken.
        "kept_bytes": min(train_samples, steps * rank_samples) * kept_window_bytes(experiment),
        "disk_bytes": training.checkpoints.keep * measured["checkpoint_bytes"] + LOG_BYTES * steps,
    }
    if kept_in_memory:
        result["store_bytes"] = kept_in_memory
    synchronised = training.exchange.synchronisations(network, training.optimizer.moments)
    if synchronised and ranks > 1:
        result["synchronisations"] = synchronisations(
            synchronised.every, epochs.steps_per_epoch, steps
        )
        result["synchronised_bytes"] = synchronised.bytes
    return result


class _Epochs(NamedTuple):
    """The epochs of a job."""

    samples: int  # training samples of an epoch
    steps_per_epoch: int
    steps: int  # of the job


def _epochs(experiment: Experiment, train_samples: int, ranks: int) -> _Epochs:
    """Returns the epochs of a job on so many ranks. Raises InputError if there are none."""
    training = experiment.training
    rank_samples = training.batch_size * training.accumulate  # of one rank in one step
    group_ranks = training.split.ranks
    if ranks % group_ranks:
        raise InputError(
            f"{training.split.ranks_in_words()}, and {ranks} ranks are no multiple of "
            f"{group_ranks}: change one"
        )
    groups = ranks // group_ranks
    epoch_samples = source_of(experiment).epoch_samples(train_samples, groups)
    steps_per_epoch = epoch_samples // groups // rank_samples
    if not steps_per_epoch:
        raise selection.too_few_samples(epoch_samples, groups, rank_samples)
    steps = steps_per_epoch * training.epochs
    return _Epochs(epoch_samples, steps_per_epoch, min(steps, training.steps or steps))


def _checked_store_bytes(experiment: Experiment, train_samples: int, ranks: int) -> int:
    """Returns the bytes of samples that a rank keeps in memory. Raises InputError for too many."""
    kept_in_memory = source_of(experiment).kept_bytes(train_samples, ranks)
    if kept_in_memory:
        work = (
            f"data.source memory of {train_samples} samples on {plural(ranks, 'rank')}, for one of "
            "them"
        )
        check_memory_for(
            kept_in_memory, work, "leave it out, or use more ranks or fewer training.samples"
        )
    return kept_in_memory


def synchronisations(every: int | str, steps_per_epoch: int, steps: int) -> int:
    """Returns how often ranks average with local SGD: every so many steps or by "epoch", and after
    each epoch.
    """
    regular = range(every, steps + 1, every) if isinstance(every, int) else ()
    return len({*regular, *range(steps_per_epoch, steps + 1, steps_per_epoch), steps})


class Samples(NamedTuple):
    """Numbers of samples of a job, and what it takes to simulate those that are missing."""

    training: int
    held_out: int
    simulation: SimulationForecast | None


def count_samples(experiment: Experiment, ranks: int) -> Samples:
    """Counts the samples that are there, or will be when the simulation ends."""
    directory = experiment.data.directory
    limit_s = experiment.training.simulate_seconds
    present: set[str] = set()
    if directory.is_dir() and shard_paths(directory):
        with Dataset(directory) as dataset:
            selection.check_configuration(dataset, experiment)
            present = set(dataset.ids)
    listed, materials, weight = _entries_and_materials(experiment)
    entries = feasible_entries(listed)
    wanted = source_of(experiment).selected(entries)
    training = sum(entry.split == "train" for entry in wanted)
    missing = sum(entry.id not in present for entry in wanted)
    if missing:
        task_of(experiment).check_listed(entries)
    if not missing or not experiment.data.source.simulates:
        return Samples(training, len(wanted) - training, None)
    with stored_warnings():  # of single samples, which their simulation repeats
        estimated = estimate.estimate_dataset(experiment, materials, ranks, listed)
    sample_count = round(weight * missing)
    seconds = weight * missing / len(entries) * estimated.seconds_per_rank
    if limit_s is not None and seconds > limit_s:  # a sample that has begun is finished
        sample_count = min(
            sample_count, math.ceil(limit_s / seconds * sample_count / ranks) * ranks
        )
        seconds = limit_s
    there = (len(wanted) - missing + sample_count) / len(wanted)
    simulation: SimulationForecast = {
        "samples": sample_count,
        "seconds": seconds,
        "memory_bytes": estimated.memory_bytes,
        "disk_bytes": round(sample_count / len(entries) * estimated.disk_bytes),
        "listed": round(weight * len(wanted)),
        "estimated_from": len(materials),
    }
    return Samples(round(there * training), round(there * (len(wanted) - training)), simulation)


def _entries_and_materials(
    experiment: Experiment,
) -> tuple[Sequence[Entry], Sequence[Material], float]:
    """Returns the entries of the dataset, the materials for their estimate, and the number that an
    entry stands for.

    That is 1 for the entries of a manifest, and where crystals are not derived in large numbers.
    """
    directory = experiment.data.directory
    brought = source_of(experiment).listed()
    if brought is not None:
        return brought, (), 1.0
    if not experiment.data.source.simulates and (directory / manifest.FILE_NAME).is_file():
        return manifest.read(directory), (), 1.0
    for folder in (directory, experiment.data.manifest_from):
        listed = manifest.read_if_current(folder, experiment) if folder else None
        if listed is not None:
            names = materials_named(estimate.sampled(listed))
            return listed, select_materials(experiment.materials, names=names), 1.0
    materials, weight = select_few(experiment.materials, FEW_MATERIALS, run_generator=True)
    return build_entries(experiment, materials), materials, weight


def _measure_step(experiment: Experiment, ranks: int) -> StepForecast:
    """Times of steps, memory of the process and the size of a checkpoint."""
    images = experiment.images_per_sample()
    network, training, area = measurable(experiment)
    # whose image may be smaller, and in another order of axes
    task = task_of(experiment.model_copy(update={"network": network, "training": training}))
    model, optimizer, exchange, accumulation = assemble(
        network, None, training, objective=task.objective
    )
    step = make_step(model, optimizer, training, exchange, accumulation, task.objective)
    random = random_batch(network, training, images)
    batch = random[0], task.random_target(random)
    first_setting = next(iter(task.objective.setting(0).values()), 0.0)
    rate, setting = (ops.convert_to_tensor(value, "float32") for value in (0.0, first_setting))
    first_s, step_s = _first_and_median_s(lambda: step(*batch, rate, setting))
    if accumulation:
        add = accumulation.add
        earlier = training.accumulate - 1
        first_add_s, add_s = _first_and_median_s(lambda: add(*batch, setting))
        first_s = first_s + first_add_s + (earlier - 1) * add_s
        step_s = step_s + earlier * add_s
    more = 0
    if not backend.execution().has_gpu():  # whose step has its own memory
        # The network that is measured is of a part already, or of a whole sample.
        undivided = training.model_copy(update={"split": Training(epochs=1).split})
        as_measured = experiment.model_copy(update={"network": network, "training": undivided})
        more = sum(memory.step_memory(experiment, ranks, on_gpu=False))
        more -= sum(memory.step_memory(as_measured, 1, on_gpu=False)._replace(read_ahead=0))
    return {
        "first_step_s": area * first_s,
        "step_s": area * step_s,
        "memory_mib": performance.peak_memory_mib() + more / 2**20,
        "checkpoint_bytes": HEADER_BYTES
        + sum(
            math.prod(variable.shape) * np.dtype(variable.dtype).itemsize
            for variable in exchange.state()
        ),
        "measured_image": network.input_shape[1:],
    }


def measurable(experiment: Experiment) -> tuple[Network, Training, float]:
    """Returns network and training for an image whose step can be measured, and the area of the
    whole image over its.

    Of a divided sample, the image is a part, and is measured without exchanges. Of other networks
    than FC-DenseNet, the whole sample is measured, or one of half its extents that needs the same
    weights, as CosmoFlow's.
    """
    network = experiment.network
    training = experiment.training
    batch_size = experiment.training.batch_size
    if not isinstance(network, NetworkConfig):
        flop = count(network).forward_flop
        while batch_size * count(network).step_flop > MOST_FLOP and (smaller := _halved(network)):
            network = smaller
        return network, training, flop / count(network).forward_flop / training.split.ranks
    axis = training.split.axis_index(network.input_shape)
    further = training.split.further_axes(network.input_shape)
    shape = part_shape(network.input_shape, training.split.ways, axis, further)
    network = network.model_copy(update={"input_shape": shape})
    channels, height, width = shape
    multiple = 2**network.pools
    while (
        batch_size * count(network).step_flop > MOST_FLOP
        and min(network.input_shape[1:]) > multiple
    ):
        halves = (max(1, size // (2 * multiple)) * multiple for size in network.input_shape[1:])
        network = network.model_copy(update={"input_shape": (channels, *halves)})
    # where TensorFlow has no transposed convolution of channels first
    if not backend.execution().has_gpu():
        network = network.model_copy(update={"data_format": "channels_last"})
        precision = training.precision.model_copy(update={"compute": "float32"})
        training = training.model_copy(update={"precision": precision})
    return network, training, height * width / (network.input_shape[1] * network.input_shape[2])


def _halved(network: Network) -> Network | None:
    """Returns a network for half the extents with the same weights; `None` if there is none."""
    channels, *extents = network.input_shape
    tree = network.model_dump() | {"input_shape": (channels, *(extent // 2 for extent in extents))}
    with suppress(ValueError):
        smaller = type(network).model_validate(tree)
        if (
            not any(extent % 2 for extent in extents)
            and count(smaller).parameters == count(network).parameters
        ):
            return smaller
    return None


def _first_and_median_s(call: Callable[[], object]) -> tuple[float, float]:
    """Returns the time of the first `call`, which builds the graph, and the median of later ones,
    s.
    """
    times: list[float] = []
    while sum(times[1:]) < MIN_SECONDS:
        start = time.perf_counter()
        np.asarray(call())
        times.append(time.perf_counter() - start)
    return times[0], float(np.median(times[1:]))
