"""Datasets between a file system that all nodes share and each node's own disk."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from namsa.launcher import rank_and_size
from train.commands.common import as_rank, exit_code, positive
from train.experiment.sections import Reduction


def stage(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m train stage")
    parser.add_argument("source", type=Path, metavar="FROM", help="a dataset on a file system that all nodes share")
    parser.add_argument("target", type=Path, metavar="TO", help="a folder of each node's own")
    parser.add_argument(
        "--partition", action="store_true", help="each shard to one node, in place of all to every node"
    )
    parser.add_argument("--threads", type=positive, default=8, metavar="N", help="that read at once, in each rank")
    options = parser.parse_args(arguments)

    def work(reduction: Any) -> None:
        from rich.console import Console

        from train.measure import telemetry
        from train.staging import stage as staging

        reduction.start(Reduction())
        console = Console(quiet=reduction.rank() != 0, stderr=True)
        with telemetry.counter(console, "rank 0 stages, MiB") as count:
            staged = staging.stage(
                options.source,
                options.target,
                reduction,
                everywhere=not options.partition,
                threads=options.threads,
                on_progress=count,
            )
        if reduction.rank() == 0:
            print(staging.summary(staged), json.dumps(staged), sep="\n")

    return as_rank(work)


def keep(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m train keep")
    parser.add_argument("source", type=Path, metavar="FROM", help="the dataset's folder on this node's own disk")
    parser.add_argument("target", type=Path, metavar="TO", help="where the dataset is kept")
    options = parser.parse_args(arguments)
    from train.staging import copies

    def work() -> None:
        print(json.dumps(copies.keep(options.source, options.target, rank_and_size()[0])))

    return exit_code(work)
