"""Samples: their source brings them to data.directory."""

from collections.abc import Collection
from functools import partial

from namsa.dataset.sharing import RankLayout

from ..input.source import Preparation, SampleSource, source_of
from ..measure import telemetry
from ..ranks import reduction
from ..tasks import task_of
from .connect import Job
from .run_directory import RunDirectory


def obtain(job: Job, run: RunDirectory, force: bool) -> tuple[SampleSource, Collection[str] | None]:
    """Makes sure that the samples are in `data.directory`. Collective.

    Returns:
        The source of the samples, and the ids of those to use; `None` for all that are there.
    """
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
