"""Data: the source brings the samples to data.directory, and each rank takes its share of them."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Floats
from namsa.config.loading import config_hash
from namsa.dataset import manifest
from namsa.dataset.entry import SPLITS, Entry
from namsa.dataset.shards import Dataset
from namsa.dataset.sharing import RankLayout

from ..experiment.experiment import Experiment
from ..input import selection
from ..input.source import Preparation, SampleSource, source_of
from ..measure import telemetry
from ..ranks.connection import engine
from ..tasks import task_of
from ..tasks.task import Task
from .connect import Job
from .run_directory import RunDirectory


@dataclass(frozen=True)
class JobData:
    """The samples of a job, and what this rank has of them."""

    experiment: Experiment  # the configuration, with what follows from the samples
    task: Task  # its task
    source: SampleSource  # where they come from
    dataset: Dataset  # the samples in data.directory
    training: Sequence[Entry]  # the samples that are trained on, of all ranks
    held_out: Sequence[Entry]  # this rank's share of the samples for the evaluation
    validated: Sequence[Entry]  # this rank's share of the samples for validations
    share: int  # number of this rank's share of `training`
    shares: int  # number of shares
    epoch_samples: int  # samples of an epoch
    steps: int  # steps per epoch
    # number of training samples of the whole job, which nodes with different samples add to
    samples: int
    baseline: Floats  # mean of the task's statistic over them

    @property
    def rank_samples(self) -> int:
        """Samples of one rank in one step."""
        return self.experiment.training.batch_size * self.experiment.training.accumulate

    @property
    def step_samples(self) -> int:
        """Samples that a step takes of the common order."""
        return self.shares * self.rank_samples


class _SelectedSamples(NamedTuple):
    """The samples of a node, or of all nodes, by what the job does with them."""

    experiment: Experiment  # the configuration, with what follows from the samples
    task: Task
    present: Sequence[Entry]  # all that are there
    training: Sequence[Entry]  # those that are trained on
    held_out: Sequence[Entry]  # those for the evaluation
    validated: Sequence[Entry]  # those for validations


@contextmanager
def share_out(job: Job, source: SampleSource, own_ids: Collection[str] | None) -> Iterator[JobData]:
    """Yields all samples, or those of some ids, which can be read inside the context. Collective.

    Raises:
        InputError: If the samples are of another configuration, differ between the ranks or are too
            few.
    """
    per_node = job.experiment.data.source.per_node
    share = job.group
    shares = job.groups
    if per_node:  # a node's ranks share the samples of the node
        share = engine().local_rank()
        shares = engine().local_size()
    with ExitStack() as stack:
        with engine().local_work():
            dataset = stack.enter_context(Dataset(job.experiment.data.directory))
            ids = dataset.ids if own_ids is None else own_ids
            selected = _select(job, dataset, ids)
        _check_same_on_all_ranks(selected, per_node)
        training = selected.experiment.training
        rank_samples = training.batch_size * training.accumulate
        with engine().local_work():
            epoch_samples = source.epoch_samples(len(selected.training), shares)
        steps = engine().minimum(epoch_samples // shares // rank_samples)
        if not steps:
            error = selection.too_few_samples(epoch_samples, shares, rank_samples)
            raise engine().reported_once(error)
        with engine().local_work():
            own_training = selected.training[share::shares]
            own_statistic = selected.task.statistic(dataset, own_training)
        own_samples = 0
        if job.rank % job.ways == 0:  # once per group
            own_samples = len(own_training)
        samples = engine().total(np.array(float(own_samples)))
        yield JobData(
            experiment=selected.experiment,
            task=selected.task,
            source=source,
            dataset=dataset,
            training=selected.training,
            held_out=selected.held_out[share::shares],
            validated=selected.validated[share::shares],
            share=share,
            shares=shares,
            epoch_samples=epoch_samples,
            steps=steps,
            samples=int(samples),
            baseline=engine().total(own_statistic * own_samples) / samples,
        )


def _select(job: Job, dataset: Dataset, ids: Collection[str]) -> _SelectedSamples:
    """Returns the samples of some ids that the task can use. Raises InputError if they are of
    another configuration.
    """
    selection.check_configuration(dataset, job.experiment)
    present = manifest.present(job.experiment.data.directory, ids)
    experiment = task_of(job.experiment).resolve(present, dataset)
    task = task_of(experiment, job.split)
    by_split: dict[str, list[Entry]] = {name: [] for name in SPLITS}
    others = []
    for entry in task.usable(present):
        by_split[entry.split].append(entry)
        if entry.split != "train":
            others.append(entry)
    training = selection.limit(by_split["train"], experiment.training.samples)
    return _SelectedSamples(
        experiment=experiment,
        task=task,
        present=present,
        training=training,
        held_out=task.held_out(training, others),
        validated=selection.limit(by_split["dev"], experiment.training.validation.samples),
    )


def _check_same_on_all_ranks(selected: _SelectedSamples, per_node: bool) -> None:
    """Compares what follows from the samples, and, unless each node has its own, the samples.
    Collective.
    """
    ranks = engine()
    ranks.check_same(
        config_hash(selected.experiment),
        "what the configuration takes from the samples, as names of classes",
    )
    if not per_node:
        ranks.check_same(len(selected.present), "the number of samples")
        digest = selection.digest_ids(selected.present)
        ranks.check_same(digest, "the digest of the samples' ids")


def obtain(job: Job, run: RunDirectory, force: bool) -> tuple[SampleSource, Collection[str] | None]:
    """Makes sure that the samples are in `data.directory`; returns their source, and the ids to
    use. Collective.
    """
    source = source_of(job.experiment)
    task = task_of(job.experiment)

    def check_listed(entries: Sequence[Entry]) -> None:
        task.check_listed(entries)
        _check_steps(job, source, entries)

    preparation = Preparation(
        ranks=engine(),
        run_dir=run.path,
        layout=RankLayout(job.rank, job.ranks, engine().local_size()),
        simulate=not job.evaluate_only,
        force=force,
        check_listed=check_listed,
        progress=partial(telemetry.counter, run.console),
        log_line=run.log_line,
    )
    return source, source.prepare(preparation)


def _check_steps(job: Job, source: SampleSource, entries: Sequence[Entry]) -> None:
    """Raises InputError if the listed samples are too few for one step of all ranks. Nodes with
    samples of their own are compared when these are shared out.
    """
    if job.experiment.data.source.per_node:
        return
    training = job.experiment.training
    listed = sum(entry.split == "train" for entry in entries)
    used = min(listed, training.samples or listed)
    epoch_samples = source.epoch_samples(used, job.groups)
    rank_samples = training.batch_size * training.accumulate
    if epoch_samples // job.groups < rank_samples:
        raise selection.too_few_samples(epoch_samples, job.groups, rank_samples)
