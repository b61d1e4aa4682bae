"""Data: the source brings the samples to data.directory, and each rank takes its share of them."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np

from namsa.arrays import Floats
from namsa.config.loading import config_hash
from namsa.dataset import manifest
from namsa.dataset.entry import Entry
from namsa.dataset.shards import Dataset
from namsa.dataset.sharing import RankLayout

from ..experiment.experiment import Experiment
from ..input import selection
from ..input.source import Preparation, SampleSource, source_of
from ..measure import telemetry
from ..ranks import reduction
from ..tasks import task_of
from ..tasks.task import Task
from .connect import Job
from .run_directory import RunDirectory


@dataclass(frozen=True)
class Data:
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
    samples: int  # number of training samples of the whole job, which nodes with different samples add to
    baseline: Floats  # mean of the task's statistic over them

    @property
    def rank_samples(self) -> int:
        """Samples of one rank in one step."""
        return self.experiment.training.batch_size * self.experiment.training.accumulate

    @property
    def step_samples(self) -> int:
        """Samples that a step takes of the common order."""
        return self.shares * self.rank_samples


@contextmanager
def share_out(job: Job, source: SampleSource, own_ids: Collection[str] | None) -> Iterator[Data]:
    """Yields all samples, or those of some ids, which can be read inside the context. Collective.

    Raises:
        InputError: If the samples are of another configuration, differ between the ranks or are too few.
    """
    experiment = job.experiment
    directory, per_node = experiment.data.directory, experiment.data.source.per_node
    share, shares = job.group, job.groups
    if per_node:  # a node's ranks share the samples of the node
        share, shares = reduction.local_rank(), reduction.local_size()
    with ExitStack() as stack:
        with reduction.together():
            dataset = stack.enter_context(Dataset(directory))
            selection.check_configuration(dataset, experiment)
            present = manifest.present(directory, dataset.ids if own_ids is None else own_ids)
            experiment = task_of(experiment).resolve(present, dataset)
            task, training = task_of(experiment, job.split), experiment.training
            usable = task.usable(present)
            training_entries = selection.limit([entry for entry in usable if entry.split == "train"], training.samples)
            held_out = task.held_out(training_entries, [entry for entry in usable if entry.split != "train"])
            dev_entries = [entry for entry in usable if entry.split == "dev"]
            validated = selection.limit(dev_entries, training.validation.samples)
        reduction.check_same(
            config_hash(experiment), "what the configuration takes from the samples, as names of classes"
        )
        if not per_node:
            reduction.check_same(len(present), "the number of samples")
            reduction.check_same(selection.digest_ids(present), "the digest of the samples' ids")
        rank_samples = training.batch_size * training.accumulate
        with reduction.together():
            epoch_samples = source.epoch_samples(len(training_entries), shares)
        steps = reduction.minimum(epoch_samples // shares // rank_samples)
        if not steps:
            fault = selection.too_few_samples(epoch_samples, shares, rank_samples)
            raise reduction.reported_once(fault)
        with reduction.together():
            own_training = training_entries[share::shares]
            own_statistic = task.statistic(dataset, own_training)
        counted = len(own_training) if job.rank % job.ways == 0 else 0  # once per group
        samples = reduction.total(np.array(float(counted)))
        yield Data(
            experiment=experiment,
            task=task,
            source=source,
            dataset=dataset,
            training=training_entries,
            held_out=held_out[share::shares],
            validated=validated[share::shares],
            share=share,
            shares=shares,
            epoch_samples=epoch_samples,
            steps=steps,
            samples=int(samples),
            baseline=reduction.total(own_statistic * counted) / samples,
        )


def obtain(job: Job, run: RunDirectory, force: bool) -> tuple[SampleSource, Collection[str] | None]:
    """Makes sure that the samples are in `data.directory`; returns their source, and the ids to use. Collective."""
    source = source_of(job.experiment)
    preparation = Preparation(
        ranks=reduction,
        run_dir=run.path,
        layout=RankLayout(job.rank, job.ranks, reduction.local_size()),
        simulate=not job.evaluate_only,
        force=force,
        check_listed=task_of(job.experiment).check_listed,
        progress=partial(telemetry.counter, run.console),
        log_line=run.log_line,
    )
    return source, source.prepare(preparation)
