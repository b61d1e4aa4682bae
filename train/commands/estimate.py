"""Estimates thickness, defocus and tilt of a file."""

import argparse

from .common import exit_code
from .models import write_result


def estimate(options: argparse.Namespace) -> int:
    """Estimates the quantities of a 4D-STEM file."""

    def work() -> None:
        from ..apply.estimate import estimate

        write_result(options, estimate, lambda result: result.lines)

    return exit_code(work)
