"""Rows of a scan while it is recorded: from a file that grows, or from a stream of arrays."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.base.errors import InputError, WorkError
from namsa.io.calibration import CalibrationOverrides, override
from namsa.io.reading import read
from namsa.io.recording import ArrayPatterns, Recording

PIECE_BYTES = 2**26  # of the rows that are read together
POLL_S = 0.2  # between looks at a file


class RowSource(Protocol):
    """Source of rows while a scan is recorded."""

    def describe(self) -> Recording:
        """Returns what is known of the whole scan, whose patterns are not read; waits for the first
        row.
        """

    def rows(self, start_row: int) -> Iterator[Array]:
        """Yields consecutive rows of patterns, `(k, sx, dy, dx)`, from row `start_row` to the
        last; waits for them.
        """


@dataclass
class GrowingFile:
    """A file that another program writes, row after row."""

    # the file, of a format whose frames follow each other (Merlin, raw) or HDF5 in SWMR mode
    path: Path
    scan_shape: tuple[int, int]  # rows and columns of the whole scan
    calibration: CalibrationOverrides  # what the caller knows better than the file
    options: Mapping[str, Any] = field(default_factory=dict)  # what `namsa.read` takes beside
    wait_s: float = 60.0  # time without a new row after which the writer counts as stopped
    sleep: Callable[[float], None] = time.sleep  # waits for so many seconds

    def describe(self) -> Recording:
        """Returns what the file and the caller say as soon as it holds a row."""
        with self._open(0) as recording:
            return override(_of_whole_scan(recording, self.scan_shape), self.calibration)

    def rows(self, start_row: int) -> Iterator[Array]:
        """Yields the rows from `start_row` on, as soon as they are complete."""
        sy, sx = self.scan_shape
        row = start_row
        while row < sy:
            with self._open(row) as recording:
                stop = min(sy, recording.shape[0])
                together = max(
                    1,
                    PIECE_BYTES
                    // (recording.dtype.itemsize * sx * int(np.prod(recording.shape[2:]))),
                )
                while row < stop:
                    rows = slice(row, min(row + together, stop))
                    yield corrected(
                        recording.read(rows, slice(0, sx)), row, self.scan_shape, self.calibration
                    )
                    row = rows.stop

    @contextmanager
    def _open(self, row: int) -> Iterator[Recording]:
        """Opens the file as soon as it holds a row.

        Raises:
            InputError: If it cannot be read even after the time to wait, or if its rows are of
                another length.
            WorkError: If it holds no such row after this time.
        """
        (sy, sx), waited = self.scan_shape, 0.0
        while True:
            with ExitStack() as stack:
                problem: InputError | WorkError
                try:
                    recording = stack.enter_context(
                        read(self.path, scan_shape=self.scan_shape, growing=True, **self.options)
                    )
                except InputError as error:  # as long as the first row is not complete
                    problem = error
                else:
                    rows, columns = recording.shape[:2]
                    if columns != sx:
                        raise InputError(
                            f"{self.path} holds rows of {columns} patterns, not of {sx}: give "
                            "another --scan-shape"
                        )
                    if rows > row:
                        yield recording
                        return
                    problem = WorkError(
                        f"{self.path} holds {rows} of {sy} rows, and none was added for "
                        f"{self.wait_s:g} s: run the same command again when it grows"
                    )
            if waited >= self.wait_s:
                raise problem
            self.sleep(POLL_S)
            waited += POLL_S


@dataclass
class ArrayStream:
    """Patterns as a program gets them from a detector, in arrays of any number of them, in the
    scan's order.
    """

    # Arrays whose last two axes are the detector's, `(..., dy, dx)`; they begin with `first_row`.
    arrays: Iterable[npt.ArrayLike]
    scan_shape: tuple[int, int]  # rows and columns of the whole scan
    calibration: CalibrationOverrides  # what is known of the scan
    first_row: int = 0  # row of the scan that the arrays begin with

    def __post_init__(self) -> None:
        self._frames = self._checked_frames()
        self._held: list[Array] = []

    def describe(self) -> Recording:
        """Returns what is known as soon as there is an array."""
        self._held.append(next(self._frames))
        first_array = self._held[0]
        array = Recording(ArrayPatterns(first_array[None]), format="array", name="the stream")
        return override(_of_whole_scan(array, self.scan_shape), self.calibration)

    def rows(self, start_row: int) -> Iterator[Array]:
        """Yields the rows from `start_row` on; those before are left out.

        Raises:
            InputError: If the stream begins after `start_row`.
            WorkError: If it ends before the scan does.
        """
        if start_row < self.first_row:
            raise InputError(
                f"the stream begins with row {self.first_row}: begin with row {start_row}"
            )
        sy, sx = self.scan_shape
        row = self.first_row
        held = self._held
        while row < sy:
            while sum(map(len, held)) < sx:
                array = next(self._frames, None)
                if array is None:
                    raise WorkError(
                        f"the stream ended within row {row} of {sy}: continue with row {row}"
                    )
                held.append(array)
            frames = np.concatenate(held) if len(held) > 1 else held[0]
            count = min(len(frames) // sx, sy - row)
            complete, held[:] = frames[: count * sx], [frames[count * sx :]]
            left_out = max(0, min(count, start_row - row))
            if left_out < count:
                rows = complete.reshape(count, sx, *complete.shape[1:])[left_out:]
                yield corrected(rows, row + left_out, self.scan_shape, self.calibration)
            row += count

    def _checked_frames(self) -> Iterator[Array]:
        """Yields the arrays as frames `(n, dy, dx)`."""
        shape: tuple[int, ...] | None = None
        for given in self.arrays:
            array = np.asarray(given)
            if (
                array.ndim < 2
                or array.dtype.kind not in "uif"
                or shape not in (None, array.shape[-2:])
            ):
                expected = "(..., dy, dx)" if shape is None else f"(..., {shape[0]}, {shape[1]})"
                raise InputError(
                    f"the stream gives an array of shape {array.shape} and type {array.dtype}: "
                    f"give numbers {expected}"
                )
            shape = array.shape[-2:]
            if array.size:
                yield array.reshape(-1, *shape)
        if shape is None:
            raise WorkError("the stream ended before its first pattern")


def corrected(
    block: Array, first_row: int, scan_shape: tuple[int, int], calibration: CalibrationOverrides
) -> Array:
    """Returns rows of patterns with the calibration's corrections, which may depend on the place in
    the scan.

    Args:
        block: Rows as they were recorded, `(k, sx, dy, dx)`.
        first_row: The first of them in the scan.
        scan_shape: Rows and columns of the whole scan.
        calibration: What the caller knows, such as bad pixels.
    """
    if not calibration.bad_pixels and calibration.centre_slope is None:
        return block
    rows = RowsOfScan(block, first_row, scan_shape[0])
    known = override(Recording(rows, format="array", name="the rows"), calibration)
    return known.read(slice(first_row, first_row + len(block)), slice(0, scan_shape[1]))


@dataclass(frozen=True)
class RowsOfScan:
    """Some rows of a scan in memory, in place of the whole scan."""

    block: Array  # the rows, `(k, sx, dy, dx)`
    first_row: int  # the first of them
    row_count: int  # rows of the whole scan
    chunks: None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole scan."""
        return (self.row_count, *self.block.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers."""
        return self.block.dtype

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Returns a part of the rows that are in memory."""
        rows, *rest = index
        return self.block[(slice(rows.start - self.first_row, rows.stop - self.first_row), *rest)]


def _of_whole_scan(recording: Recording, scan: tuple[int, int]) -> Recording:
    """Returns the recording with the shape of the whole scan, and with patterns that are not
    there.
    """
    nothing = np.broadcast_to(np.zeros((), recording.dtype), (*scan, *recording.shape[2:]))
    return replace(recording, data=ArrayPatterns(nothing))
