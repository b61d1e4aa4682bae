"""The job: train, estimate what that takes, supervise it, and evaluate."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from namsa import locks
from namsa.errors import InputError

from ..experiment.experiment import load
from ..program import PACKAGE
from ..ranks import supervise
from .common import as_rank, choose_backend, exit_code

# A file server that has lost a node keeps its locks for a while (NFS: 90 s), and a supervisor has restarted the job.
SUPERVISED_LOCK_WAIT_S = 300.0


def run(options: argparse.Namespace) -> int:
    """Trains, or does what --dry-run or --supervise ask for."""
    if options.supervise:
        return exit_code(lambda: _supervise(options))
    if options.dry_run:
        return _dry_run(options)
    if options.launcher or options.ranks or options.min_ranks or options.json:
        return exit_code(_refuse_options)
    return _train(
        options.config,
        options.overrides,
        options.run_dir,
        home=options.home,
        exit_code_file=options.exit_code_file,
        force=options.force,
    )


def _refuse_options() -> None:
    raise InputError("a launcher after --, --ranks and --min-ranks need --supervise; --json needs --dry-run")


def evaluate(options: argparse.Namespace) -> int:
    """Evaluates the newest checkpoint of a run."""
    return _train(options.run_dir / "config.yaml", (), options.run_dir, evaluate_only=True)


def _train(
    config: Path,
    overrides: Sequence[str],
    run_dir: Path | None,
    *,
    evaluate_only: bool = False,
    home: Path | None = None,
    exit_code_file: Path | None = None,
    force: bool = False,
) -> int:
    """Runs the main job and returns its exit code."""

    def work(_: Any) -> None:
        from .. import main

        wait_s = SUPERVISED_LOCK_WAIT_S if exit_code_file else locks.WAIT_S
        main.train(config, overrides, run_dir, evaluate_only, home, wait_s, force)

    chosen = exit_code(lambda: choose_backend(config, overrides), exit_code_file)
    return chosen or as_rank(work, exit_code_file)


def _dry_run(options: argparse.Namespace) -> int:
    """Prints what the job is expected to take."""

    def work(reduction: Any) -> None:
        from rich.console import Console
        from rich.table import Table

        experiment = load(options.config, options.overrides)
        reduction.start(experiment.training)
        from ..scaling import forecast

        estimate = forecast.forecast(experiment, options.ranks or reduction.size())
        if reduction.rank() == 0 and options.json:
            print(json.dumps(estimate))
        elif reduction.rank() == 0:
            table = Table(box=None, show_header=False)
            for row in forecast.table_rows(estimate):
                table.add_row(*row)
            Console(markup=False).print(table, highlight=False)

    return exit_code(lambda: choose_backend(options.config, options.overrides)) or as_rank(work)


def _supervise(options: argparse.Namespace) -> None:
    """Runs the job, and again if it fails; ends the process with the exit code of the last run."""
    experiment = load(options.config, options.overrides)
    run_dir = options.run_dir or Path("runs") / experiment.name
    exit_code_file = (options.home or run_dir) / ".ended.json"
    job = [sys.executable, "-m", PACKAGE, str(options.config), "--run-dir", str(run_dir), "--ended"]
    job += [str(exit_code_file), *(f"--set={override}" for override in options.overrides)]
    job += ["--home", str(options.home)] if options.home else []
    job += ["--force"] if options.force else []
    policy = supervise.RestartPolicy(options.ranks, options.min_ranks, options.fewer_by, options.max_restarts)
    run_dirs = [run_dir, *([options.home] if options.home else [])]
    code = supervise.supervise(
        lambda ranks: [*supervise.launcher_command(options.launcher, ranks), *job],
        policy,
        exit_code_file,
        lambda: supervise.progress_marker(run_dirs, experiment.data.directory),
    )
    if code:
        raise SystemExit(code)
