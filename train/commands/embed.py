"""Embeds the patterns of a file."""

import argparse

from train.commands.common import exit_code
from train.commands.models import write_result


def embed(options: argparse.Namespace) -> int:
    """Embeds the patterns of a 4D-STEM file."""

    def work() -> None:
        from train.reconstruction.embed import embed

        write_result(options, embed, clusters=options.clusters)

    return exit_code(work)
