"""From an array as a file holds it to a scan: which axis is which, and which frames belong to the scan.

Every reader ends here, so that what the caller says of the layout holds for every format.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from namsa.arrays import Array
from namsa.errors import InputError
from namsa.io.frames import scan_of_frames
from namsa.io.read_options import FRAME_AXES, SCAN_AXES, ReadOptions
from namsa.io.recording import PatternArray, PatternView, Recording
from namsa.io.stored_calibration import NO_AXIS, Calibration, StoredAxis, calibration_of_axes, origin_angstrom
from namsa.text import shorten

USUAL = {3: FRAME_AXES, 4: SCAN_AXES, 5: ("t", *SCAN_AXES)}  # by the number of axes


@dataclass(frozen=True)
class AxesView(PatternView):
    """An array whose axes are in another order, with some fixed at one index."""

    axes: tuple[int, ...]  # the stored axis that each axis is
    fixed: Mapping[int, int] = field(default_factory=dict)  # index along each of the other stored axes

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.stored.shape[axis] for axis in self.axes)

    @property
    def chunks(self) -> tuple[int, ...] | None:
        return None if self.stored.chunks is None else tuple(self.stored.chunks[axis] for axis in self.axes)

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Returns a part; there is a slice for each of the first axes."""
        slices = dict(zip(self.axes, (*index, *(slice(None),) * (len(self.axes) - len(index))), strict=True))
        slices |= {axis: slice(number, number + 1) for axis, number in self.fixed.items()}
        part = self.stored[tuple(slices[axis] for axis in range(len(self.stored.shape)))]
        part = part.transpose(*self.axes, *self.fixed)
        return part.reshape(part.shape[: len(self.axes)])


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
        columns = self.stored.shape[1]
        row = start // columns
        rows = self.stored[slice(row, -(-max(start, stop) // columns)), slice(0, columns)]
        frames = rows.reshape(-1, *self.shape[1:])[start - row * columns : max(start, stop) - row * columns]
        return frames[(slice(None), *index[1:])]


def only_array(axes: Mapping[str, int], path: Path) -> str:
    """Returns which of a file's arrays is the only one of four axes, or of five or three, by the axes of each."""
    for count in (4, 5, 3):
        found = [each for each, number in axes.items() if number == count]
        if len(found) == 1:
            return found[0]
        if found:
            listed = shorten(", ".join(found), 200)
            raise InputError(f"{path} holds several arrays of {count} axes: choose one with --dataset: {listed}")
    raise InputError(f"{path} holds no array of three to five axes: it has {shorten(', '.join(axes), 200) or 'none'}")


@dataclass(frozen=True)
class Layout:
    """A scan in an array of a file."""

    data: PatternArray  # the scan, `(sy, sx, dy, dx)`
    axes: tuple[int | None, ...]  # the stored axis that each of its axes is; `None` for one that is none of them
    notes: tuple[str, ...] = ()  # what is left out or assumed, one line each

    def recording(self, kind: str, path: Path | str, *, notes: Sequence[str] = (), **facts: Any) -> Recording:
        """Returns the recording of the scan in a file of a kind. The notes come before those about the layout."""
        return Recording(data=self.data, format=kind, name=str(path), notes=(*notes, *self.notes), **facts)

    def arranged(self, stored: Sequence[StoredAxis]) -> list[StoredAxis]:
        """Returns the scan's axes, of those that are stored."""
        return [NO_AXIS if axis is None else stored[axis] for axis in self.axes]

    def calibration(self, stored: Sequence[StoredAxis], known: Calibration | None = None) -> dict[str, Any]:
        """Returns what the stored axes say that `known` does not, by the names of `Recording`."""
        y, x, *_ = axes = self.arranged(stored)
        calibration = known or calibration_of_axes(axes, self.data.shape)
        return vars(calibration) | {"scan_origin_angstrom": (origin_angstrom(y), origin_angstrom(x))}


def arrange(
    stored: PatternArray,  # frames, a scan, or a series of scans
    options: ReadOptions,  # what the caller says of the layout
    name: Path | str,  # the file, for messages
    *,
    # Names of the stored axes by what the file says (`namsa.io.read_options`); the caller's precede. By default scan,
    # then detector.
    order: Sequence[str] | None = None,
    stated: tuple[int, int] | None = None,  # rows and columns of the scan that frames are of, as the file states them
    stated_flyback: int | None = None,  # frames at the end of each row, as the file states them
    counters: bool = False,  # whether a series is that of a detector's counters, of which the first one stands for all
) -> Layout:
    """Returns the scan in an array.

    Raises:
        InputError: If frames do not fit a scan, if several scans are in question, or if an option does not fit.
    """
    count = len(stored.shape)
    order = options.axes or order or USUAL.get(count)
    if order is None or len(order) != count:
        said = f"--axes names {len(order)}" if options.axes and order else "3 to 5 are read"
        raise InputError(f"{name} holds an array of {count} axes, of the shape {stored.shape}: {said}")
    fixed, notes = _chosen(stored, order, options, name, counters)
    kept = SCAN_AXES if "sy" in order else FRAME_AXES
    axes = tuple(order.index(axis) for axis in kept)
    data = stored if axes == tuple(range(count)) else AxesView(stored, axes, fixed)
    if kept is FRAME_AXES:
        scan = scan_of_frames(data, options, name, stated, stated_flyback)
        return Layout(scan, (None, None, *axes[1:]), (*notes, *scan.notes))
    (rows, columns), flyback = data.shape[:2], options.flyback or 0
    whole = options.growing or options.scan_shape in (None, (rows, columns))
    if whole and not flyback and options.skip_frames == (0, 0):
        return Layout(data, axes, tuple(notes))
    if flyback >= columns:
        raise InputError(f"--flyback is {flyback}, and {name} holds a scan of {rows}x{columns}: give less")
    scan = scan_of_frames(FramesOfScan(data), options, name, (rows, columns - flyback))
    same_rows = scan.scan_shape[1] + scan.flyback == columns
    if not same_rows:
        notes.append(f"the scan of {rows}x{columns} is read as one of {scan.scan_shape[0]}x{scan.scan_shape[1]}")
    return Layout(scan, axes if same_rows else (None, None, *axes[2:]), (*notes, *scan.notes))


def _chosen(
    stored: PatternArray, order: Sequence[str], options: ReadOptions, name: Path | str, counters: bool
) -> tuple[dict[int, int], list[str]]:
    """Returns the index along the axis of a series, if there is one, and a line about it."""
    if "t" not in order:
        if options.index is not None:
            raise InputError(f"{name} holds one scan, and --index {options.index} chooses one of a series")
        return {}, []
    axis = order.index("t")
    count, what = stored.shape[axis], "counters" if counters else "scans"
    index = 0 if options.index is None and (counters or count == 1) else options.index
    if index is None or index >= count:
        said = "" if index is None else f", and --index is {index}"
        raise InputError(f"{name} holds a series of {count} {what}{said}: choose one with --index, 0 to {count - 1}")
    return {axis: index}, [f"number {index} of {count} {what} is read (--index)"] if count > 1 else []
