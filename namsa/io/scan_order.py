"""The order in which a scan was recorded: rows in alternate directions, axes that run backwards,
frames that the detector dropped.

All are views: patterns are put in their places as they are read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array, Pair
from namsa.base.errors import InputError
from namsa.base.text import shorten
from namsa.io.recording import PatternArray, PatternView, Recording

FLIPS = ("", "y", "x", "yx")
DROPPED = -1  # number of a frame that there is not

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class FlippedAxes(PatternView):
    """Patterns some of whose axes run backwards in what is stored."""

    flipped: tuple[bool, ...]  # of each axis

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Returns a part; there is a slice for each of the first axes."""
        slices = [*index, *(slice(None),) * (len(self.shape) - len(index))]
        backwards = [slice(None)] * len(slices)
        for axis, is_flipped in enumerate(self.flipped):
            if is_flipped:
                slices[axis] = _mirrored(slices[axis], self.shape[axis])
                backwards[axis] = slice(None, None, -1)
        return self.stored[tuple(slices)][tuple(backwards)]


@dataclass(frozen=True)
class SerpentineScan(PatternView):
    """A scan `(sy, sx, dy, dx)` whose every second row, from the second on, was recorded from its
    last column to its first.
    """

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Returns a part; there is a slice for each of the first axes."""
        rows, columns, *pixels = (*index, *(slice(None),) * (len(self.shape) - len(index)))
        numbers = np.arange(self.shape[0])[rows]
        mirrored = _mirrored(columns, self.shape[1])
        if columns.indices(self.shape[1]) == mirrored.indices(self.shape[1]):
            patterns = np.array(self.stored[(rows, columns, *pixels)])
            backwards = numbers % 2 == 1
            patterns[backwards] = patterns[backwards, ::-1]
            return patterns
        parts = [self.stored[(slice(0, 0), columns, *pixels)]]
        for row_number in numbers.tolist():
            row = slice(row_number, row_number + 1)
            if row_number % 2:
                parts.append(self.stored[(row, mirrored, *pixels)][:, ::-1])
            else:
                parts.append(self.stored[(row, columns, *pixels)])
        return np.concatenate(parts)


def _mirrored(span: slice, size: int) -> slice:
    """Returns where a part of an axis lies on the axis that runs backwards, in rising order."""
    indices = range(*span.indices(size))
    if not indices:
        return slice(0, 0)
    ends = sorted((size - 1 - indices[0], size - 1 - indices[-1]))
    return slice(ends[0], ends[1] + 1, abs(indices.step))


@dataclass(frozen=True)
class PlacedFrames(PatternView):
    """Frames `(n, dy, dx)` in another order; those that were dropped are zeros, as a detector that
    loses a frame leaves them.
    """

    numbers: npt.NDArray[np.int64]  # the stored frame in each place, or `DROPPED`

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (n, dy, dx)."""
        return (len(self.numbers), *self.stored.shape[1:])

    @property
    def chunks(self) -> None:
        return None

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Returns consecutive frames, or a part of each."""
        wanted = self.numbers[index[0]]
        frames = np.zeros((len(wanted), *self.shape[1:]), self.dtype)
        follows = (np.diff(wanted) == 1) & (wanted[:-1] != DROPPED)
        ends = (np.flatnonzero(~follows) + 1).tolist()
        for start, stop in pairwise([0, *ends, len(wanted)]):
            if stop > start and wanted[start] != DROPPED:
                frame = int(wanted[start])
                frames[start:stop] = self.stored[frame : frame + stop - start,]
        return frames[(slice(None), *index[1:])]


def with_dropped(frames: PatternArray, dropped: Sequence[int], name: object) -> PatternArray:
    """Returns frames with an empty one in the place of each that was dropped.

    Args:
        dropped: Numbers of the dropped frames among all that were due, from 0.
        name: The file, for messages.

    Raises:
        InputError: If a number is beyond the frames.
    """
    if not dropped:
        return frames
    total = frames.shape[0] + len(dropped)
    if max(dropped) >= total:
        raise InputError(
            f"{name} holds {frames.shape[0]:,} frames, and --dropped-frames names number "
            f"{max(dropped):,} of {total:,}: frames count from 0, in the order of recording"
        )
    numbers = np.full(total, DROPPED, np.int64)
    recorded = np.setdiff1d(np.arange(total), dropped)
    numbers[recorded] = np.arange(len(recorded))
    return PlacedFrames(frames, numbers)


def reordered(recording: Recording, serpentine: bool, flip_scan: str) -> Recording:
    """Returns a scan whose rows run in one direction and whose axes run forwards.

    Args:
        serpentine: Whether every second row was recorded backwards.
        flip_scan: The axes of the scan that run backwards in the file: "", "y", "x" or "yx".

    Raises:
        InputError: If `flip_scan` is none of these.
    """
    axes = "".join(sorted(flip_scan, reverse=True))
    if axes not in FLIPS:
        raise InputError(f"--flip-scan is {shorten(flip_scan)}: give y, x or yx")
    notes = []
    data = recording.data
    if serpentine and not recording.serpentine:
        data = SerpentineScan(data)
        notes.append("serpentine scan: every second row is read from its last position")
    new_axes = axes.replace(recording.flip_scan, "") if recording.flip_scan else axes
    if new_axes:
        data = FlippedAxes(data, ("y" in new_axes, "x" in new_axes, False, False))
        notes.append(f"scan flipped along {' and '.join(new_axes)}")
    if not notes:
        return recording
    return replace(
        recording,
        data=data,
        serpentine=recording.serpentine or serpentine,
        flip_scan=axes or recording.flip_scan,
        notes=(*recording.notes, *notes),
    )


def forwards(recording: Recording) -> Recording:
    """Returns a scan whose steps and pixels are positive: axes that run backwards are flipped."""
    steps = recording.scan_step_angstrom
    scan_flips = _negative(steps)
    detector_flips = _negative(recording.pixel_mrad or recording.pixel_inverse_angstrom)
    flips = (*scan_flips, *detector_flips)
    if not any(flips):
        return recording
    origin_y, origin_x = recording.scan_origin_angstrom
    if steps is not None and scan_flips[0]:
        origin_y += (recording.shape[0] - 1) * steps[0]
    if steps is not None and scan_flips[1]:
        origin_x += (recording.shape[1] - 1) * steps[1]
    last = (recording.shape[2] - 1, recording.shape[3] - 1)
    centre = recording.centre_pixels
    if centre is not None:
        centre = _flipped(centre, last, detector_flips)
    bad_pixels = [_flipped(pixel, last, detector_flips) for pixel in recording.bad_pixels]
    names = ("scan y", "scan x", "detector y", "detector x")
    named = [name for name, is_flipped in zip(names, flips, strict=True) if is_flipped]
    line = f"{' and '.join(named)} runs backwards in the file (a negative step), and is flipped"
    return replace(
        recording,
        data=FlippedAxes(recording.data, flips),
        scan_step_angstrom=_absolute(steps),
        pixel_mrad=_absolute(recording.pixel_mrad),
        pixel_inverse_angstrom=_absolute(recording.pixel_inverse_angstrom),
        scan_origin_angstrom=(origin_y, origin_x),
        centre_pixels=centre,
        bad_pixels=tuple(bad_pixels),
        notes=(*recording.notes, line),
    )


def _flipped(
    pixel: tuple[Number, Number], last: tuple[int, int], flips: tuple[bool, bool]
) -> tuple[Number, Number]:
    """Returns where a pixel (row, column) is on a detector whose axes are flipped.

    Args:
        last: The last pixel.
        flips: Which axes are flipped.
    """
    row, column = pixel
    if flips[0]:
        row = last[0] - row
    if flips[1]:
        column = last[1] - column
    return row, column


def _absolute(pair: Pair | None) -> Pair | None:
    """Returns a pair without its signs; `None` stays."""
    return None if pair is None else (abs(pair[0]), abs(pair[1]))


def _negative(pair: Pair | None) -> tuple[bool, bool]:
    """Returns which of two numbers are negative."""
    if pair is None:
        return False, False
    return pair[0] < 0, pair[1] < 0
