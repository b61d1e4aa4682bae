"""The main job, top to bottom: crystals -> samples -> network -> held-out numbers -> report.

Every rank runs these lines; rank 0 alone writes. Work that a rank does by itself stands inside `together`, where a
failure on one rank ends the job on all. Run again, the job takes up where it stopped.
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ase
import keras
import numpy as np
import tensorflow as tf
from rich.console import Console

from fcdensenet.build import build
from fcdensenet.count import count as weigh
from namsa.config.loading import config_hash, dump_yaml
from namsa.crystals.select import select
from namsa.dataset import factory, manifest
from namsa.dataset.manifest import Entry
from namsa.dataset.shards import Dataset
from namsa.dataset.simulate_entry import specimen
from namsa.errors import InputError
from namsa.files import write_text_atomic
from train.experiment.experiment import Experiment, load
from train.experiment.sections import Reduction
from train.input import batches as data
from train.measure import performance, telemetry
from train.optimization import checkpoint, precision
from train.optimization.checkpoint import Due, Progress
from train.optimization.loop import make_step, train_epoch
from train.optimization.optimizers import LarsAdam
from train.ranks import devices, reduction, signals, stalls, watchdog
from train.ranks.signals import Stopped
from train.reports.evaluate import AtomsOf, HeldOut, evaluate, predictor
from train.reports.report import write_report
from train.staging import checkpoint_delivery as courier
from train.staging import copies
from train.staging import stage as staging


def train(
    config: Path,
    overrides: Sequence[str] = (),
    run_dir: Path | None = None,
    evaluate_only: bool = False,
    home: Path | None = None,
) -> None:
    """Simulates what is missing, trains, evaluates and reports, in `run_dir` (default runs/<name>).

    `evaluate_only` takes samples and weights as they are. `home`, where `run_dir` may be lost with the node, is
    another place for what it holds: taken from there at the start, copied there at every checkpoint and at the end.
    """
    with ExitStack() as stack:
        _train(stack, config, overrides, run_dir, evaluate_only, home)


def _train(  # noqa: PLR0912, PLR0915 - one story, told in one place
    stack: ExitStack,
    config: Path,
    overrides: Sequence[str],
    run_dir: Path | None,
    evaluate_only: bool,
    home: Path | None,
) -> None:
    # ---- Ranks ------------------------------------------------------------------------------------------------------
    # They meet before anything can go wrong, so that one whose configuration is at fault can end the others.

    started = time.perf_counter()
    stop_request = stack.enter_context(signals.listen())
    reduction.start(_reduction_settings(config, overrides))
    rank, ranks = reduction.rank(), reduction.size()
    device = devices.claim(reduction.local_rank(), reduction.local_size())
    with reduction.together():
        experiment = load(config, overrides)
    reduction.check_same(config_hash(experiment), "the configuration's hash")
    training = experiment.training
    dog = stack.enter_context(watchdog.watch(reduction, training.reduction.stall_warning_s))

    # ---- Run directory ----------------------------------------------------------------------------------------------

    run_dir = run_dir or Path("runs") / experiment.name
    with reduction.together():
        if rank == 0:
            run_dir.mkdir(parents=True, exist_ok=True)
            copies.bring(home, run_dir)
    console = Console(quiet=rank != 0)
    say = partial(console.print, highlight=False, soft_wrap=True)
    say(f"{experiment.name}: {ranks} rank{'s' * (ranks > 1)}, each on {device}; results in {home or run_dir}")

    # ---- Samples: from where they are kept, or simulate what is missing ---------------------------------------------

    directory, time_box = experiment.data.directory, training.simulate_seconds
    if source := experiment.data.stage_from:
        everywhere = not experiment.data.node_local
        with telemetry.counter(console, "rank 0 stages, MiB") as count:
            staged = staging.stage(source, directory, reduction, everywhere=everywhere, on_progress=count)
        say(staging.summary(staged))
        with reduction.together():
            if rank == 0:
                write_text_atomic(run_dir / "staging.json", json.dumps(staged, indent=1))
    elif not evaluate_only:
        with reduction.together(), telemetry.counter(console, "rank 0 simulates") as count:
            nearby = reduction.local_size()
            made = factory.produce(
                experiment, directory, rank, ranks, local_size=nearby, time_limit_s=time_box, on_sample=count
            )
        say(telemetry.simulated(reduction.gather_json(made), directory))

    # ---- Data: each rank's share of the training and of the held-out materials --------------------------------------

    share, shares = rank, ranks
    if experiment.data.node_local:  # a node's ranks share what the node holds
        share, shares = reduction.local_rank(), reduction.local_size()
    with reduction.together():
        dataset = stack.enter_context(Dataset(directory))
        data.check_are_of(dataset, experiment)
        present = manifest.present(directory, dataset.ids)
        to_learn = data.limited([entry for entry in present if entry.split == "train"], training.samples)
        held_out = [entry for entry in present if entry.split != "train"]
    if not experiment.data.node_local:
        reduction.check_same(len(present), "the number of samples")
        reduction.check_same(data.digest(present), "the digest of the samples' ids")
    steps = reduction.minimum(len(to_learn) // shares // training.batch_size)
    if not steps:
        raise reduction.reported_once(InputError(data.too_few(len(to_learn), shares, training.batch_size)))
    with reduction.together():
        mine = [entry.id for entry in to_learn[share::shares]]
        mean_target = data.mean_target(dataset, mine)
    learned = reduction.total(np.array(float(len(mine))))
    mean_image = reduction.total(mean_target * len(mine)) / learned

    # ---- Network, optimizer and where they stand --------------------------------------------------------------------

    keras.utils.clear_session()  # variables are named alike whatever this process has built before
    with reduction.together(), precision.policy(training.precision.compute):
        model = build(experiment.network, experiment.seed, training.recompute)
        optimizer = precision.with_loss_scale(LarsAdam(training.optimizer), training)
        optimizer.build(model.trainable_variables)
        waiting = reduction.gradient_buffers(model.trainable_variables, training.reduction)
    state = [*model.variables, *optimizer.variables, *waiting]

    # 1. The newest whole checkpoint of this run directory or of its home, read by rank 0.
    # 2. Without one, the initial weights of the configuration's seed.
    # Then every rank takes rank 0's state, but draws its own dropout.
    progress, checkpoints = Progress(), run_dir / "checkpoints"
    with reduction.together():
        if rank == 0:
            places = [checkpoints, *([home / "checkpoints"] if home else [])]
            progress = checkpoint.restore(places, state, experiment.network)
            if evaluate_only and not progress.step:
                raise InputError(f"{checkpoints} holds no checkpoint to evaluate: train first")
            write_text_atomic(run_dir / "config.yaml", dump_yaml(experiment))  # of the run, now that it fits
    progress = Progress(**reduction.gather_json(asdict(progress))[0])
    reduction.broadcast_state(model, optimizer, waiting)
    if progress.step:
        say(resumed(progress, ranks))

    # ---- Training ---------------------------------------------------------------------------------------------------

    with reduction.together():
        step = make_step(model, optimizer, training, waiting)
    epochs = range(progress.epoch, progress.epoch if evaluate_only else training.epochs)
    ahead = f"epochs {epochs.start + 1} to {epochs.stop}, {steps} steps each" if epochs else "no epoch left to train"
    say(f"{model.count_params():,} parameters; {ahead}")
    flop = training.batch_size * weigh(experiment.network).step_flop
    account = performance.Account(flop, training.batch_size, performance.energy_meter(reduction.local_rank()))
    kept = data.Kept()
    with ExitStack() as during:
        keep, due = training.checkpoints.keep, Due(training.checkpoints)
        during.enter_context(stop_request.deferred())
        recorder = telemetry.recorder(run_dir, progress.step) if rank == 0 and epochs else nullcontext(lambda row: None)
        record = during.enter_context(recorder)
        show = during.enter_context(telemetry.display(console, training.epochs, steps))
        send = during.enter_context(courier.carrying(run_dir, home if rank == 0 else None, keep))
        during.callback(lambda: dog.enter(progress.step, stalls.IDLE))

        def save() -> None:
            if rank == 0:
                dog.enter(progress.step, stalls.WRITING)
                telemetry.settle(run_dir)
                send(checkpoint.save(checkpoints, progress, state, experiment.network, keep))
                due.done()

        batch = shares * training.batch_size  # of the common order, a step
        for epoch in epochs:
            left = reduction.minimum((len(to_learn) - progress.taken) // batch)
            number = left * training.batch_size
            order = data.epoch_share(to_learn, experiment.seed, epoch, share, shares, number, progress.taken)
            first, end, begun = progress.step + 1, progress.step + left, progress.taken / batch
            with closing(data.batches(dataset, order, experiment, epoch, kept=kept)) as read:
                batches = dog.follow(read, first)
                for row in train_epoch(step, batches, training, epoch, first, steps, ranks, state, begun, left, stop_request):
                    progress = Progress(row["step"], epoch, progress.taken + batch, ranks)
                    known = account.step(row)
                    record(known)
                    last = progress.step == end
                    show(known, last)
                    if due.within(progress) and not (last or stop_request.agreed):
                        save()
            if progress.step == end:
                progress = Progress(end, epoch + 1, 0, ranks)
            reduction.average(waiting)  # all else is alike where an epoch ends, and where a stop_request is agreed on
            if due.after(progress) or progress.epoch == epochs.stop or stop_request.agreed:
                save()
            if stop_request.agreed:
                break
    with reduction.together():
        stop_request.check()
    if stop_request.agreed:
        why = f"stopped by {stop_request.signal_name or 'a signal to another rank'} after step {progress.step}"
        raise reduction.reported_once(Stopped(f"{why}, its checkpoint is written: run again to go on"))

    # ---- Held-out materials -----------------------------------------------------------------------------------------

    facts: dict[str, Any] = {
        "ranks": ranks,
        "device": device,
        "machine": devices.processor_name(),
        "parameters": model.count_params(),
        "training_samples": int(learned),
        "epochs": progress.epoch,
        "steps": progress.step,
        "seconds": round(time.perf_counter() - started, 1),
        "performance": account.summary(reduction),
        "versions": {"tensorflow": tf.__version__} | {name: version(name) for name in ("namsa", "keras", "horovod")},
    }
    seen_as = experiment.channels()
    predict = predictor(model, training.inputs, experiment.network.data_format, seen_as)
    shared = held_out[share::shares]
    atoms_of = _specimens(experiment, say) if shared else None
    own_share = HeldOut(dataset, shared, mean_image, atoms_of)
    result = evaluate(predict, experiment, own_share, run_dir, ranks=reduction, run=facts)

    # ---- Report -----------------------------------------------------------------------------------------------------

    with reduction.together():
        if rank == 0:
            report = write_report(run_dir)
            copies.take(run_dir, home)
            console.print(telemetry.results(result, home or run_dir, report))


def resumed(progress: Progress, ranks: int) -> str:
    """What a job goes on from, and what other ranks make different."""
    text = f"resumed after step {progress.step}, {progress.epoch} whole epochs"
    if progress.taken:
        text += f" and {progress.taken} samples of the next"
    if progress.ranks not in (0, ranks):
        text += (
            f"; a run of {progress.ranks} rank{'s' * (progress.ranks > 1)} goes on with {ranks}: weights, moments, "
            "loss scale and the order of samples stay; a step's samples, dropout and the learning rate follow the ranks"
        )
    return text


def _specimens(experiment: Experiment, say: Callable[[str], None]) -> AtomsOf | None:
    """An entry's atoms, where the crystals are at hand: staged samples may have come without them."""
    try:
        materials = {material.name: material for material in select(experiment.materials)}
    except InputError as error:
        say(f"atomic columns are not measured: {error}")
        return None

    def atoms(entry: Entry) -> ase.Atoms | None:
        material = materials.get(entry.material)  # of the samples' own list, which may be another
        return specimen(experiment, material, entry).atoms if material else None

    return atoms


def _reduction_settings(config: Path, overrides: Sequence[str]) -> Reduction:
    """Horovod needs its settings to start; that the configuration is at fault is said once it has."""
    try:
        return load(config, overrides).training.reduction
    except InputError:
        return Reduction()
