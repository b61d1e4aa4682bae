"""The main job, top to bottom: crystals -> samples -> network -> held-out numbers -> report.

Every rank runs these lines; only rank 0 writes. Work that a rank does alone is inside `local_work`,
where a failure of one rank ends the job on all. A job that is started again continues where it
stopped.
"""

from collections.abc import Sequence
from pathlib import Path

from namsa.base import locks

from .phases.connect import connect
from .phases.continuation import check_continuation
from .phases.evaluation import evaluate
from .phases.finished import is_finished, write_finished
from .phases.plan import plan_training
from .phases.restore import restore
from .phases.run_directory import open_run
from .phases.share import obtain, share_out
from .phases.training import train_network
from .ranks.connection import engine
from .staging import copies
from .tasks.reporting import write_report


def train(
    config: Path,  # the experiment's YAML file
    overrides: Sequence[str] = (),  # `section.key=value`, applied to the file's values
    run_dir: Path | None = None,  # the run directory; `None` for runs/<name>
    evaluate_only: bool = False,  # whether to use samples and weights as they are
    # A copy of the run directory, if `run_dir` may be lost with the node. It is read at the start,
    # and written at every checkpoint and at the end.
    home: Path | None = None,
    # time to wait for another job on the same run directory or home to end
    lock_wait_s: float = locks.WAIT_S,
    # Whether to simulate missing samples even if that is expected to exceed this machine's memory
    # or 30 days.
    force: bool = False,
) -> None:
    """Simulates missing samples, trains, evaluates and reports.

    Raises:
        InputError: If the configuration or the samples are not valid, the run directory is of
            another training, the simulation of missing
            samples is expected to exceed the memory or 30 days, or another job uses the run
            directory.
        WorkError: If training diverges or a file cannot be written.
        Stopped: If a signal has stopped the job, after its checkpoint is written.
    """
    with (
        connect(config, overrides, evaluate_only) as job,
        open_run(job, run_dir, home, lock_wait_s) as run,
    ):
        check_continuation(job, run)
        source, own_ids = obtain(job, run, force)
        with share_out(job, source, own_ids) as data:
            state = restore(job, run, data)
            with plan_training(job, run, data, state) as plan:
                train_network(job, run, data, state, plan)
            if is_finished(job, run, data, state, plan):
                return
            evaluation = evaluate(job, run, data, state, plan.account)
            with engine().local_work():
                if job.rank == 0:
                    report = write_report(run.path)
            write_finished(job, run, data, state)
            with engine().local_work():
                if job.rank == 0:
                    copies.keep_run(run.path, home)
                    run.console.print(data.task.table(evaluation, run.kept, report))
