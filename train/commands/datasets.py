"""Datasets between a file system that all nodes share and each node's own disk."""

import argparse
import json
from typing import Any

from namsa.launcher import rank_and_size

from .common import as_rank


def stage(options: argparse.Namespace) -> int:
    """Copies a dataset to every node's own disk."""

    def work(reduction: Any) -> None:
        from rich.console import Console

        from ..measure import telemetry
        from ..staging.stage import stage, summary

        reduction.start()
        console = Console(quiet=reduction.rank() != 0, stderr=True)
        with telemetry.counter(console, "rank 0 stages, MiB") as count:
            staged = stage(
                options.source,
                options.target,
                reduction,
                everywhere=not options.partition,
                threads=options.threads,
                on_progress=count,
            )
        if reduction.rank() == 0:
            print(summary(staged), json.dumps(staged), sep="\n")

    return as_rank(work)


def keep(options: argparse.Namespace) -> None:
    """Copies home what this rank has added to a dataset."""
    from namsa.cli.commands.output import print_json

    from ..staging.copies import keep_dataset

    print_json(keep_dataset(options.source, options.target, rank_and_size()[0]))
