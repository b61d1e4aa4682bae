"""Labels the positions of a file."""

import argparse

from train.commands.common import exit_code
from train.commands.models import write_result


def segment(options: argparse.Namespace) -> int:
    """Labels the positions of a microscope's 4D-STEM file."""

    def work() -> None:
        from train.reconstruction.segment import segment

        write_result(options, segment)

    return exit_code(work)
