"""Labels the positions of a file."""

import argparse

from .common import exit_code
from .models import write_result


def segment(options: argparse.Namespace) -> int:
    """Labels the positions of a microscope's 4D-STEM file."""

    def work() -> None:
        from ..apply.segment import segment

        write_result(options, segment)

    return exit_code(work)
