"""Classifies the patterns of a file."""

import argparse
from pathlib import Path

from namsa.cli.calibration_options import calibration_overrides
from namsa.cli.layout_options import layout
from namsa.text import printable
from train.commands.common import exit_code
from train.commands.models import beam_intensity, picture_beside
from train.ranks.signals import Stopped

MOST_NAMED = 3  # classes that are printed


def classify(options: argparse.Namespace) -> int:
    """Classifies the patterns of a 4D-STEM file."""

    def work() -> None:
        from rich.console import Console

        from train.reconstruction.classify import classify

        console, picture = Console(markup=False), picture_beside(options.out, (options.data, Path(options.checkpoint)))
        try:
            result = classify(
                options.data,
                options.checkpoint,
                calibration_overrides(options),
                beam_intensity=beam_intensity(options),
                layout=layout(options),
                console=console,
            )
            result.save(options.out)
            result.show(picture)
        except KeyboardInterrupt:
            raise Stopped(f"interrupted; {options.out} was not written") from None
        means = result.mean_probabilities
        order = sorted(range(len(means)), key=lambda index: -means[index])[:MOST_NAMED]
        likely = ", ".join(f"{result.classes[index]} {means[index]:.3f}" for index in order)
        vote = f"{result.label.replace('_', ' ')} by vote: {result.vote} (mean probabilities: {likely})"
        for line in (vote, f"{options.out} and {picture}"):
            console.print(printable(line), highlight=False, soft_wrap=True)

    return exit_code(work)
