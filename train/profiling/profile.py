"""Profiles some steps of a training job: `python -m train profile CONFIG`.

The steps are those of the job, taken by `train.optimization.loop.train_epoch` with a learning rate near zero; nothing
is saved. They are timed first without TensorFlow's profiler, which costs time of its own, and then with it. Every rank
profiles itself. Horovod writes its timeline on rank 0.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, nullcontext
from itertools import chain, count, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tensorflow as tf

from namsa.dataset import manifest
from namsa.dataset.shards import Dataset, shard_paths
from namsa.errors import WorkError

from ..experiment.experiment import Experiment
from ..input import batches, selection, views
from ..input.batches import random_batch
from ..input.division import RankDivision, division_of
from ..measure import profile_tables
from ..measure.profile_results import Profile, RankSpread
from ..measure.results import StepRow
from ..measure.trace import INPUT_MARK, STEP_MARK, Trace, read_horovod_timeline, read_trace
from ..networks import count as count_network
from ..optimization.loop import EpochPlan, make_step, train_epoch
from ..optimization.optimizers import assemble
from ..ranks import reduction
from ..tasks import task_of

Batches = Iterator[tuple[Any, Any]]

WARM_UP = 3  # steps: the first builds the graph, the next allocate memory and choose algorithms
NO_RATE = 1e-12  # learning rate: weights that stay as they are cannot diverge on random data
TIMELINE_WAIT_S = 10.0  # for Horovod's thread to end its file


def profile(experiment: Experiment, steps: int, machine: str) -> Profile:
    """Returns the profile of some training steps. Collective; `reduction.start` must have been called.

    Returns:
        This rank's tables, and the spread over the ranks.

    Raises:
        WorkError: If TensorFlow's profiler has recorded no operation.
        InputError: If the ranks do not form groups for divided samples.
    """
    split = division_of(experiment.training.split)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        source, data = _batches(experiment, stack, split)
        configured = experiment.training
        exchange = configured.exchange.within(steps)
        training = configured.model_copy(update={"exchange": exchange})
        experiment = experiment.model_copy(update={"training": training})
        rows = _steps(experiment, _marked(source), WARM_UP + 2 * steps + 1, split)
        for _ in range(WARM_UP):
            next(rows)
        plain = [next(rows) for _ in range(steps)]
        trace = _record(rows, steps, folder)
    if not trace.events or len(trace.steps) != steps:
        raise reduction.reported_once(
            WorkError("TensorFlow's profiler recorded no operation: on a GPU it needs CUPTI (extras/CUPTI/lib64)")
        )
    ways, axis = (split.ways, split.axis) if split else (1, 0)
    network = count_network(experiment.network, ways=ways, axis=axis)
    updates = experiment.training.batch_size * experiment.training.accumulate * experiment.images_per_sample()
    kinds = profile_tables.kind_rows(trace, updates * network.forward_flop)
    bars, timeline_s = profile_tables.timeline(trace, kinds)
    convolutions_s = profile_tables.convolutions_s(trace)
    moments = experiment.training.optimizer.moments
    synchronised = exchange.synchronisations(network, moments)
    middle = statistics.fmean if synchronised else statistics.median
    result: Profile = {
        "name": experiment.name,
        "data": data,
        "device": trace.device,
        "machine": machine,
        "ranks": reduction.size(),
        "steps": steps,
        "step_flop": updates * network.step_flop,
        "step_s": middle(row["step_s"] for row in plain),
        "profiled_step_s": statistics.fmean(end - start for start, end in trace.steps),
        "convolutions_s": convolutions_s,
        "kinds": kinds,
        "phases": profile_tables.phase_rows(trace),
        "algorithms": profile_tables.algorithm_rows(trace),
        "operations": profile_tables.operation_rows(trace),
        "timeline": bars,
        "timeline_s": timeline_s,
        "spread": _spread(plain, convolutions_s),
    }
    if split:
        result["exchange"] = profile_tables.exchange_facts(trace)
    if synchronised and (asked := configured.exchange.synchronisations(network, moments)):
        result["synchronisation"] = {
            "configured": asked.every,
            "every": int(synchronised.every),
            "sent_bytes": synchronised.bytes if reduction.size() > 1 else 0,
            "seconds": statistics.median(row["sync_s"] for row in plain if row["sync_s"] > 0),
        }
    return result


def _batches(experiment: Experiment, stack: ExitStack, split: RankDivision | None) -> tuple[Batches, str]:
    """Returns endless batches of this rank's samples, or of random numbers if a rank has too few, and which it is."""
    training, directory, task = experiment.training, experiment.data.directory, task_of(experiment)
    ways = split.ways if split else 1
    share, shares = reduction.rank() // ways, reduction.size() // ways
    if experiment.data.source.per_node:
        share, shares = reduction.local_rank(), reduction.local_size()
    entries, dataset = [], None
    with reduction.together():
        if directory.is_dir() and shard_paths(directory):
            dataset = stack.enter_context(Dataset(directory))
            selection.check_configuration(dataset, experiment)
            present = manifest.present(directory, dataset.ids)
            task = task_of(task.resolve(present, dataset))
            present = task.usable(present)
            entries = selection.limit([entry for entry in present if entry.split == "train"], training.samples)
    samples = len(entries) // shares // training.batch_size * training.batch_size
    if not reduction.minimum(samples) or dataset is None:
        random = random_batch(experiment.network, training, experiment.images_per_sample())
        x, y = random[0], task.random_target(random)
        if split:
            x, y = (split.take_part(each, experiment.network.data_format) for each in (x, y))
        return repeat((x, y)), "random"
    readable, compose, cache = task.readable(dataset), task.composer(dataset), views.ReadCache()

    def epoch(number: int) -> Batches:
        own = selection.epoch_share(entries, experiment.seed, number, share, shares, count=samples)
        read = batches.batches(
            readable, own, experiment, number, cache, task.target, compose, split.take_part if split else None
        )
        return stack.enter_context(closing(read))

    return chain.from_iterable(map(epoch, count())), "samples"


