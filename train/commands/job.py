"""The job: train, what it would take, again where it fails, and evaluate."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from namsa.launcher import rank_and_size
from train.commands.common import as_rank, exit_code, positive
from train.experiment.experiment import load
from train.ranks import supervise


def train(arguments: Sequence[str], usage: str) -> int:
    parser = argparse.ArgumentParser(prog="python -m train", usage=usage)
    parser.add_argument("config", type=Path, metavar="CONFIG", help="an experiment's YAML")
    parser.add_argument("--set", action="append", default=[], metavar="section.key=value", dest="overrides")
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="default runs/<name of the experiment>")
    parser.add_argument("--home", type=Path, metavar="DIR", help="keep the run directory there, too: it may be lost")
    parser.add_argument("--dry-run", action="store_true", help="tell what it will take, and do nothing")
    parser.add_argument("--json", action="store_true", help="of --dry-run")
    parser.add_argument("--supervise", action="store_true", help="start again when it fails; a launcher may follow --")
    parser.add_argument("--ranks", type=positive, metavar="N", help="{ranks} in the launcher's words")
    parser.add_argument("--min-ranks", type=positive, metavar="M", help="where more keep failing (default N)")
    parser.add_argument("--fewer-by", type=positive, default=1, metavar="K", help="ranks of a node")
    parser.add_argument("--max-restarts", type=positive, default=10, metavar="R")
    parser.add_argument("--ended", type=Path, help=argparse.SUPPRESS)  # where a supervised job leaves its exit code
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    words, launcher = arguments[:cut], arguments[cut + 1 :]
    options = parser.parse_args(words)
    if options.supervise:
        return exit_code(lambda: _supervised(options, launcher))
    if options.dry_run:
        return _dry_run(options)
    if launcher or options.ranks or options.min_ranks or options.json:
        parser.error("a launcher after --, --ranks and --min-ranks need --supervise; --json needs --dry-run")
    return _job(options.config, options.overrides, options.run_dir, False, options.home, options.ended)


def evaluate(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m train evaluate")
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    run_dir = parser.parse_args(arguments).run_dir
    return _job(run_dir / "config.yaml", (), run_dir, True)


def _job(
    config: Path,
    overrides: Sequence[str],
    run_dir: Path | None,
    evaluate_only: bool,
    home: Path | None = None,
    ended: Path | None = None,
) -> int:
    def check() -> None:
        if rank_and_size()[1] == 1:
            load(config, overrides)  # alone, a fault need not wait until TensorFlow is there

    def work(_: Any) -> None:
        from train import main

        main.train(config, overrides, run_dir, evaluate_only, home)

    return exit_code(check, ended) or as_rank(work, ended)


def _dry_run(options: argparse.Namespace) -> int:
    def work(reduction: Any) -> None:
        from rich.console import Console
        from rich.table import Table

        experiment = load(options.config, options.overrides)
        reduction.start(experiment.training.reduction)
        from train.scaling import forecast

        found = forecast.forecast(experiment, options.ranks or reduction.size())
        if reduction.rank() == 0 and options.json:
            print(json.dumps(found))
        elif reduction.rank() == 0:
            table = Table(box=None, show_header=False)
            for row in forecast.rows(found):
                table.add_row(*row)
            Console().print(table, highlight=False)

    return as_rank(work)


def _supervised(options: argparse.Namespace, words: Sequence[str]) -> None:
    experiment = load(options.config, options.overrides)
    run_dir = options.run_dir or Path("runs") / experiment.name
    ended = (options.home or run_dir) / ".ended.json"
    job = [sys.executable, "-m", "train", str(options.config), "--run-dir", str(run_dir), "--ended", str(ended)]
    job += [f"--set={each}" for each in options.overrides]
    job += ["--home", str(options.home)] if options.home else []
    policy = supervise.RestartPolicy(options.ranks, options.min_ranks, options.fewer_by, options.max_restarts)
    places = [run_dir, *([options.home] if options.home else [])]
    code = supervise.supervise(
        lambda ranks: [*supervise.launcher_command(words, ranks), *job],
        policy,
        ended,
        lambda: supervise.progress_marker(places, experiment.data.directory),
    )
    if code:
        raise SystemExit(code)
