"""Run directory: it is locked against a second job, and fetched from its home."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from namsa import locks
from namsa.files import make_folder

from ..ranks import reduction
from ..staging import copies
from .connect import Job

ONE_JOB = "wait for that job to end, or give this one another --run-dir"


@dataclass(frozen=True)
class RunDirectory:
    """Where a job writes."""

    path: Path  # the run directory
    home: Path | None  # its copy that outlives the node, if there is one
    console: Console  # the terminal; quiet on all ranks but rank 0

    @property
    def kept(self) -> Path:
        """Where the results are after the job."""
        return self.home or self.path

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    def log_line(self, text: str) -> None:
        """Prints a line about the job."""
        self.console.print(text, highlight=False, soft_wrap=True)


@contextmanager
def open_run(job: Job, run_dir: Path | None, home: Path | None, lock_wait_s: float) -> Iterator[RunDirectory]:
    """Yields the run directory, by default runs/<name>, which no other job can use inside the context. Collective.

    Raises InputError if another job uses it or its home.
    """
    run_dir = run_dir or Path("runs") / job.experiment.name
    with ExitStack() as stack:
        with reduction.together():
            if job.rank == 0:
                for folder in {Path(os.path.realpath(path)) for path in (run_dir, home) if path}:
                    make_folder(folder)
                    stack.enter_context(locks.exclusive(folder / ".lock", folder, ONE_JOB, lock_wait_s))
                copies.fetch_run(home, run_dir)
        run = RunDirectory(run_dir, home, Console(quiet=job.rank != 0, markup=False))
        ranks = f"{job.ranks} rank{'s' * (job.ranks > 1)}"
        run.log_line(f"{job.experiment.name}: {ranks}, each on {job.device}; results in {run.kept}")
        yield run
