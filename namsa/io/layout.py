"""From an array as a file holds it to a scan: which axis is which, and which frames belong to the
scan.

Every reader ends here, so that what the caller says of the layout holds for every format.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.text import shorten
from namsa.io.file_axes import NO_AXIS, FileAxis, origin_angstrom
from namsa.io.frames import scan_of_frames
from namsa.io.read_options import FRAME_AXES, SCAN_AXES, ReadOptions
from namsa.io.recording import (
    CalibrationFacts,
    PatternArray,
    PatternView,
    Recording,
    RecordingFacts,
)
from namsa.io.stored_calibration import StoredCalibration, calibration_of_axes

USUAL = {3: FRAME_AXES, 4: SCAN_AXES, 5: ("t", *SCAN_AXES)}  # by the number of axes


@dataclass(frozen=True)
class AxesView(PatternView):
    """An array whose axes are in another order, with some fixed at one index."""

    axes: tuple[int, ...]  # the stored axis that each axis is
    # index along each of the other stored axes
    fixed: Mapping[int, int] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.stored.shape[axis] for axis in self.axes)

    @property
    def chunks(self) -> tuple[int, ...] | None:
        if self.stored.chunks is None:
            return None
        return tuple(self.stored.chunks[axis] for axis in self.axes)

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Returns a part; there is a slice for each of the first axes."""
        slices = [slice(None)] * len(self.stored.shape)
        for axis, part_of_axis in zip(self.axes, index, strict=False):
            slices[axis] = part_of_axis
        for axis, at in self.fixed.items():
            slices[axis] = slice(at, at + 1)
        patterns = self.stored[tuple(slices)]
        patterns = patterns.transpose(*self.axes, *self.fixed)
        return patterns.reshape(patterns.shape[: len(self.axes)])


