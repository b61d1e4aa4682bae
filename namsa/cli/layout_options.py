"""The options that say how patterns lie in a file which does not say it itself: for every command that takes DATA."""

import argparse
from pathlib import Path
from typing import Any

from namsa.cli.command_line import CommandParser

NAMES = (
    *("scan_shape", "flyback", "skip_frames", "axes", "index", "mask"),
    *("dtype", "detector_shape", "offset_bytes"),
)


def add_layout_options(command: CommandParser) -> None:
    """Adds the options to a command."""
    group = command.add_argument_group(
        "how the patterns lie in the file, where it does not say it; see docs/reading.md"
    )
    group.add_argument("--scan-shape", metavar="SYxSX", help="rows and columns of the scan, such as 64x96")
    group.add_argument("--flyback", type=int, metavar="N", help="frames at the end of each row to leave out")
    group.add_argument(
        "--skip-frames",
        type=int,
        nargs="+",
        default=0,
        metavar="N",
        help="frames to leave out before the scan, and after",
    )
    group.add_argument("--axes", metavar="ORDER", help="the stored axes in their order, such as dy,dx,sy,sx or n,dy,dx")
    group.add_argument("--index", type=int, metavar="N", help="which scan of a series, or which counter, from 0")
    group.add_argument(
        "--mask", type=Path, metavar="FILE", help="pixels that do not measure, not 0: .npy, PNG, TIFF, HDF5"
    )
    group.add_argument("--dtype", help="type of the numbers in a file without a format, such as u2, >u2 or f4")
    group.add_argument("--detector-shape", metavar="DYxDX", help="rows and columns of the detector in such a file")
    group.add_argument("--offset-bytes", type=int, default=0, metavar="N", help="first byte of the patterns in it")


def layout(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the options as arguments of `namsa.read`."""
    return {name: getattr(options, name) for name in NAMES}
