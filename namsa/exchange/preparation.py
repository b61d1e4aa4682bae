"""Preparation of a scan for another program: one step, square patterns, and notes of the
assumptions.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from namsa.base.errors import InputError
from namsa.io.calibration import FourDData
from namsa.io.part import Span
from namsa.io.window import PartOfPatterns

MOST_UNEQUAL = 0.01  # relative difference of two steps whose mean may stand for both
EQUAL = 1e-6

OnNote = Callable[[str], object]  # takes a line


def note_assumptions(scan: FourDData, note: OnNote) -> None:
    """Says what of the geometry is not known and taken as usual."""
    if not scan.rotation_stated:
        note(
            "the detector's rotation is not known: 0°, not mirrored, is written; measure it with "
            "`namsa inspect`, and give --calibration, or --rotation-deg and --mirrored"
        )
    if scan.centre_pixels is None:
        y, x = ((n - 1) / 2 for n in scan.shape[2:])
        note(
            f"the optic axis is not known: the detector's middle, pixel ({y:g}, {x:g}), is "
            "written; `namsa inspect` measures it, or give --centre-pixels"
        )


def with_one_step(scan: FourDData, program: str, note: OnNote) -> FourDData:
    """Returns a scan with one step for both axes, the mean of two that are almost equal.

    Raises:
        InputError: If they differ by more than `MOST_UNEQUAL`.
    """
    y, x = scan.scan_step_angstrom
    apart = abs(y / x - 1)
    if apart <= EQUAL:
        return scan
    if apart > MOST_UNEQUAL:
        raise InputError(
            f"{program} takes one step for both axes of the scan, and these are {y:g} and {x:g} "
            "Å: choose quantem, phaser or ptyrad, which take two"
        )
    mean = float(np.sqrt(y * x))
    shift = max(abs(y - mean) * (scan.shape[0] - 1), abs(x - mean) * (scan.shape[1] - 1)) / 2
    note(
        f"{program} takes one step for both axes: {mean:.6g} Å in place of {y:g} and {x:g}, which "
        f"moves positions by up to {shift:.2g} Å"
    )
    return replace(scan, scan_step_angstrom=(mean, mean))


def with_square_patterns(scan: FourDData, program: str, note: OnNote) -> FourDData:
    """Returns a scan with square patterns: the longer side is cropped about the optic axis."""
    height, width = scan.shape[2:]
    if height == width:
        return scan
    side = min(height, width)
    centre = scan.centre_pixels or ((height - 1) / 2, (width - 1) / 2)
    starts = []
    for at, size in zip(centre, (height, width), strict=True):
        starts.append(int(np.clip(round(at - side // 2), 0, size - side)))
    rows = Span(starts[0], starts[0] + side)
    columns = Span(starts[1], starts[1] + side)
    positions = (Span(0, scan.shape[0]), Span(0, scan.shape[1]))
    note(
        f"{program} takes square patterns: {side}×{side} of {height}×{width} pixels are written, "
        f"from row {starts[0]} and column {starts[1]} on; --crop chooses others"
    )
    return replace(
        scan,
        data=PartOfPatterns(scan.data, (*positions, rows, columns)),
        centre_pixels=(centre[0] - starts[0], centre[1] - starts[1]),
    )
