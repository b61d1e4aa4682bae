"""From the options of a command that applies a network to a scan to its arguments, and the files that it writes."""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from namsa.cli.calibration_options import calibration_overrides, layout
from namsa.errors import InputError
from namsa.files import check_output
from namsa.io.calibration import CalibrationOverrides
from namsa.io.calibration_file import with_calibration_file
from namsa.text import printable

from ..ranks.signals import Stopped
from .scan_result import ScanResult


def write_result(options: argparse.Namespace, compute: Callable[..., ScanResult], /, **settings: Any) -> None:
    """Computes what a network finds in a scan, writes arrays and picture, and prints where they are.

    Args:
        compute: See `train.tasks.scan_command.ScanCommand.function`.
    """
    console, picture = Console(markup=False), picture_beside(options.out, (options.data, Path(options.checkpoint)))
    try:
        result = compute(options.data, options.checkpoint, **scan_arguments(options), console=console, **settings)
        result.save(options.out)
        result.show(picture)
    except KeyboardInterrupt:
        raise Stopped(f"interrupted; {options.out} was not written") from None
    for line in (*result.lines, f"{options.out} and {picture}"):
        console.print(printable(line), highlight=False, soft_wrap=True)


def scan_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Returns what the options say about the scan, as keywords of the functions that apply a network."""
    return {
        "calibration": calibration_overrides(options),
        "beam_intensity": beam_intensity(options),
        "layout": layout(options),
    }


def beam_intensity(options: argparse.Namespace) -> float | None:
    """Returns the sum of a pattern without specimen, as the options or the calibration file say it."""
    given: float | None = options.beam_intensity
    return with_calibration_file(CalibrationOverrides(), options.calibration)[1] if given is None else given


def picture_beside(out: Path, inputs: Sequence[Path]) -> Path:
    """Returns the picture beside `out`, after checks that both can be written and replace none of the inputs."""
    check_output(out, inputs)
    picture = out.with_suffix(".png")
    if picture == out:
        raise InputError(f"--out {out} is for the arrays, as OUT.h5; the picture is written beside it as OUT.png")
    check_output(picture, inputs, f"--out {out}: the picture")
    folder = next(folder for folder in out.absolute().parents if os.path.exists(folder))
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"--out {out}: {folder} is no folder that can be written to")
    return picture
