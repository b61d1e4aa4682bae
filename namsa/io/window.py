"""A part of a scan and of its detector, and binned pixels: what `--region`, `--crop` and
`--binning` read.

Patterns are cut and binned as they are read. Every number that is given of the file (optic axis,
pixel, bad pixels, movement of the disk) is of the whole scan and the whole detector as they are
stored; here it becomes that of the part.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from namsa.base.arrays import Array, Pair
from namsa.base.errors import InputError
from namsa.base.text import shorten
from namsa.io.part import Span, Window
from namsa.io.read_options import parse_shape
from namsa.io.recording import PatternView, Recording

MOST_BINNING = 64
SIDE = re.compile(r"(\d{0,7}):(\d{0,7})", re.ASCII)
PartOption = str | Sequence[Any] | None


@dataclass(frozen=True)
class PartOfPatterns(PatternView):
    """A rectangle of the scan, and of each pattern."""

    spans: tuple[Span, Span, Span, Span]  # of the stored axes

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (scan y, scan x, detector y, detector x)."""
        return tuple(span.size for span in self.spans)

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """The shape of the pieces that are stored together, as far as they are read."""
        if self.stored.chunks is None:
            return None
        pairs = zip(self.stored.chunks, self.shape, strict=True)
        return tuple(min(chunk, size) for chunk, size in pairs)

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Returns a part; there is a slice for each of the first axes."""
        slices = (*index, *(slice(None),) * (4 - len(index)))
        shifted = []
        for span_read, span in zip(slices, self.spans, strict=True):
            start, stop, step = span_read.indices(span.size)
            shifted.append(slice(span.start + start, span.start + max(start, stop), step))
        return self.stored[tuple(shifted)]


@dataclass(frozen=True)
class BinnedPatterns(PatternView):
    """Patterns of which squares of pixels are added; those that fill no square are left out."""

    binning: int  # pixels along a side of a square

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (scan y, scan x, detector y, detector x)."""
        sy, sx, dy, dx = self.stored.shape
        return sy, sx, dy // self.binning, dx // self.binning

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """A type that holds the sums: integers stay integers."""
        stored = self.stored.dtype
        if stored.kind not in "ui":
            return np.dtype(np.float64 if stored.itemsize > 4 else np.float32)
        most = float(np.iinfo(stored.str).max) * self.binning**2
        small = np.dtype(f"{stored.kind}4")
        return small if most <= np.iinfo(small).max else np.dtype(f"{stored.kind}8")

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """The shape of the pieces that are stored together; patterns are read whole."""
        if self.stored.chunks is None:
            return None
        return (*self.stored.chunks[:2], *self.shape[2:])

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Returns a part; there is a slice for each of the first axes."""
        height, width = self.shape[2:]
        side = self.binning
        pixels = (slice(0, height * side), slice(0, width * side))
        patterns = self.stored[(*index[:2], *(slice(None),) * (2 - len(index[:2])), *pixels)]
        squares = patterns.reshape(*patterns.shape[:2], height, side, width, side)
        return squares.sum(axis=(3, 5), dtype=self.dtype)[(slice(None), slice(None), *index[2:])]


def windowed(
    recording: Recording, region: PartOption, crop: PartOption, binning: int | None
) -> Recording:
    """Returns a part of a scan, with its calibration.

    Args:
        region: Positions of the scan, "Y0:Y1,X0:X1".
        crop: Pixels of the detector, likewise, or "DYxDX" about the optic axis, or about the
            detector's middle where that is not known.
        binning: Pixels along a side of the squares that are added; `None` for 1.

    Raises:
        InputError: If a part is empty or not within the scan or the detector, or if the recording
            is a part already.
    """
    if region is None and crop is None and binning in (None, 1):
        return recording
    if recording.window is not None:
        raise InputError(
            "a recording that is a part of a scan is not cut again: give region, crop and binning "
            "where its file is read"
        )
    notes = []
    sy, sx, dy, dx = recording.shape
    rows, columns = Span(0, sy), Span(0, sx)
    if region is not None:
        rows, columns = _spans(region, (sy, sx), "--region")
        notes.append(f"region {_text(rows, columns)} of a scan of {sy}x{sx} positions is read")
    pixel_rows, pixel_columns = Span(0, dy), Span(0, dx)
    if crop is not None:
        pixel_rows, pixel_columns = _cropped(recording, crop)
        kept = _text(pixel_rows, pixel_columns)
        notes.append(f"cropped to pixels {kept} of a detector of {dy}x{dx}")
    side = _binning(binning, (pixel_rows.size, pixel_columns.size))
    if side > 1:
        left_out = max(pixel_rows.size % side, pixel_columns.size % side)
        rest = f"; up to {left_out} pixels at the end of rows or columns left out" * bool(left_out)
        notes.append(f"squares of {side}x{side} pixels added (binning){rest}")
    window = Window(
        rows, columns, pixel_rows, pixel_columns, side, recording.shape, recording.bad_pixels
    )
    data = PartOfPatterns(recording.data, (rows, columns, pixel_rows, pixel_columns))
    patterns = data if side == 1 else BinnedPatterns(data, side)
    centre_pixels = recording.centre_pixels
    if centre_pixels is not None:
        centre_pixels = window.pixel_of(centre_pixels)
    return replace(
        recording,
        data=patterns,
        pixel_mrad=_times(recording.pixel_mrad, window.binning),
        pixel_inverse_angstrom=_times(recording.pixel_inverse_angstrom, window.binning),
        centre_pixels=centre_pixels,
        scan_origin_angstrom=_scan_origin(recording, window),
        bad_pixels=window.bad_pixels_of(recording.bad_pixels),
        notes=(*recording.notes, *notes),
        window=window,
    )


def _times(pair: Pair | None, factor: int) -> Pair | None:
    """Returns a pair times a factor; `None` stays."""
    return None if pair is None else (pair[0] * factor, pair[1] * factor)


def _scan_origin(recording: Recording, window: Window) -> Pair:
    """Returns the place of the first position of a window, (y, x), Å."""
    step = recording.scan_step_angstrom
    if step is None:
        return recording.scan_origin_angstrom
    y, x = recording.scan_origin_angstrom
    return y + window.rows.start * step[0], x + window.columns.start * step[1]


def _cropped(recording: Recording, crop: PartOption) -> tuple[Span, Span]:
    """Returns the rows and columns of the detector that are read."""
    shape = recording.shape[2:]
    is_size = isinstance(crop, str) and ":" not in crop
    if not (is_size or (isinstance(crop, tuple | list) and np.shape(crop) == (2,))):
        return _spans(crop, shape, "--crop")
    sides = parse_shape(crop, "--crop") or shape
    if sides[0] > shape[0] or sides[1] > shape[1]:
        raise InputError(
            f"--crop is {shorten(crop)}, and the detector has {shape[0]}x{shape[1]} pixels: give "
            "less"
        )
    centre = recording.centre_pixels or ((shape[0] - 1) / 2, (shape[1] - 1) / 2)
    spans = []
    for at, side, size in zip(centre, sides, shape, strict=True):
        start = min(max(0, math.floor(at - side / 2 + 1)), size - side)
        spans.append(Span(start, start + side))
    return spans[0], spans[1]


def _spans(stated: PartOption, shape: Sequence[int], option: str) -> tuple[Span, Span]:
    """Returns rows and columns of "Y0:Y1,X0:X1", or of ((y0, y1), (x0, x1)); an end that is left
    out is that of the axis.
    """
    parts: list[Any] = list(stated or ())
    if isinstance(stated, str):
        parts = [match.groups() for match in map(SIDE.fullmatch, stated.split(",")) if match]
    spans = []
    for side, size in zip(parts, shape, strict=False):
        try:
            start, stop = side
            spans.append(Span(int(start or 0), size if stop in ("", None) else int(stop)))
        except (TypeError, ValueError):
            break
    if len(parts) != 2 or len(spans) != 2 or (isinstance(stated, str) and stated.count(",") != 1):
        raise InputError(
            f"{option} is {shorten(stated)}: give rows and columns as Y0:Y1,X0:X1, counted from 0, "
            "without the last one"
        )
    for span, size in zip(spans, shape, strict=True):
        if not 0 <= span.start < span.stop <= size:
            raise InputError(
                f"{option} is {shorten(stated)}, and there are {shape[0]} rows and {shape[1]} "
                "columns: give a part of them that is not empty"
            )
    return spans[0], spans[1]


def _binning(value: int | None, shape: Sequence[int]) -> int:
    """Returns the pixels along a side of the squares that are added."""
    side = 1 if value is None else value
    most = min(MOST_BINNING, *shape)
    if not isinstance(side, int | np.integer) or not 1 <= side <= most:
        raise InputError(f"--binning is {shorten(value)}: give an integer from 1 to {most}")
    return int(side)


def _text(rows: Span, columns: Span) -> str:
    return f"{rows.start}:{rows.stop},{columns.start}:{columns.stop}"
