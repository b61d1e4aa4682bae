"""Profiles some steps of a training job: `namsa-train profile CONFIG`.

The steps are those of the job, taken by `train.optimization.loop.train_epoch` with a learning rate
near zero; nothing is saved. They are timed first without TensorFlow's profiler, which costs time of
its own, and then with it. Every rank profiles itself. Horovod writes its timeline on rank 0.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, nullcontext
from itertools import chain, count, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import tensorflow as tf

from fcdensenet.layer_counts import NetworkCount
from namsa.base.arrays import Tensor
from namsa.base.errors import WorkError
from namsa.dataset import manifest
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset, shard_paths

from ..experiment.exchange import Synchronisations
from ..experiment.experiment import Experiment
from ..input import batches, selection, views
from ..input.batches import random_batch
from ..input.division import RankDivision, division_of
from ..measure.profile_results import Profile, RankSpread, SynchronisationFacts
from ..measure.results import StepRow
from ..networks import count as count_network
from ..networks import count_part
from ..optimization.loop import EpochPlan, make_step, train_epoch
from ..optimization.optimizers import assemble
from ..ranks.connection import engine
from ..tasks import task_of
from ..tasks.task import Task
from . import profile_tables
from .trace import INPUT_MARK, STEP_MARK, Trace, read_horovod_timeline, read_trace

Batches = Iterator[tuple[Tensor, Tensor]]

WARM_UP = 3  # steps: the first builds the graph, the next allocate memory and choose algorithms
NO_RATE = 1e-12  # learning rate: weights that stay as they are cannot diverge on random data
TIMELINE_WAIT_S = 10.0  # for Horovod's thread to end its file


def profile(experiment: Experiment, steps: int, machine: str) -> Profile:
    """Returns the profile of some training steps. Collective.

    `train.ranks.connection.start` must have been called.

    Returns:
        This rank's tables, and the spread over the ranks.

    Raises:
        WorkError: If TensorFlow's profiler has recorded no operation.
        InputError: If the ranks do not form groups for divided samples.
    """
    split = division_of(experiment.training.split, experiment.network.input_shape)
    configured = experiment.training
    exchange = configured.exchange.within(steps)
    training = configured.model_copy(update={"exchange": exchange})
    experiment = experiment.model_copy(update={"training": training})
    taken = _take_steps(experiment, steps, split)
    trace = taken.trace
    network = _counted_network(experiment, split)
    images = training.batch_size * training.accumulate * experiment.images_per_sample()
    kinds = profile_tables.kind_rows(trace, images * network.forward_flop)
    drawn_step = profile_tables.timeline(trace, kinds)
    convolutions_s = profile_tables.convolutions_s(trace)
    moments = training.optimizer.moments
    in_profile = exchange.synchronisations(network, moments)
    in_job = configured.exchange.synchronisations(network, moments)
    step_times = [row["step_s"] for row in taken.unprofiled]
    step_s = statistics.fmean(step_times) if in_profile else statistics.median(step_times)
    result: Profile = {
        "name": experiment.name,
        "data": taken.data,
        "device": trace.device,
        "machine": machine,
        "ranks": engine().size(),
        "steps": steps,
        "step_flop": images * network.step_flop,
        "step_s": step_s,
        "profiled_step_s": profile_tables.mean_step_s(trace),
        "convolutions_s": convolutions_s,
        "kinds": kinds,
        "phases": profile_tables.phase_rows(trace),
        "algorithms": profile_tables.algorithm_rows(trace),
        "operations": profile_tables.operation_rows(trace),
        "timeline": drawn_step.bars,
        "timeline_s": drawn_step.seconds,
        "spread": _spread(taken.unprofiled, convolutions_s),
    }
    if split:
        result["exchange"] = profile_tables.exchange_facts(trace)
    if in_profile and in_job:
        result["synchronisation"] = _synchronisation(in_profile, in_job, taken.unprofiled)
    return result


class _TakenSteps(NamedTuple):
    """The steps of a profile."""

    data: str  # "samples" or "random"
    unprofiled: list[StepRow]  # rows of the steps without TensorFlow's profiler
    trace: Trace  # of the steps with it


def _take_steps(experiment: Experiment, steps: int, split: RankDivision | None) -> _TakenSteps:
    """Takes steps without the profiler, and as many with it. Collective.

    Raises:
        WorkError: If the profiler has recorded no operation.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        source, data = _batches(experiment, stack, split)
        rows = _steps(experiment, _marked(source), WARM_UP + 2 * steps + 1, split)
        for _ in range(WARM_UP):
            next(rows)
        unprofiled = [next(rows) for _ in range(steps)]
        trace = _record(rows, steps, folder)
    if not trace.events or len(trace.steps) != steps:
        raise engine().reported_once(
            WorkError(
                "TensorFlow's profiler recorded no operation: on a GPU it needs CUPTI "
                "(extras/CUPTI/lib64)"
            )
        )
    return _TakenSteps(data, unprofiled, trace)


