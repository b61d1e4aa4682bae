"""Training: epochs of steps, with validations and checkpoints between them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, nullcontext
from functools import partial
from typing import Any, cast

import numpy as np

from ..input import batches
from ..input.source import NoMoreSamples
from ..measure import rows, telemetry
from ..measure.results import StepRow
from ..optimization import checkpoint
from ..optimization.checkpoint import CheckpointSchedule, TrainingPosition
from ..optimization.loop import EpochPlan, train_epoch
from ..optimization.origin import LearntMaterials
from ..ranks import stalls
from ..ranks.connection import engine
from ..ranks.signals import Stopped
from ..staging import checkpoint_delivery
from .connect import Job
from .plan import TrainingPlan
from .restore import TrainingState
from .run_directory import RunDirectory
from .share import JobData


def train_network(
    job: Job, run: RunDirectory, data: JobData, state: TrainingState, plan: TrainingPlan
) -> None:
    """Trains until the last epoch or step, or until a validation or a signal ends the training.
    Collective.

    Raises:
        WorkError: If training diverges or a file cannot be written.
        Stopped: If a signal has stopped the job, after its checkpoint is written.
    """
    with _Training(job, run, data, state, plan) as training:
        for epoch in plan.epochs:
            training.take_steps(epoch)
            if training.end_epoch(epoch):
                break
    plan.account.end()
    with engine().local_work():
        job.stop_request.check()
    if job.stop_request.agreed:
        by = job.stop_request.signal_name or "a signal to another rank"
        why = f"stopped by {by} after step {state.position.step}"
        raise engine().reported_once(
            Stopped(f"{why}, its checkpoint is written: run again to continue")
        )


class _Training(ExitStack):
    """The epochs of a job, and the files that they write. All ranks call the methods."""

    def __init__(
        self, job: Job, run: RunDirectory, data: JobData, state: TrainingState, plan: TrainingPlan
    ) -> None:
        super().__init__()
        self.job = job
        self.run = run
        self.data = data
        self.state = state
        self.plan = plan
        self.config = data.experiment.training
        self.schedule = CheckpointSchedule(self.config.checkpoints)
        if plan.epochs:
            learnt = _learnt_by_all(data)
            state.origin = state.origin.having_learnt(learnt)

    def __enter__(self) -> "_Training":
        """Opens the files. Signals wait for the end of a step from now on."""
        super().__enter__()
        job = self.job
        run = self.run
        step = self.state.position.step
        writes = job.rank == 0 and self.plan.epochs
        self.enter_context(job.stop_request.deferred())
        self.record = self.enter_context(
            telemetry.recorder(run.path, step) if writes else nullcontext(None)
        )
        if self.record:
            telemetry.drop_rows_after(run.path / rows.TRANSFERS, step)
        terms = self.data.task.objective.terms
        self.show = self.enter_context(
            telemetry.epoch_display(
                run.console, self.config.epochs, self.data.steps, terms, self.plan.end
            )
        )
        home = run.home if job.rank == 0 else None
        self.deliver = self.enter_context(
            checkpoint_delivery.background_delivery(run.path, home, self.config.checkpoints.keep)
        )
        self.writer = self.enter_context(checkpoint.background_writer())
        self.callback(lambda: job.watchdog.enter(self.state.position.step, stalls.IDLE))
        return self

    def take_steps(self, epoch: int) -> None:
        """Takes the steps of an epoch, or those that are left of it, and writes checkpoints that
        are due within it.
        """
        state = self.state
        taken_per_step = self.data.step_samples
        left = engine().minimum((self.data.epoch_samples - state.position.taken) // taken_per_step)
        epoch_end = state.position.step + left
        last_step = int(min(epoch_end, self.plan.end))
        for row in self._rows(epoch, last_step - state.position.step):
            taken = state.position.taken + taken_per_step
            state.position = TrainingPosition(row["step"], epoch, taken, self.job.groups)
            source = self.plan.samples.source.numbers()
            measured = cast(StepRow, {**self.plan.account.add(row), **source})
            last = row["step"] == last_step
            if self.record:
                self.record(measured)
            self.show(measured, last)
            self.writer.check()
            if self.schedule.due_within_epoch(state.position) and not (
                last or self.job.stop_request.agreed
            ):
                self.save()
        if state.position.step == epoch_end:
            state.position = TrainingPosition(epoch_end, epoch + 1, 0, self.job.groups)

    def _rows(self, epoch: int, steps: int) -> Iterator[StepRow]:
        """Reads this rank's batches of so many steps of an epoch, and takes the steps."""
        data = self.data
        plan = self.plan
        position = self.state.position
        split = self.job.split
        source = plan.samples.source
        count = steps * data.rank_samples
        own_entries = source.epoch_entries(
            data.training, epoch, data.share, data.shares, count, position.taken
        )
        read = batches.batches(
            data.task.readable(source),
            own_entries,
            data.experiment,
            epoch,
            cache=plan.samples.cache,
            target=data.task.target,
            compose=plan.compose,
            take_part=split.take_part if split else None,
            own_part=plan.samples.own_part,
        )
        epoch_plan = EpochPlan(
            epoch=epoch,
            first_step=position.step + 1,
            steps=data.steps,
            ranks=self.job.groups,
            steps_done=position.taken / data.step_samples,
            steps_left=steps,
        )
        with ExitStack() as stack:
            stack.enter_context(closing(read))
            stack.callback(source.release)
            followed = self.job.watchdog.follow(read, position.step + 1, self.config.accumulate)
            yield from train_epoch(
                plan.step,
                self._until_stopped(followed) if source.waits else followed,
                self.config,
                epoch_plan,
                exchange=self.state.assembly.exchange,
                stop_request=self.job.stop_request,
                accumulation=self.state.assembly.accumulation,
                objective=data.task.objective,
            )

    def _until_stopped(self, read: Iterator[Any]) -> Iterator[Any]:
        """Yields batches until a rank that is asked to stop no longer waits for its own. The ranks
        agree on each.
        """
        while True:
            try:
                batch = next(read)
            except NoMoreSamples:
                batch = None
            if self.state.assembly.exchange.averages_in_step and not engine().minimum(
                batch is not None
            ):
                self.job.stop_request.agreed = True
                return
            yield batch

    def end_epoch(self, epoch: int) -> bool:
        """Validates and writes a checkpoint, if they are due. Returns whether training ends
        here.
        """
        state = self.state
        plan = self.plan
        is_complete = state.position.epoch > epoch
        transfers = state.assembly.exchange.end_epoch(state.position.step, epoch, is_complete)
        if transfers and self.job.rank == 0:
            rows.append(self.run.path / rows.TRANSFERS, transfers)
        plan.samples.source.end_epoch()
        if is_complete and plan.validator.due(state.position):
            self.validate()
        ended = (
            self.job.stop_request.agreed
            or state.position.step >= plan.end
            or plan.validator.reached
        )
        last = state.position.epoch == plan.epochs.stop
        if ended or last or self.schedule.due_after_epoch(state.position):
            self.save()
        return ended

    def validate(self) -> None:
        """Scores the dev split."""
        self.job.watchdog.enter(self.state.position.step, stalls.IDLE)
        validated = self.plan.validator.run(
            self.state.position, self.state.assembly.exchange.state(), self.state.origin
        )
        if validated and self.record:
            self.record.validated(validated)
        if validated:
            self.run.log_line(telemetry.validation_line(validated))

    def save(self) -> None:
        """Copies the state, and writes it as a checkpoint behind the training."""
        exchange = self.state.assembly.exchange
        of_ranks = exchange.state_of_ranks()
        variables = exchange.state()
        if self.job.rank == 0:
            self.job.watchdog.enter(self.state.position.step, stalls.WRITING)
            telemetry.sync_metrics(self.run.path)
            self.writer.start(
                partial(self._write, self.state.position, checkpoint.copied(variables), of_ranks)
            )
            self.schedule.record_written()

    def _write(
        self,
        position: TrainingPosition,
        variables: Sequence[checkpoint.HostVariable],
        of_ranks: Sequence[np.ndarray],
    ) -> None:
        """Writes a checkpoint, and delivers it home."""
        network = self.data.experiment.network
        keep = self.config.checkpoints.keep
        self.deliver(
            checkpoint.save(
                self.run.checkpoints,
                position,
                variables,
                network,
                keep,
                of_ranks,
                self.state.origin,
            )
        )


def _learnt_by_all(data: JobData) -> LearntMaterials:
    """Returns the materials that the ranks learn from now on. Collective."""
    rank_materials = LearntMaterials.of(data.source.formulas_learnt(data.training))
    if not data.experiment.data.source.per_node:
        return rank_materials
    learnt = LearntMaterials()
    for of_rank in engine().gather_json(rank_materials.to_json()):
        learnt = learnt.joined(LearntMaterials.from_json(of_rank))
    return learnt
