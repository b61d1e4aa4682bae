"""Commands of the ranks together: train, estimate what that takes, supervise it, evaluate, profile,
and copy datasets.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from namsa.base import locks
from namsa.base.console import output_console
from namsa.base.errors import InputError, WorkError
from namsa.base.launcher import rank_and_size
from namsa.cli import command_line

from ..execution import backend
from ..experiment.experiment import load
from ..experiment.functions import allow_functions
from ..program import PACKAGE
from ..ranks import local_launcher, supervise
from ..ranks.signals import Stopped

# A file server that has lost a node keeps its locks for a while (NFS: 90 s), and a supervisor has
# restarted the job.
SUPERVISED_LOCK_WAIT_S = 300.0


def run(options: argparse.Namespace) -> int:
    """Trains, or does what --dry-run or --supervise ask for."""
    if options.supervise:
        return exit_code(lambda: _supervise(options))
    if options.dry_run:
        return _dry_run(options)
    if options.processes:
        return _run_processes(options)
    if options.launcher or options.ranks or options.min_ranks or options.json:
        return exit_code(_refuse_options)
    exit_code_file: Path | None = options.exit_code_file
    wait_s = SUPERVISED_LOCK_WAIT_S if exit_code_file else locks.WAIT_S

    def work() -> None:
        from .. import recipe

        recipe.run(
            options.config, options.overrides, options.run_dir, options.home, wait_s, options.force
        )

    return _as_job(options.config, options.overrides, work, exit_code_file)


def _run_processes(options: argparse.Namespace) -> int:
    """Starts the processes of a job under JAX on this machine, and returns its exit code."""
    if options.launcher or options.ranks or options.min_ranks or options.json:
        return exit_code(_refuse_options)
    checked = exit_code(lambda: _check_processes(options))
    return checked or local_launcher.launch(_job_command(options), options.processes)


def _check_processes(options: argparse.Namespace) -> None:
    """Raises InputError if a job cannot be started as --processes, or needs another launcher."""
    launched = rank_and_size()[1]
    if launched > 1:
        raise InputError(f"--processes starts ranks, and a launcher has started {launched}")
    configured = load(options.config, options.overrides).training.backend
    chosen = os.environ.get("KERAS_BACKEND") or configured
    if chosen != "jax":
        raise InputError(
            f"--processes {options.processes} starts processes of JAX: set training.backend to "
            f"jax, or start ranks of TensorFlow by horovodrun -np {options.processes}"
        )


def _job_command(options: argparse.Namespace) -> list[str]:
    """Returns the command line of one process of a job."""
    command = [sys.executable, "-m", PACKAGE, str(options.config)]
    command += [f"--set={override}" for override in options.overrides]
    if options.run_dir:
        command += ["--run-dir", str(options.run_dir)]
    if options.home:
        command += ["--home", str(options.home)]
    if options.force:
        command.append("--force")
    if options.exit_code_file:
        command += ["--ended", str(options.exit_code_file)]
    return command


def _refuse_options() -> None:
    raise InputError(
        "a launcher after --, --ranks and --min-ranks need --supervise; --json needs --dry-run"
    )


def evaluate(options: argparse.Namespace) -> int:
    """Evaluates the newest checkpoint of a run."""
    config: Path = options.run_dir / "config.yaml"

    def work() -> None:
        from .. import main

        main.train(config, (), options.run_dir, True)

    return _as_job(config, (), work)


def _as_job(
    config: Path,
    overrides: Sequence[str],
    work: Callable[[], None],
    exit_code_file: Path | None = None,
) -> int:
    """Runs one rank of a job, as `as_rank`, with what computes as a configuration says."""
    chosen = exit_code(lambda: choose_backend(config, overrides), exit_code_file)
    return chosen or as_rank(work, exit_code_file)


def _dry_run(options: argparse.Namespace) -> int:
    """Prints what the job is expected to take."""

    def work() -> None:
        from namsa.cli.commands.output import print_table

        from ..ranks import connection

        experiment = load(options.config, options.overrides)
        allow_functions(experiment)
        engine = connection.start(experiment.training)
        from .. import recipe
        from ..scaling import forecast
        from ..scaling.forecast_table import table_rows

        ranks = options.ranks or engine.size()
        console = output_console(quiet=engine.rank() != 0)
        stages = recipe.stages_of(options.config, options.overrides, experiment, options.run_dir)
        if len(stages) > 1 and not options.json:
            for line in recipe.expected(stages, ranks):
                console.print(line, highlight=False, soft_wrap=True)
            return
        estimates = [forecast.forecast(stage.experiment, ranks) for stage in stages]
        if options.json and engine.rank() == 0:
            print(json.dumps(estimates[0] if len(stages) == 1 else {"stages": estimates}))
        elif not options.json and engine.rank() == 0:
            print_table(table_rows(estimates[0]))

    return _as_job(options.config, options.overrides, work)


def _supervise(options: argparse.Namespace) -> None:
    """Runs the job, and again if it fails; ends the process with the exit code of the last run."""
    experiment = load(options.config, options.overrides)
    run_dir = options.run_dir or Path("runs") / experiment.name
    exit_code_file = (options.home or run_dir) / ".ended.json"
    launcher = options.launcher
    ranks = options.ranks
    if options.processes:
        if launcher or ranks:
            raise InputError("--processes takes the place of a launcher and of --ranks")
        _check_processes(options)
        ranks = options.processes
        launcher = [sys.executable, "-m", local_launcher.__name__, "{ranks}"]
    job_options = argparse.Namespace(**vars(options))
    job_options.run_dir = run_dir
    job_options.exit_code_file = exit_code_file
    job = _job_command(job_options)
    run_dirs = [run_dir]
    if options.home:
        run_dirs.append(options.home)
    policy = supervise.RestartPolicy(
        ranks, options.min_ranks, options.fewer_by, options.max_restarts
    )
    command = " ".join(supervise.launcher_command(launcher, ranks)) or "the job"
    started = f"{options.processes} processes" if options.processes else command
    print(
        f"{experiment.name}: starts {started}, which takes some seconds",
        file=sys.stderr,
        flush=True,
    )
    code = supervise.supervise(
        lambda ranks: [*supervise.launcher_command(launcher, ranks), *job],
        policy,
        exit_code_file,
        lambda: supervise.progress_marker(run_dirs, experiment.data.directory),
    )
    if code:
        raise SystemExit(code)


def exit_code(work: Callable[[], None], exit_code_file: Path | None = None) -> int:
    """Runs `work` and returns its exit code; a fault becomes one line on stderr.

    Args:
        exit_code_file: Where the supervisor of the job reads how the job ended. A job that ended
            otherwise, such as by an unexpected `OSError`, leaves nothing there and is started
            again.
    """

    def recorded() -> None:
        try:
            work()
        except (InputError, WorkError, Stopped) as error:
            supervise.write_exit_code(exit_code_file, command_line.fault_code(error))
            raise
        except KeyboardInterrupt:
            if rank_and_size()[0] == 0:
                raise KeyboardInterrupt(
                    "interrupted; run again to continue from the newest checkpoint"
                ) from None
            raise

    return command_line.exit_code(recorded, interrupted=None)


def choose_backend(config: Path, overrides: Sequence[str]) -> None:
    """Chooses what computes, as a configuration says, before this process loads it.

    Raises:
        InputError: If it is not installed, or, in a single process, if the configuration is not
            valid. Of several ranks, one reports that when they are connected.
    """
    configured = None
    try:
        configured = load(config, overrides).training.backend
    except InputError:
        if rank_and_size()[1] == 1:
            raise
    backend.choose(configured)


def as_rank(work: Callable[[], None], exit_code_file: Path | None = None) -> int:
    """Runs one rank of a job, and returns its exit code."""

    from ..ranks import connection

    def ranked() -> None:
        from ..ranks.ending import exit_without_message

        try:
            work()
            if connection.engine().rank() == 0:
                supervise.write_exit_code(exit_code_file, 0)
        except Exception as error:
            if connection.engine().lost_another_rank(error):
                raise exit_without_message(1) from None
            raise

    code = 1
    try:
        code = exit_code(ranked, exit_code_file)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
        raise
    finally:
        # After the fault's line is printed: MPI waits for the other ranks there, and they may end
        # the job.
        connection.stop(code)
    return code


def stage(options: argparse.Namespace) -> int:
    """Copies a dataset to every node's own disk."""

    def work() -> None:
        from rich.console import Console

        from ..measure import telemetry
        from ..ranks import connection
        from ..staging.stage import stage, summary

        engine = connection.start()
        console = Console(quiet=engine.rank() != 0, stderr=True)
        with telemetry.counter(console, "rank 0 stages, MiB") as count:
            staged = stage(
                options.source,
                options.target,
                engine,
                everywhere=not options.partition,
                threads=options.threads,
                on_progress=count,
            )
        if engine.rank() == 0:
            print(summary(staged), json.dumps(staged), sep="\n")

    return as_rank(work)


