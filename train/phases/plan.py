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
from ..networks import count, count_part
from ..optimization.loop import Step, make_step
from ..ranks.connection import engine
from ..tasks.validation import Validator
from .connect import Job
from .restore import TrainingState
from .run_directory import RunDirectory
from .share import JobData


class TrainingSamples:
    """The training samples of a job, as its source gives them. Collective: all ranks make it
    together.

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
        self.source = source
        self.cache = ReadCache(keep_views=source.keeps_views)
        self.own_part: OwnPart | None = None
        if training and (line := source.open(training)):
            log_line(line)
        if training and training.division:
            with training.ranks.local_work():
                self.own_part, line = training.division.own_part(
                    source, experiment, training.entries
                )
            log_line(line)


@dataclass(frozen=True)
class TrainingPlan:
    """Step, readers and limits that the epochs of a job have in common."""

    step: Step  # the training step
    # makes the scans that an epoch takes; see `train.tasks.task.Task.composer`
    compose: Compose | None
    samples: TrainingSamples  # where training samples are read
    validator: Validator  # the validations
    epochs: range  # the epochs that are left
    end: float  # step after which training ends within an epoch
    account: PerformanceAccount  # what the steps of this rank cost


@contextmanager
def plan_training(
    job: Job, run: RunDirectory, data: JobData, state: TrainingState
) -> Iterator[TrainingPlan]:
    """Yields the plan, whose samples are closed at the end of the context. Collective."""
    experiment = data.experiment
    training = data.experiment.training
    position = state.position
    model, optimizer, exchange, accumulation = state.assembly
    with engine().local_work():
        step = make_step(model, optimizer, training, exchange, accumulation, data.task.objective)
        score = data.task.scorer(model, data.dataset)
        compose = data.task.composer(data.dataset)
    validated = state.origin.learnt.unseen(data.validated)
    validator = Validator(experiment, data.task, score, validated, run.path, engine(), position)
    end = training.steps or math.inf
    finished = job.evaluate_only or position.step >= end or validator.reached
    epochs = range(position.epoch, position.epoch if finished else training.epochs)
    left = "no epoch left to train"
    if epochs:
        left = f"epochs {epochs.start + 1} to {epochs.stop}, {data.steps} steps each"
    if training.steps:
        left += f", until step {training.steps}"
    run.log_line(f"{model.count_params():,} parameters; {left}")
    images = data.rank_samples * experiment.images_per_sample()
    network = count(experiment.network)
    if job.split:
        network = count_part(experiment.network, training.split)
    account = PerformanceAccount(
        images * network.step_flop,
        data.rank_samples / job.ways,
        energy_meter(engine().local_rank(), engine().local_size()),
    )
    start = position.epoch, position.taken
    training_set = None
    if epochs:
        training_set = TrainingSet(
            data.dataset, data.training, start, engine(), job.split, position.ranks
        )
        # otherwise the ranks' weights are the same after some steps alone
        if exchange.averages_in_step:
            training_set = replace(training_set, stopping=job.stop_request.received)
    with closing(data.source):
        samples = TrainingSamples(data.source, experiment, training_set, run.log_line)
        yield TrainingPlan(step, compose, samples, validator, epochs, end, account)
