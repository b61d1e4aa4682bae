"""Options for what a file of patterns does not say, which several commands share."""

import argparse
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from namsa.base.errors import InputError
from namsa.base.text import shorten
from namsa.cli.command_parser import CommandParser

if TYPE_CHECKING:  # a parser is built without NumPy
    from namsa.io.calibration import CalibrationOverrides


def add_stated_numbers(command: CommandParser) -> "argparse._ArgumentGroup":
    """Adds the options for what a file may not say; returns their group."""
    group = command.add_argument_group(
        "what the file does not state, or states wrongly; two numbers are y and x"
    )
    group.add_argument(
        "--dataset", metavar="NAME", help="which of the file's datasets of four axes"
    )
    group.add_argument("--energy-ev", type=float, help="energy of the beam")
    group.add_argument("--semiangle-mrad", type=float, help="convergence semiangle of the probe")
    group.add_argument(
        "--scan-step-angstrom", type=float, nargs="+", metavar="STEP", help="step of the scan"
    )
    group.add_argument(
        "--pixel-mrad", type=float, nargs="+", metavar="PIXEL", help="pixel of the detector"
    )
    return group


def add_calibration(command: CommandParser) -> "argparse._ArgumentGroup":
    """Adds the same, rotation and optic axis, and the file that says it all; returns their
    group.
    """
    group = add_stated_numbers(command)
    group.add_argument(
        "--rotation-deg",
        type=float,
        help="from the detector's y, x to the scan's (py4DSTEM's sign)",
    )
    add_mirrored(group)
    group.add_argument(
        "--centre-pixels", type=float, nargs=2, metavar=("Y", "X"), help="the optic axis"
    )
    group.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE.json",
        help="of `namsa inspect`; other options take precedence over it",
    )
    return group


def add_mirrored(group: "argparse._ArgumentGroup") -> None:
    """Adds the option that exchanges the detector's axes."""
    group.add_argument(
        "--mirrored",
        action=argparse.BooleanOptionalAction,
        help="the detector's y and x are exchanged before the rotation",
    )


def refuse_stated(options: argparse.Namespace, path: Path) -> None:
    """Raises InputError if an option says of a file of samples what the samples say themselves."""
    names = (
        *(field.name for field in fields(_overrides_type())),
        "mirrored",
        "calibration",
        *LAYOUT,
    )
    given = [name for name in names if getattr(options, name, None) not in (None, 0, (), [])]
    if given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InputError(
            f"{path} holds samples of namsa, which say how they were made: leave out {flags}"
        )


def _overrides_type() -> "type[CalibrationOverrides]":
    from namsa.io.calibration import CalibrationOverrides

    return CalibrationOverrides


def calibration_overrides(options: argparse.Namespace) -> "CalibrationOverrides":
    """Returns what the options say; they win over the calibration file.

    Raises:
        InputError: If a pair is not one or two positive numbers, or the calibration file is wrong.
    """
    from namsa.io.calibration_file import with_calibration_file

    given = _overrides_type()(
        dataset=options.dataset,
        scan_step_angstrom=pair(options.scan_step_angstrom, "--scan-step-angstrom"),
        pixel_mrad=pair(options.pixel_mrad, "--pixel-mrad"),
        centre_pixels=options.centre_pixels and tuple(options.centre_pixels),
        flip=options.mirrored,
        **{
            name: getattr(options, name) for name in ("energy_ev", "semiangle_mrad", "rotation_deg")
        },
    )
    return with_calibration_file(given, options.calibration)[0]


def pair(values: Sequence[float] | None, option: str) -> tuple[float, float] | None:
    """Returns (y, x) of one or two positive numbers."""
    if values is None:
        return None
    if len(values) > 2 or not min(values) > 0:
        stated = shorten(" ".join(map(str, values)))
        excess = f", not {len(values)} numbers" if len(values) > 2 else ""
        raise InputError(f"{option} is {stated}: give one positive number, or two, y and x{excess}")
    return values[0], values[-1]


LAYOUT = (
    *("scan_shape", "flyback", "skip_frames", "dropped_frames", "axes", "index", "mask"),
    *("serpentine", "flip_scan", "region", "crop", "binning"),
    *("dtype", "detector_shape", "offset_bytes"),
)


def add_layout_options(command: CommandParser) -> None:
    """Adds the options to a command."""
    group = command.add_argument_group(
        "how the patterns lie in the file, where it does not say it; see docs/reading.md"
    )
    _add_frame_options(group)
    _add_axis_options(group)
    _add_part_options(group)
    _add_raw_file_options(group)


def _add_frame_options(group: "argparse._ArgumentGroup") -> None:
    """Adds the options that say which frame is which position of the scan."""
    group.add_argument(
        "--scan-shape", metavar="SYxSX", help="rows and columns of the scan, such as 64x96"
    )
    group.add_argument(
        "--flyback", type=int, metavar="N", help="frames at the end of each row to leave out"
    )
    group.add_argument(
        "--skip-frames",
        type=int,
        nargs="+",
        default=0,
        metavar="N",
        help="frames to leave out before the scan, and after",
    )
    group.add_argument(
        "--dropped-frames",
        type=int,
        nargs="+",
        default=(),
        metavar="N",
        help="numbers of frames that the detector dropped, from 0",
    )
    group.add_argument(
        "--serpentine",
        action="store_true",
        default=None,
        help="every second row of the scan was recorded backwards",
    )


def _add_axis_options(group: "argparse._ArgumentGroup") -> None:
    """Adds the options that describe the stored axes."""
    group.add_argument(
        "--flip-scan",
        choices=("y", "x", "yx"),
        help="axes of the scan that run backwards in the file",
    )
    group.add_argument(
        "--axes",
        metavar="ORDER",
        help="the stored axes in their order, such as dy,dx,sy,sx or n,dy,dx",
    )
    group.add_argument(
        "--index", type=int, metavar="N", help="which scan of a series, or which counter, from 0"
    )


def _add_part_options(group: "argparse._ArgumentGroup") -> None:
    """Adds the options that choose which positions and pixels are read."""
    group.add_argument(
        "--mask",
        type=Path,
        metavar="FILE",
        help="pixels that do not measure, not 0: .npy, PNG, TIFF, HDF5",
    )
    group.add_argument(
        "--region",
        metavar="Y0:Y1,X0:X1",
        help="the part of the scan to read, from 0, without the last row and column",
    )
    group.add_argument(
        "--crop",
        metavar="DYxDX",
        help="the part of each pattern to read, about the optic axis; or Y0:Y1,X0:X1",
    )
    group.add_argument(
        "--binning",
        type=int,
        metavar="N",
        help="add squares of N×N pixels; other numbers stay those of the stored detector",
    )


def _add_raw_file_options(group: "argparse._ArgumentGroup") -> None:
    """Adds the options for a file without a format."""
    group.add_argument(
        "--dtype", help="type of the numbers in a file without a format, such as u2, >u2 or f4"
    )
    group.add_argument(
        "--detector-shape",
        metavar="DYxDX",
        help="its detector: rows and columns, or empad, merlin, merlin-quad, arina",
    )
    group.add_argument(
        "--offset-bytes", type=int, default=0, metavar="N", help="first byte of the patterns in it"
    )


def layout(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the options as arguments of `namsa.read`."""
    return {name: getattr(options, name) for name in LAYOUT}
