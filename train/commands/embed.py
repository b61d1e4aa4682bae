"""Embeds the patterns of a file."""

import argparse
from pathlib import Path

from namsa.cli.calibration_options import calibration_overrides
from namsa.cli.layout_options import layout
from namsa.text import printable
from train.commands.common import exit_code
from train.commands.models import beam_intensity, picture_beside
from train.ranks.signals import Stopped


def embed(options: argparse.Namespace) -> int:
    """Embeds the patterns of a 4D-STEM file."""

    def work() -> None:
        from rich.console import Console

        from train.reconstruction.embed import embed

        console, picture = Console(markup=False), picture_beside(options.out, (options.data, Path(options.checkpoint)))
        try:
            result = embed(
                options.data,
                options.checkpoint,
                calibration_overrides(options),
                clusters=options.clusters,
                beam_intensity=beam_intensity(options),
                layout=layout(options),
                console=console,
            )
            result.save(options.out)
            result.show(picture)
        except KeyboardInterrupt:
            raise Stopped(f"interrupted; {options.out} was not written") from None
        console.print(printable(f"{options.out} and {picture}"), highlight=False, soft_wrap=True)

    return exit_code(work)
