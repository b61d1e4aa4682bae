"""Embeds the patterns of a file."""

import argparse

from .common import exit_code
from .models import write_result


def embed(options: argparse.Namespace) -> int:
    """Embeds the patterns of a 4D-STEM file."""

    def work() -> None:
        from ..apply.embed import embed

        write_result(options, embed, clusters=options.clusters)

    return exit_code(work)