def _marked(source: Batches) -> Batches:
    """Yields the batches, and marks in a trace the time in which they are waited for."""
    while True:
        with tf.profiler.experimental.Trace(INPUT_MARK):
            batch = next(source)
        yield batch


def _steps(experiment: Experiment, source: Batches, steps: int, split: RankDivision | None) -> Iterator[StepRow]:
    """Builds the network and its step as the job does, and yields a row after each step."""
    training, objective = experiment.training, task_of(experiment, split).objective
    optimizer_settings = training.optimizer.model_copy(update={"learning_rate": NO_RATE})
    training = training.model_copy(update={"optimizer": optimizer_settings})
    with reduction.together():
        network, seed, ranks = experiment.network, experiment.seed, reduction.size()
        model, optimizer, exchange, accumulation = assemble(
            network, seed, training, ranks, objective, split, reduction.rank()
        )
        step = make_step(model, optimizer, training, exchange, accumulation, objective)
    exchange.restore(exchange.blank_state(), [], resumed=False)
    plan = EpochPlan(epoch=0, first_step=1, steps=steps, ranks=reduction.size())
    yield from train_epoch(
        step, source, training, plan, exchange=exchange, accumulation=accumulation, objective=objective
    )


def _record(rows: Iterator[StepRow], steps: int, folder: Path) -> Trace:
    """Takes steps under the profiler, and Horovod's timeline if there are several ranks."""
    timeline = folder / "horovod.json"
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
    with reduction.timeline(timeline) if reduction.size() > 1 else nullcontext():
        next(rows)  # Horovod's thread notices the timeline in its next cycle
        tf.profiler.experimental.start(str(folder), options=options)
        try:
            for number in range(steps):
                with tf.profiler.experimental.Trace(STEP_MARK, step_num=number, _r=1):
                    next(rows)
        finally:
            tf.profiler.experimental.stop()
    trace = read_trace(folder)
    if reduction.size() > 1 and reduction.rank() == 0:
        limit = time.monotonic() + TIMELINE_WAIT_S
        while not (timeline.exists() and timeline.read_text(encoding="utf-8").rstrip().endswith("]")):
            if time.monotonic() > limit:
                break
            time.sleep(0.05)
        trace = trace._replace(events=trace.events + read_horovod_timeline(timeline, trace.began_s))
    return trace


def _spread(rows: Sequence[StepRow], convolutions_s: float) -> list[RankSpread]:
    """Returns the spread of medians over the ranks. Collective."""
    medians = {
        "step": statistics.median(row["step_s"] for row in rows),
        "convolutions": convolutions_s,
        "communication that is not hidden": statistics.median(row["comm_s"] for row in rows),
        "waiting for data": statistics.median(row["data_s"] for row in rows),
    }
    if synchronisations := [row["sync_s"] for row in rows if row.get("sync_s", 0.0) > 0]:
        medians["one synchronisation"] = statistics.median(synchronisations)
    ranks = reduction.gather_json(medians)
    table = {name: [each[name] for each in ranks] for name in medians}
    return [
        {"name": name, "lowest": min(times), "median": statistics.median(times), "highest": max(times)}
        for name, times in table.items()
    ]
