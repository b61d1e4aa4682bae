"""Run directory: it is locked against a second job, and fetched from its home."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from namsa.base import locks
from namsa.base.console import output_console
from namsa.base.errors import InputError
from namsa.base.files import folder_of_work

from ..ranks.connection import engine
from ..staging import copies
from .connect import Job

ONE_JOB = "wait for that job to end, or give this one another --run-dir"


@dataclass(frozen=True)
class RunDirectory:
    """Folder that a job writes."""

    path: Path  # the run directory
    home: Path | None  # its copy that outlives the node, if there is one
    console: Console  # the terminal; quiet on all ranks but rank 0

    @property
    def kept(self) -> Path:
        """Folder that has the results after the job."""
        return self.home or self.path

    @property
    def folders(self) -> list[Path]:
        """The run directory, then its home if there is one."""
        return [self.path, self.home] if self.home else [self.path]

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    def log_line(self, text: str) -> None:
        """Prints a line about the job."""
        self.console.print(text, highlight=False, soft_wrap=True)


@contextmanager
def open_run(
    job: Job, run_dir: Path | None, home: Path | None, lock_wait_s: float
) -> Iterator[RunDirectory]:
    """Yields the run directory, by default runs/<name>, which no other job can use inside the
    context. Collective.

    Raises InputError if another job uses it or its home.
    """
    run_dir = run_dir or Path("runs") / job.experiment.name
    with ExitStack() as stack:
        with engine().local_work():
            if job.rank == 0:
                for folder in {Path(os.path.realpath(path)) for path in (run_dir, home) if path}:
                    stack.enter_context(folder_of_work(folder))
                    _check_links(folder)
                    stack.enter_context(
                        locks.exclusive(folder / ".lock", folder, ONE_JOB, lock_wait_s)
                    )
                copies.fetch_run(home, run_dir)
        run = RunDirectory(run_dir, home, output_console(quiet=job.rank != 0))
        ranks = f"{job.ranks} rank{'s' * (job.ranks > 1)}"
        run.log_line(f"{job.experiment.name}: {ranks}, each on {job.device}; results in {run.kept}")
        yield run


def _check_links(folder: Path) -> None:
    """Raises InputError if the folder of the checkpoints is a link, which is not followed: the job
    removes old checkpoints.
    """
    checkpoints = folder / "checkpoints"
    if checkpoints.is_symlink():
        raise InputError(
            f"{checkpoints} is a link, and the job removes old checkpoints there: remove it, or "
            "give the folder that it names as part of --run-dir"
        )
