"""Samples: they are staged from where they are kept, or those that are missing are simulated."""

import json
from collections.abc import Set

from namsa.dataset import factory
from namsa.dataset.sharing import RankLayout
from namsa.files import write_text_atomic

from ..measure import telemetry
from ..ranks import reduction
from ..staging import drawn_samples, stage
from ..tasks import task_of
from .connect import Job
from .run_directory import RunDirectory


def obtain(job: Job, run: RunDirectory, force: bool) -> Set[str] | None:
    """Makes sure that the samples are in `data.directory`. Collective.

    Args:
        job: The job.
        run: The run directory.
        force: Whether to simulate even if that is expected to exceed this machine's memory or 30 days.

    Returns:
        The ids of the samples to use; `None` for all that are there.
    """
    if job.experiment.data.stage_from:
        return _stage(job, run)
    if not job.evaluate_only:
        _simulate(job, run, force)
    return None


def _stage(job: Job, run: RunDirectory) -> Set[str] | None:
    """Copies samples to the disks of the nodes, each all of them or its own choice."""
    data, own_ids = job.experiment.data, None
    assert data.stage_from is not None
    staged: stage.StagedDataset
    with telemetry.counter(run.console, "rank 0 stages, MiB") as show_count:
        if data.node_samples:
            staged, own_ids = drawn_samples.stage(
                data.stage_from,
                data.directory,
                reduction,
                data.node_samples,
                job.experiment.seed,
                on_progress=show_count,
            )
        else:
            staged = stage.stage(
                data.stage_from, data.directory, reduction, everywhere=not data.node_local, on_progress=show_count
            )
    run.log_line(stage.summary(staged))
    with reduction.together():
        if job.rank == 0:
            write_text_atomic(run.path / "staging.json", json.dumps(staged, indent=1))
    return own_ids


def _simulate(job: Job, run: RunDirectory, force: bool) -> None:
    """Simulates the samples that are missing, each rank a part of them."""
    experiment, directory = job.experiment, job.experiment.data.directory
    layout = RankLayout(job.rank, job.ranks, reduction.local_size())
    with reduction.together(), telemetry.counter(run.console, "rank 0 simulates") as show_count:
        limits = factory.RunLimits.of_machine(layout.local_size, force, seconds=experiment.training.simulate_seconds)
        simulated = factory.produce(
            experiment, directory, layout, limits, on_sample=show_count, check=task_of(experiment).check_listed
        )
    run.log_line(telemetry.simulation_line(reduction.gather_json(simulated), directory))