@dataclass(frozen=True)
class FramesOfScan(PatternView):
    """The patterns of a scan `(sy, sx, dy, dx)` as frames, row after row."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (n, dy, dx)."""
        sy, sx, *frame = self.stored.shape
        return (sy * sx, *frame)

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of the pieces that are read together: whole rows."""
        return ((self.stored.chunks or (1,))[0] * self.stored.shape[1], *self.stored.shape[2:])

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Returns consecutive frames."""
        start, stop, _ = index[0].indices(self.shape[0])
        stop = max(start, stop)
        columns = self.stored.shape[1]
        first_row = start // columns
        last_row = -(-stop // columns)
        rows = self.stored[slice(first_row, last_row), slice(0, columns)]
        skipped = first_row * columns
        frames = rows.reshape(-1, *self.shape[1:])[start - skipped : stop - skipped]
        return frames[(slice(None), *index[1:])]


def only_array(axes: Mapping[str, int], path: Path) -> str:
    """Returns which of a file's arrays is the only one of four axes, or of five or three, by the
    axes of each.
    """
    for count in (4, 5, 3):
        names = [name for name, axis_count in axes.items() if axis_count == count]
        if len(names) == 1:
            return names[0]
        if names:
            listed = shorten(", ".join(names), 200)
            raise InputError(
                f"{path} holds several arrays of {count} axes: choose one with --dataset: {listed}"
            )
    raise InputError(
        f"{path} holds no array of three to five axes: it has "
        f"{shorten(', '.join(axes), 200) or 'none'}"
    )


@dataclass(frozen=True)
class Layout:
    """A scan in an array of a file."""

    data: PatternArray  # the scan, `(sy, sx, dy, dx)`
    # the stored axis that each of its axes is; `None` for one that is none of them
    axes: tuple[int | None, ...]
    notes: tuple[str, ...] = ()  # what is left out or assumed, one line each

    def recording(
        self,
        kind: str,
        path: Path | str,
        *,
        notes: Sequence[str] = (),
        **facts: Unpack[RecordingFacts],
    ) -> Recording:
        """Returns the recording of the scan in a file of a kind. The notes come before those about
        the layout.
        """
        return Recording(
            data=self.data, format=kind, name=str(path), notes=(*notes, *self.notes), **facts
        )

    def arranged(self, stored: Sequence[FileAxis]) -> list[FileAxis]:
        """Returns the scan's axes, of those that are stored."""
        return [NO_AXIS if axis is None else stored[axis] for axis in self.axes]

    def calibration(
        self, stored: Sequence[FileAxis], known: StoredCalibration | None = None
    ) -> CalibrationFacts:
        """Returns what the stored axes say that `known` does not, by the names of `Recording`."""
        axes = self.arranged(stored)
        calibration = known or calibration_of_axes(axes, self.data.shape)
        return facts_of(calibration, axes)


def facts_of(calibration: StoredCalibration, axes: Sequence[FileAxis]) -> CalibrationFacts:
    """Returns a calibration by the names of `Recording`, with the origin of the axes (sy, sx, dy,
    dx).
    """
    return {
        "scan_step_angstrom": calibration.scan_step_angstrom,
        "scan_origin_angstrom": (origin_angstrom(axes[0]), origin_angstrom(axes[1])),
        "pixel_mrad": calibration.pixel_mrad,
        "pixel_inverse_angstrom": calibration.pixel_inverse_angstrom,
        "centre_pixels": calibration.centre_pixels,
        "rotation_deg": calibration.rotation_deg,
        "flip": calibration.flip,
        "ellipse": calibration.ellipse,
        "centre_slope": calibration.centre_slope,
        "reasons": calibration.reasons,
    }


def arrange(
    stored: PatternArray,  # frames, a scan, or a series of scans
    options: ReadOptions,  # what the caller says of the layout
    name: Path | str,  # the file, for messages
    *,
    # Names of the stored axes by what the file says (`namsa.io.read_options`); the caller's
    # precede. By default scan, then detector.
    order: Sequence[str] | None = None,
    # rows and columns of the scan that frames are of, as the file states them
    stated: tuple[int, int] | None = None,
    stated_flyback: int | None = None,  # frames at the end of each row, as the file states them
    # whether a series is that of a detector's counters, of which the first one stands for all
    counters: bool = False,
) -> Layout:
    """Returns the scan in an array.

    Raises:
        InputError: If frames do not fit a scan, if several scans are in question, or if an option
            does not fit.
    """
    count = len(stored.shape)
    order = options.axes or order or USUAL.get(count)
    if order is None or len(order) != count:
        limit = f"--axes names {len(order)}" if options.axes and order else "3 to 5 are read"
        raise InputError(
            f"{name} holds an array of {count} axes, of the shape {stored.shape}: {limit}"
        )
    fixed, notes = _chosen(stored, order, options, name, counters)
    wanted = SCAN_AXES if "sy" in order else FRAME_AXES
    axes = tuple(order.index(axis) for axis in wanted)
    data = stored
    if axes != tuple(range(count)):
        data = AxesView(stored, axes, fixed)
    if wanted is FRAME_AXES:
        scan = scan_of_frames(data, options, name, stated, stated_flyback)
        return Layout(scan, (None, None, *axes[1:]), (*notes, *scan.notes))
    rows, columns = data.shape[:2]
    flyback = options.flyback or 0
    has_its_shape = options.growing or options.scan_shape in (None, (rows, columns))
    has_its_frames = options.skip_frames == (0, 0) and not options.dropped_frames
    if has_its_shape and not flyback and has_its_frames:
        return Layout(data, axes, tuple(notes))
    if flyback >= columns:
        raise InputError(
            f"--flyback is {flyback}, and {name} holds a scan of {rows}x{columns}: give less"
        )
    scan = scan_of_frames(FramesOfScan(data), options, name, (rows, columns - flyback))
    if scan.scan_shape[1] + scan.flyback == columns:
        return Layout(scan, axes, (*notes, *scan.notes))
    shape = "x".join(map(str, scan.scan_shape))
    notes.append(f"the scan of {rows}x{columns} is read as one of {shape}")
    return Layout(scan, (None, None, *axes[2:]), (*notes, *scan.notes))


def _chosen(
    stored: PatternArray,
    order: Sequence[str],
    options: ReadOptions,
    name: Path | str,
    counters: bool,
) -> tuple[dict[int, int], list[str]]:
    """Returns the index along the axis of a series, if there is one, and a line about it."""
    if "t" not in order:
        if options.index is not None:
            raise InputError(
                f"{name} holds one scan, and --index {options.index} chooses one of a series"
            )
        return {}, []
    axis = order.index("t")
    count = stored.shape[axis]
    what = "counters" if counters else "scans"
    index = options.index
    if index is None and (counters or count == 1):
        index = 0
    if index is None or index >= count:
        given = "" if index is None else f", and --index is {index}"
        raise InputError(
            f"{name} holds a series of {count} {what}{given}: choose one with --index, 0 to "
            f"{count - 1}"
        )
    if count == 1:
        return {axis: index}, []
    return {axis: index}, [f"number {index} of {count} {what} is read (--index)"]
