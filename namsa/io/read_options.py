"""Options for files that lack shape, type or axes."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.base.errors import InputError
from namsa.base.text import shorten
from namsa.config.presets import DETECTORS

MAX_SIDE = 10**6  # positions or pixels along an axis
MAX_OFFSET = 2**48
SCAN_AXES = ("sy", "sx", "dy", "dx")  # rows and columns of the scan, and of the detector
FRAME_AXES = ("n", "dy", "dx")  # number of the frame


@dataclass(frozen=True)
class ReadOptions:
    """Layout of the patterns in a file. Pairs are (y, x)."""

    dataset: str | None = None  # name of the dataset, in a file that holds several
    scan_shape: tuple[int, int] | None = None  # rows and columns of the scan
    # Type of the stored numbers with its byte order, such as ">u2", for a file without a format.
    dtype: np.dtype[np.generic] | None = None
    # rows and columns of the detector, for a file without a format
    detector_shape: tuple[int, int] | None = None
    offset_bytes: int = 0  # where the first pattern begins, in a file without a format
    # Patterns at the end of each row of the scan that were recorded while the beam flew back;
    # `None` if the caller does not know.
    flyback: int | None = None
    # patterns before and after the scan that are no part of it
    skip_frames: tuple[int, int] = (0, 0)
    # numbers of the frames that the detector dropped, among all that were due, from 0
    dropped_frames: tuple[int, ...] = ()
    # Names of the stored axes, the last one the fastest: those of `SCAN_AXES` or of `FRAME_AXES`,
    # and "t" for that of a series.
    axes: tuple[str, ...] | None = None
    index: int | None = None  # which scan of a series, or which counter of several
    # whether the file is being written; then the scan is as many complete rows as it holds
    growing: bool = False

    @property
    def is_raw(self) -> bool:
        """Whether they describe a file without a format."""
        return self.dtype is not None or self.detector_shape is not None or self.offset_bytes > 0

    def skipping(self, frames: tuple[int, int]) -> "ReadOptions":
        """Returns the same options with other frames to skip."""
        return replace(self, skip_frames=frames)


def read_options(**given: Any) -> ReadOptions:
    """Returns checked options; a shape may be a text as "81x81". Raises InputError if one is
    wrong.
    """
    checked = {
        name: CHECKS[name](value)
        for name, value in given.items()
        if name in CHECKS and value is not None
    }
    return ReadOptions(**given | checked)


def _skipped(value: object) -> tuple[int, int]:
    """Returns the frames before and after a scan, of one or two numbers."""
    numbers = list(value) if isinstance(value, list | tuple) else [value]
    if not 0 < len(numbers) <= 2:
        raise InputError(
            f"--skip-frames is {shorten(value)}: give the frames before the scan, or before and "
            "after it"
        )
    before, after = (_count(count, "--skip-frames", MAX_SIDE**2) for count in (*numbers, 0)[:2])
    return before, after


def _dropped(value: object) -> tuple[int, ...]:
    """Returns the numbers of frames in rising order, each once."""
    numbers = list(value) if isinstance(value, list | tuple) else [value]
    return tuple(sorted({_count(count, "--dropped-frames", MAX_SIDE**2) for count in numbers}))


def _axes(value: str | Iterable[str]) -> tuple[str, ...]:
    """Returns the names of stored axes: a scan's or a stack's, each once, and perhaps a series'."""
    names = tuple(re.split("[, ]+", value.strip()) if isinstance(value, str) else map(str, value))
    if sorted(set(names) - {"t"}) not in (sorted(SCAN_AXES), sorted(FRAME_AXES)) or len(
        set(names)
    ) < len(names):
        raise InputError(
            f"--axes is {shorten(value)}: give the stored axes in their order: sy,sx,dy,dx of a "
            "scan, or n,dy,dx of frames; and t, that of a series"
        )
    return names


def parse_shape(value: str | npt.ArrayLike | None, option: str) -> tuple[int, int] | None:
    """Returns two numbers of a pair or a text such as "81x81", or `None`. Raises InputError, which
    names the option.
    """
    if value is None:
        return None
    sides: list[Any] = re.split("[x×,]", value) if isinstance(value, str) else list(np.ravel(value))
    try:
        shape = tuple(int(side) for side in sides)
    except (ValueError, TypeError, OverflowError):
        shape = ()
    if len(shape) != 2 or not all(0 < side <= MAX_SIDE for side in shape):
        raise InputError(
            f"{option} is {shorten(value)}: give rows x columns, such as 64x96, each at most "
            f"{MAX_SIDE}"
        )
    return shape


def _dtype(value: npt.DTypeLike) -> np.dtype[np.generic]:
    try:
        dtype = np.dtype(value)
    except (TypeError, ValueError, SyntaxError):
        dtype = np.dtype("V")
    if dtype.kind not in "uif" or dtype.itemsize > 8:
        raise InputError(
            f"--dtype is {shorten(value)}: give a type of integers or real numbers, such as u2, "
            ">u2 or f4"
        )
    return dtype


def _count(value: object, option: str, largest: int) -> int:
    if not isinstance(value, int | np.integer) or not 0 <= value <= largest:
        raise InputError(f"{option} is {shorten(value)}: give an integer from 0 to {largest}")
    return int(value)


CHECKS: dict[str, Callable[[Any], object]] = {
    "scan_shape": lambda value: parse_shape(value, "--scan-shape"),
    "dtype": _dtype,
    "detector_shape": lambda value: (
        DETECTORS[value].shape
        if isinstance(value, str) and value in DETECTORS
        else parse_shape(value, "--detector-shape")
    ),
    "offset_bytes": lambda value: _count(value, "--offset-bytes", MAX_OFFSET),
    "flyback": lambda value: _count(value, "--flyback", MAX_SIDE),
    "skip_frames": _skipped,
    "dropped_frames": _dropped,
    "axes": _axes,
    "index": lambda value: _count(value, "--index", MAX_SIDE),
}
