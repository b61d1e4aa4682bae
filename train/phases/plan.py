"""Plan: the training step, where it reads its samples, and the epochs that are left."""

import math
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from ..experiment.experiment import Experiment
from ..input.division import OwnPart
from ..input.source import SampleSource, TrainingSet
from ..input.views import Compose, ReadCache
from ..measure.performance import PerformanceAccount, energy_meter
from ..networks import count
from ..optimization.loop import Step, make_step
from ..ranks import reduction
from ..tasks.validation import Validation
from .connect import Job
from .restore import TrainingState
from .run_directory import RunDirectory
from .share import Data


class TrainingSamples:
    """The training samples of a job, as its source gives them. Collective: all ranks make it together.

    Args:
        training: The samples that are trained on; `None` if no epoch is left to train.

    Attributes:
        source: See above.
        own_part: Reads this rank's part of a sample alone; `None` for whole samples.
        cache: What is kept between epochs.

    Raises:
        InputError: As of `SampleSource.open`.
    """

    def __init__(
        self,
        source: SampleSource,
        experiment: Experiment,
        training: TrainingSet | None,
        log_line: Callable[[str], None],
    ) -> None:
        self.source, self.cache = source, ReadCache(keep_views=source.keeps_views)
        self.own_part: OwnPart | None = None
        if training and (line := source.open(training)):
            log_line(line)
        if training and training.division:
            with training.ranks.together():
                self.own_part, line = training.division.own_part(source, experiment, training.entries)
            log_line(line)


@dataclass(frozen=True)
class TrainingPlan:
    """What the epochs of a job have in common."""

    step: Step  # the training step
    compose: Compose | None  # makes the scans that an epoch takes; see `train.tasks.task.Task.composer`
    samples: TrainingSamples  # where training samples are read
    validation: Validation  # the validations
    epochs: range  # the epochs that are left
    end: float  # step after which training ends within an epoch
    account: PerformanceAccount  # what the steps of this rank cost


@contextmanager
def plan_training(job: Job, run: RunDirectory, data: Data, state: TrainingState) -> Iterator[TrainingPlan]:
    """Yields the plan, whose samples are closed at the end of the context. Collective."""
    experiment, training, position = data.experiment, data.experiment.training, state.position
    model, optimizer, exchange, accumulation = state.assembly
    with reduction.together():
        step = make_step(model, optimizer, training, exchange, accumulation, data.task.objective)
        score, compose = data.task.scorer(model, data.dataset), data.task.composer(data.dataset)
    validation = Validation(experiment, data.task, score, data.validated, run.path, reduction, position)
    end = training.steps or math.inf
    finished = job.evaluate_only or position.step >= end or validation.reached
    epochs = range(position.epoch, position.epoch if finished else training.epochs)
    left = f"epochs {epochs.start + 1} to {epochs.stop}, {data.steps} steps each"
    until = f", until step {training.steps}" if training.steps else ""
    run.log_line(f"{model.count_params():,} parameters; {left if epochs else 'no epoch left to train'}{until}")
    images, axis = data.rank_samples * experiment.images_per_sample(), job.split.axis if job.split else 0
    account = PerformanceAccount(
        images * count(experiment.network, ways=job.ways, axis=axis).step_flop,
        data.rank_samples / job.ways,
        energy_meter(reduction.local_rank(), reduction.local_size()),
    )
    first = position.epoch, position.taken
    training_set = None
    if epochs:
        training_set = TrainingSet(data.dataset, data.training, first, reduction, job.split, position.ranks)
        if exchange.averages_in_step:  # otherwise the ranks' weights are the same after some steps alone
            training_set = replace(training_set, stopping=job.stop_request.received)
    with closing(data.source):
        samples = TrainingSamples(data.source, experiment, training_set, run.log_line)
        yield TrainingPlan(step, compose, samples, validation, epochs, end, account)
