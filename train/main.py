"""The main job, top to bottom: crystals -> samples -> network -> held-out numbers -> report.

Every rank runs these lines; only rank 0 writes. Work that a rank does alone is inside `together`, where a failure of
one rank ends the job on all. A job that is started again continues where it stopped.
"""

import json
import math
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import cast

import numpy as np
import tensorflow as tf
from rich.console import Console

from namsa import locks
from namsa.config.loading import config_hash, dump_yaml
from namsa.dataset import factory, manifest
from namsa.dataset.shards import Dataset
from namsa.dataset.sharing import RankLayout
from namsa.errors import InputError
from namsa.files import make_folder, write_text_atomic

from .apply.models import load_model
from .experiment.experiment import load
from .experiment.reduction import Reduction
from .input import batches, selection
from .input.samples import TrainingSamples
from .measure import telemetry, transfer_rows
from .measure.energy import energy_meter
from .measure.performance import PerformanceAccount
from .measure.results import RunFacts
from .networks import count
from .optimization import checkpoint, local_sgd, own_moments
from .optimization.assembly import assemble
from .optimization.checkpoint import CheckpointSchedule, TrainingPosition
from .optimization.initial_weights import take_weights
from .optimization.loop import EpochPlan, make_step, train_epoch
from .ranks import devices, hybrid, reduction, signals, stalls
from .ranks.signals import Stopped
from .ranks.split import rank_split
from .ranks.watchdog import watch
from .staging import checkpoint_delivery, drawn_samples, home_copies, stage
from .tasks import task_of
from .tasks.reporting import facts_of_steps, write_report
from .tasks.task import Answers
from .tasks.validation import Validation

ONE_JOB = "wait for that job to end, or give this one another --run-dir"


def train(
    config: Path,
    overrides: Sequence[str] = (),
    run_dir: Path | None = None,
    evaluate_only: bool = False,
    home: Path | None = None,
    lock_wait_s: float = locks.WAIT_S,
    force: bool = False,
) -> None:
    """Simulates missing samples, trains, evaluates and reports.

    Args:
        config: The experiment's YAML file.
        overrides: `section.key=value`, applied to the file's values.
        run_dir: The run directory; `None` for runs/<name>.
        evaluate_only: Whether to use samples and weights as they are.
        home: A copy of the run directory, if `run_dir` may be lost with the node. It is read at the start, and written
            at every checkpoint and at the end.
        lock_wait_s: Time to wait for another job on the same run directory or home to end.
        force: Whether to simulate missing samples even if that is expected to exceed this machine's memory or 30 days.

    Raises:
        InputError: If the configuration or the samples are not valid, the simulation of missing samples is expected to
            exceed the memory or 30 days, or another job uses the run directory.
        WorkError: If training diverges or a file cannot be written.
        Stopped: If a signal has stopped the job, after its checkpoint is written.
    """
    with ExitStack() as stack:
        _train(stack, config, overrides, run_dir, evaluate_only, home, lock_wait_s, force)