def _synchronisation(
    in_profile: Synchronisations, in_job: Synchronisations, rows: Sequence[StepRow]
) -> SynchronisationFacts:
    """Returns the facts of local SGD."""
    return {
        "configured": in_job.every,
        "every": int(in_profile.every),
        "sent_bytes": in_profile.bytes if engine().size() > 1 else 0,
        "seconds": statistics.median(_synchronisation_times(rows)),
    }


def _counted_network(experiment: Experiment, split: RankDivision | None) -> NetworkCount:
    """Returns the counts of this rank's network, of a part of it if samples are divided."""
    if split is None:
        return count_network(experiment.network)
    return count_part(experiment.network, experiment.training.split)


def _synchronisation_times(rows: Sequence[StepRow]) -> list[float]:
    """Returns the times of the steps that synchronise the ranks, s."""
    return [row["sync_s"] for row in rows if row.get("sync_s", 0.0) > 0]


class _Dataset(NamedTuple):
    """The samples of a profile."""

    dataset: Dataset
    task: Task
    entries: Sequence[Entry]  # of the training split


def _open_dataset(experiment: Experiment, stack: ExitStack) -> _Dataset | None:
    """Returns the samples in data.directory; `None` if there are none."""
    directory = experiment.data.directory
    if not directory.is_dir() or not shard_paths(directory):
        return None
    dataset = stack.enter_context(Dataset(directory))
    selection.check_configuration(dataset, experiment)
    present = manifest.present(directory, dataset.ids)
    task = task_of(task_of(experiment).resolve(present, dataset))
    training_entries = [entry for entry in task.usable(present) if entry.split == "train"]
    return _Dataset(dataset, task, selection.limit(training_entries, experiment.training.samples))


def _batches(
    experiment: Experiment, stack: ExitStack, split: RankDivision | None
) -> tuple[Batches, str]:
    """Returns endless batches of this rank, and whether they are "samples" or "random".

    They are random numbers if a rank has too few samples.
    """
    batch_size = experiment.training.batch_size
    ways = split.ranks if split else 1
    share = engine().rank() // ways
    shares = engine().size() // ways
    if experiment.data.source.per_node:
        share = engine().local_rank()
        shares = engine().local_size()
    with engine().local_work():
        opened = _open_dataset(experiment, stack)
    samples = 0
    if opened:
        samples = len(opened.entries) // shares // batch_size * batch_size
    if not engine().minimum(samples) or opened is None:
        task = opened.task if opened else task_of(experiment)
        return repeat(_random_batch(experiment, task, split)), "random"
    dataset, task, entries = opened
    readable = task.readable(dataset)
    compose = task.composer(dataset)
    take_part = split.take_part if split else None
    cache = views.ReadCache()

    def epoch(index: int) -> Batches:
        epoch_entries = selection.epoch_share(
            entries, experiment.seed, index, share, shares, count=samples
        )
        read = batches.batches(
            readable, epoch_entries, experiment, index, cache, task.target, compose, take_part
        )
        return stack.enter_context(closing(read))

    return chain.from_iterable(map(epoch, count())), "samples"