def keep(options: argparse.Namespace) -> None:
    """Copies home what this rank has added to a dataset."""
    from namsa.cli.commands.output import print_json

    from ..staging.copies import keep_dataset

    print_json(keep_dataset(options.source, options.target, rank_and_size()[0]))


def profile(options: argparse.Namespace) -> int:
    """Profiles some training steps, prints tables and writes them with a timeline."""

    def work() -> None:
        from ..measure import performance
        from ..profiling import tables
        from ..profiling.profile import profile
        from ..ranks import connection

        experiment = load(options.config, options.overrides)
        allow_functions(experiment)
        if rank_and_size()[1] > 1:
            # which Horovod reads when it starts; see `RankEngine.timeline`
            os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"
        engine = connection.start(experiment.training)
        machine = backend.execution().claim(engine.local_rank(), engine.local_size())
        with engine.local_work():
            network = experiment.network
            compute = experiment.training.precision.compute
            if not backend.execution().convolves(network.data_format, compute):
                raise InputError(
                    f"on this processor XLA computes {network.data_format} in {compute}, whose "
                    "operations TensorFlow's profiler does not tell: use a GPU, or set "
                    "network.data_format to channels_last"
                )
        if "core" in machine:
            machine = f"{performance.processor_name()}, {machine}"
        result = profile(experiment, options.steps, machine)
        with engine.local_work():
            if engine.rank() == 0:
                written = tables.write(result, options.out) if options.out else []
                if options.json:
                    print(
                        json.dumps(
                            {key: value for key, value in result.items() if key != "timeline"}
                        )
                    )
                else:
                    console = output_console()
                    tables.show(result, console)
                    for path in written:
                        console.print(path, highlight=False, soft_wrap=True)

    return exit_code(lambda: _choose_tensorflow(options)) or as_rank(work)


def _choose_tensorflow(options: argparse.Namespace) -> None:
    choose_backend(options.config, options.overrides)
    if backend.name() == "jax":
        raise InputError(
            "namsa-train profile reads TensorFlow's profiler: set KERAS_BACKEND=tensorflow"
        )