def _train(  # noqa: PLR0912, PLR0915 - one story, told in one place
    stack: ExitStack,
    config: Path,
    overrides: Sequence[str],
    run_dir: Path | None,
    evaluate_only: bool,
    home: Path | None,
    lock_wait_s: float,
    force: bool,
) -> None:
    # ---- Ranks ------------------------------------------------------------------------------------------------------
    # They connect before anything can fail, so that a rank whose configuration is not valid can end the others.

    started = time.perf_counter()
    stop_request = stack.enter_context(signals.listen())
    process_set = reduction.start(*_reduction_settings(config, overrides))
    rank, ranks = reduction.rank(), reduction.size()
    device = devices.claim(reduction.local_rank(), reduction.local_size())
    with reduction.together():
        experiment = load(config, overrides)
        devices.check_data_format(experiment.network.data_format)
    reduction.check_same(config_hash(experiment), "the configuration's hash")
    training = experiment.training
    hosts = reduction.nodes()
    with reduction.together():
        hybrid.check_hosts(training.reduction, hosts)
    # Evaluation keeps no maps for a backward pass: one process evaluates whole samples.
    split = None if evaluate_only and ranks == 1 else rank_split(training.split, process_set)
    # A group of ranks that divide samples is one rank where samples and rates are shared out.
    ways, part = (split.ways, split.part) if split else (1, 0)
    group, groups = rank // ways, ranks // ways
    stall_warning_s, radix = training.reduction.stall_warning_s, training.reduction.watchdog_radix
    watchdog = stack.enter_context(watch(reduction, stall_warning_s, radix))

    # ---- Run directory ----------------------------------------------------------------------------------------------

    run_dir = run_dir or Path("runs") / experiment.name
    with reduction.together():
        if rank == 0:
            for folder in {Path(os.path.realpath(path)) for path in (run_dir, home) if path}:
                make_folder(folder)
                stack.enter_context(locks.exclusive(folder / ".lock", folder, ONE_JOB, lock_wait_s))
            home_copies.fetch_run(home, run_dir)
    console = Console(quiet=rank != 0, markup=False)
    log_line = partial(console.print, highlight=False, soft_wrap=True)
    log_line(f"{experiment.name}: {ranks} rank{'s' * (ranks > 1)}, each on {device}; results in {home or run_dir}")

    # ---- Samples: stage them from where they are kept, or simulate those that are missing ---------------------------

    directory, own_ids = experiment.data.directory, None  # of the samples to use; None: all that are there
    if source := experiment.data.stage_from:
        everywhere, drawn = not experiment.data.node_local, experiment.data.node_samples
        staged: stage.StagedDataset
        with telemetry.counter(console, "rank 0 stages, MiB") as show_count:
            if drawn:
                staged, own_ids = drawn_samples.stage(
                    source, directory, reduction, drawn, experiment.seed, on_progress=show_count
                )
            else:
                staged = stage.stage(source, directory, reduction, everywhere=everywhere, on_progress=show_count)
        log_line(stage.summary(staged))
        with reduction.together():
            if rank == 0:
                write_text_atomic(run_dir / "staging.json", json.dumps(staged, indent=1))
    elif not evaluate_only:
        layout = RankLayout(rank, ranks, reduction.local_size())
        with reduction.together(), telemetry.counter(console, "rank 0 simulates") as show_count:
            limits = factory.RunLimits.of_machine(layout.local_size, force, seconds=training.simulate_seconds)
            simulated = factory.produce(
                experiment, directory, layout, limits, on_sample=show_count, check=task_of(experiment).check_listed
            )
        log_line(telemetry.simulation_line(reduction.gather_json(simulated), directory))

    # ---- Data: each rank's share of the training and of the held-out materials --------------------------------------

    share, shares = group, groups
    if experiment.data.node_local:  # a node's ranks share the samples of the node
        share, shares = reduction.local_rank(), reduction.local_size()
    with reduction.together():
        dataset = stack.enter_context(Dataset(directory))
        selection.check_configuration(dataset, experiment)
        present = manifest.present(directory, dataset.ids if own_ids is None else own_ids)
        experiment = task_of(experiment).resolve(present, dataset)
        task, training = task_of(experiment, split), experiment.training
        usable = task.usable(present)
        training_entries = selection.limit([entry for entry in usable if entry.split == "train"], training.samples)
        held_out_entries = task.held_out(training_entries, [entry for entry in usable if entry.split != "train"])
        dev_entries = [entry for entry in usable if entry.split == "dev"]
        validated_entries = selection.limit(dev_entries, training.validation.samples)
    reduction.check_same(config_hash(experiment), "what the configuration takes from the samples, as names of classes")
    if not experiment.data.node_local:
        reduction.check_same(len(present), "the number of samples")
        reduction.check_same(selection.digest_ids(present), "the digest of the samples' ids")
    rank_samples = training.batch_size * training.accumulate  # of one rank in one step
    steps = reduction.minimum(len(training_entries) // shares // rank_samples)
    if not steps:
        fault = selection.too_few_samples(len(training_entries), shares, rank_samples)
        raise reduction.reported_once(fault)
    with reduction.together():
        own_training = training_entries[share::shares]
        own_statistic = task.statistic(dataset, own_training)
    counted = len(own_training) if part == 0 else 0  # once per group
    training_samples = reduction.total(np.array(float(counted)))
    baseline = reduction.total(own_statistic * counted) / training_samples

    # ---- Network, optimizer and their state -------------------------------------------------------------------------

    with reduction.together():
        network, seed = experiment.network, experiment.seed
        assembly = assemble(network, seed, training, ranks, task.objective, split, rank)
    model, optimizer, buffers, accumulation, state, shards = assembly

    # 1. Rank 0 reads the newest checkpoint of this run directory or of its home that is not broken.
    # 2. Without a checkpoint, the state is the initial weights of the configuration's seed, or of another network.
    # 3. Every rank takes rank 0's state, but draws its own dropout, and with local SGD may have its own moments.
    position, checkpoints = TrainingPosition(), run_dir / "checkpoints"
    own = local_sgd.own(optimizer, training.reduction)  # moments that this rank keeps for itself
    moments_of_others: list[np.ndarray] = []  # on rank 0, those of the ranks after it
    whole = shards.blank() if shards else state
    with reduction.together():
        if rank == 0:
            directories = [checkpoints, *([home / "checkpoints"] if home else [])]
            position = checkpoint.restore(directories, whole, experiment.network, moments_of_others)
            if evaluate_only and not position.step:
                raise InputError(f"{checkpoints} holds no checkpoint to evaluate: train first")
            if training.start_from and not position.step:
                initial = load_model(training.start_from)
                others = take_weights(initial.weights, model.variables)
                log_line(_start_line(initial.weights, len(model.variables), others))
            write_text_atomic(run_dir / "config.yaml", dump_yaml(experiment))  # only now: the checkpoint fits it
    position = TrainingPosition(**reduction.gather_json(asdict(position))[0])
    reduction.broadcast_state(model, shards or optimizer, buffers)
    kept_moments = own_moments.distribute(own, moments_of_others)
    if shards and position.step:
        shards.hand_out(whole)
    elif shards:
        shards.begin()
    del whole  # with shards, rank 0's memory is again that of its part
    if position.step:
        log_line(checkpoint.resumption_line(position, groups, bool(own) and not kept_moments))

    # ---- Training ---------------------------------------------------------------------------------------------------

    with reduction.together():
        step = make_step(model, optimizer, training, buffers, accumulation, task.objective, shards)
        score, compose = task.scorer(model, dataset), task.composer(dataset)
        averaged = local_sgd.averaged(model, optimizer, training.reduction)
    validation = Validation(experiment, task, score, validated_entries[share::shares], run_dir, reduction, position)
    end = training.steps or math.inf  # step after which training ends within an epoch
    finished = evaluate_only or position.step >= end or validation.reached
    epochs = range(position.epoch, position.epoch if finished else training.epochs)
    todo = f"epochs {epochs.start + 1} to {epochs.stop}, {steps} steps each" if epochs else "no epoch left to train"
    until = f", until step {training.steps}" if training.steps else ""
    log_line(f"{model.count_params():,} parameters; {todo}{until}")
    images = rank_samples * experiment.images_per_sample()
    step_flop = images * count(network, ways=ways, axis=split.axis if split else 0).step_flop
    account = PerformanceAccount(
        step_flop, rank_samples / ways, energy_meter(reduction.local_rank(), reduction.local_size())
    )
    first = (position.epoch, position.taken) if epochs else None
    samples = TrainingSamples(dataset, experiment, training_entries, split, reduction, first, log_line)
    stack.callback(samples.close)
    with ExitStack() as during:
        keep, schedule = training.checkpoints.keep, CheckpointSchedule(training.checkpoints)
        during.enter_context(stop_request.deferred())
        recorder = telemetry.recorder(run_dir, position.step) if rank == 0 and epochs else nullcontext(None)
        record = during.enter_context(recorder)
        if record:
            telemetry.drop_rows_after(run_dir / transfer_rows.FILE_NAME, position.step)
        show = during.enter_context(telemetry.epoch_display(console, training.epochs, steps, task.objective.terms))
        own_home = home if rank == 0 else None
        deliver = during.enter_context(checkpoint_delivery.background_delivery(run_dir, own_home, keep))
        during.callback(lambda: watchdog.enter(position.step, stalls.IDLE))

        def save() -> None:
            moments_of_others = own_moments.gather(own)
            kept = shards.gather() if shards else state
            if rank == 0:
                watchdog.enter(position.step, stalls.WRITING)
                telemetry.sync_metrics(run_dir)
                deliver(checkpoint.save(checkpoints, position, kept, experiment.network, keep, moments_of_others))
                schedule.record_written()

        step_samples = shares * rank_samples  # that a step takes of the common order
        for epoch in epochs:
            steps_left = reduction.minimum((len(training_entries) - position.taken) // step_samples)
            epoch_end = position.step + steps_left
            last_step = int(min(epoch_end, end))
            steps_left = last_step - position.step
            plan = EpochPlan(
                epoch=epoch,
                first_step=position.step + 1,
                steps=steps,
                ranks=groups,
                steps_done=position.taken / step_samples,
                steps_left=steps_left,
            )
            own_count = steps_left * rank_samples
            own_entries = selection.epoch_share(
                training_entries, experiment.seed, epoch, share, shares, count=own_count, taken=position.taken
            )
            read = batches.batches(
                task.readable(samples.readable),
                own_entries,
                experiment,
                epoch,
                cache=samples.cache,
                target=task.target,
                compose=compose,
                take_part=split.take_part if split else None,
                own_part=samples.own_part,
            )
            with closing(read):
                followed = watchdog.follow(read, plan.first_step, training.accumulate)
                rows = train_epoch(
                    step,
                    followed,
                    training,
                    plan,
                    averaged=averaged,
                    stop_request=stop_request,
                    accumulation=accumulation,
                    objective=task.objective,
                )
                for row in rows:
                    position = TrainingPosition(row["step"], epoch, position.taken + step_samples, groups)
                    measured = account.add(row)
                    if record:
                        record(measured)
                    last = position.step == last_step
                    show(measured, last)
                    if schedule.due_within_epoch(position) and not (last or stop_request.agreed):
                        save()
            if position.step == epoch_end:
                position = TrainingPosition(epoch_end, epoch + 1, 0, groups)
            # All state but their own moments is the same on all ranks at the end of an epoch, and where they agree on a
            # request.
            reduction.average(buffers)
            samples.end_epoch(reduction)
            if shards and position.step == epoch_end:
                transfers = shards.end_epoch(position.step, epoch)
                if rank == 0:
                    transfer_rows.append(run_dir, transfers)
            if validation.due(position):
                watchdog.enter(position.step, stalls.IDLE)
                validated = validation.run(position, shards.gather() if shards else state)
                if validated and record:
                    record.validated(validated)
                if validated:
                    log_line(telemetry.validation_line(validated))
            ended = stop_request.agreed or position.step >= end or validation.reached
            if ended or schedule.due_after_epoch(position) or position.epoch == epochs.stop:
                save()
            if ended:
                break
    account.end()
    with reduction.together():
        stop_request.check()
    samples.close()
    if stop_request.agreed:
        why = f"stopped by {stop_request.signal_name or 'a signal to another rank'} after step {position.step}"
        raise reduction.reported_once(Stopped(f"{why}, its checkpoint is written: run again to go on"))

    # ---- Held-out materials -----------------------------------------------------------------------------------------

    facts: RunFacts = {
        "ranks": ranks,
        "device": device,
        "machine": devices.processor_name(),
        "parameters": model.count_params(),
        "training_samples": int(training_samples),
        "epochs": position.epoch,
        "steps": position.step,
        "seconds": round(time.perf_counter() - started, 1),
        "performance": account.summary(reduction),
        "versions": {"tensorflow": tf.__version__} | {name: version(name) for name in ("namsa", "keras", "horovod")},
    }
    with reduction.together():
        earlier = facts_of_steps(run_dir) if rank == 0 and not facts["performance"] else {}
    facts = cast(RunFacts, facts | reduction.gather_json(earlier)[0])
    # A run directory's own configuration, as `evaluate` takes, must not run a generator's Python code.
    answers = Answers(model, dataset, held_out_entries[share::shares], baseline, not evaluate_only, log_line)
    evaluation = task.evaluate(answers, run_dir, ranks=reduction, run=facts)

    # ---- Report -----------------------------------------------------------------------------------------------------

    with reduction.together():
        if rank == 0:
            report = write_report(run_dir)
            home_copies.keep_run(run_dir, home)
            console.print(task.table(evaluation, home or run_dir, report))


def _start_line(weights: Path, count: int, others: Sequence[str]) -> str:
    """Says how many variables start from another network's, and which do not."""
    left = f"; at random: {', '.join(others[:4])}{', ...' if len(others) > 4 else ''}" if others else ""
    return f"{count - len(others)} of {count} variables start from {weights}{left}"


def _reduction_settings(config: Path, overrides: Sequence[str]) -> tuple[Reduction, int]:
    """Returns what Horovod needs to start. A configuration that is not valid is reported afterwards."""
    try:
        training = load(config, overrides).training
    except InputError:
        return Reduction(), 1
    return training.reduction, training.split.ways
