"""The options that say how patterns lie in a file which does not say it itself: for every command that takes DATA."""

import argparse
from typing import Any

from namsa.cli.command_line import CommandParser

NAMES = ("scan_shape", "flyback", "dtype", "detector_shape", "offset_bytes")


def add_layout_options(command: CommandParser) -> None:
    """Adds the options to a command."""
    group = command.add_argument_group(
        "how the patterns lie in the file, where it does not say it; see docs/reading.md"
    )
    group.add_argument("--scan-shape", metavar="SYxSX", help="rows and columns of the scan, such as 64x96")
    group.add_argument("--flyback", type=int, default=0, metavar="N", help="frames at the end of each row to leave out")
    group.add_argument("--dtype", help="type of the numbers in a file without a format, such as u2, >u2 or f4")
    group.add_argument("--detector-shape", metavar="DYxDX", help="rows and columns of the detector in such a file")
    group.add_argument("--offset-bytes", type=int, default=0, metavar="N", help="first byte of the patterns in it")


def layout(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the options as arguments of `namsa.read`."""
    return {name: getattr(options, name) for name in NAMES}