def _random_batch(
    experiment: Experiment, task: Task, split: RankDivision | None
) -> tuple[Tensor, Tensor]:
    """Returns a batch of random numbers, or this rank's part of one."""
    training = experiment.training
    random = random_batch(experiment.network, training, experiment.images_per_sample())
    x = random[0]
    y = task.random_target(random)
    if split is None:
        return x, y
    data_format = experiment.network.data_format
    return split.take_part(x, data_format), split.take_part(y, data_format)


def _marked(source: Batches) -> Batches:
    """Yields the batches, and marks in a trace the time in which they are waited for."""
    while True:
        with tf.profiler.experimental.Trace(INPUT_MARK):
            batch = next(source)
        yield batch


def _steps(
    experiment: Experiment, source: Batches, steps: int, split: RankDivision | None
) -> Iterator[StepRow]:
    """Builds the network and its step as the job does, and yields a row after each step."""
    training = experiment.training
    objective = task_of(experiment, split).objective
    optimizer_settings = training.optimizer.model_copy(update={"learning_rate": NO_RATE})
    training = training.model_copy(update={"optimizer": optimizer_settings})
    with engine().local_work():
        network = experiment.network
        seed = experiment.seed
        ranks = engine().size()
        model, optimizer, exchange, accumulation = assemble(
            network, seed, training, ranks, objective, split, engine().rank()
        )
        step = make_step(model, optimizer, training, exchange, accumulation, objective)
    exchange.restore(exchange.blank_state(), [], resumed=False)
    plan = EpochPlan(epoch=0, first_step=1, steps=steps, ranks=engine().size())
    yield from train_epoch(
        step,
        source,
        training,
        plan,
        exchange=exchange,
        accumulation=accumulation,
        objective=objective,
    )


def _record(rows: Iterator[StepRow], steps: int, folder: Path) -> Trace:
    """Takes steps under the profiler, and Horovod's timeline if there are several ranks."""
    timeline = folder / "horovod.json"
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
    has_timeline = engine().size() > 1
    with engine().timeline(timeline) if has_timeline else nullcontext():
        next(rows)  # Horovod's thread notices the timeline in its next cycle
        tf.profiler.experimental.start(str(folder), options=options)
        try:
            for index in range(steps):
                with tf.profiler.experimental.Trace(STEP_MARK, step_num=index, _r=1):
                    next(rows)
        finally:
            tf.profiler.experimental.stop()
    trace = read_trace(folder)
    if not has_timeline or engine().rank() != 0:
        return trace
    _wait_for_end(timeline)
    messages = read_horovod_timeline(timeline, trace.began_s)
    return trace._replace(events=trace.events + messages)


def _wait_for_end(timeline: Path) -> None:
    """Waits until Horovod's thread has ended its file, for a limited time."""
    limit = time.monotonic() + TIMELINE_WAIT_S
    while time.monotonic() <= limit:
        if timeline.exists() and timeline.read_text(encoding="utf-8").rstrip().endswith("]"):
            return
        time.sleep(0.05)


def _spread(rows: Sequence[StepRow], convolutions_s: float) -> list[RankSpread]:
    """Returns the spread of medians over the ranks. Collective."""
    medians = {
        "step": statistics.median(row["step_s"] for row in rows),
        "convolutions": convolutions_s,
        "communication that is not hidden": statistics.median(row["comm_s"] for row in rows),
        "waiting for data": statistics.median(row["data_s"] for row in rows),
    }
    synchronisations = _synchronisation_times(rows)
    if synchronisations:
        medians["one synchronisation"] = statistics.median(synchronisations)
    medians_of_ranks = engine().gather_json(medians)
    table: list[RankSpread] = []
    for name in medians:
        times = [of_rank[name] for of_rank in medians_of_ranks]
        table.append(
            {
                "name": name,
                "lowest": min(times),
                "median": statistics.median(times),
                "highest": max(times),
            }
        )
    return table
