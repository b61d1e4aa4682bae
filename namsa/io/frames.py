"""Detector frames one after the other in a file, and the scan that they are of.

Most instruments write frame after frame, each at a known place. `FileFrames` reads them by plain
reads: a map of the file into memory would end the process if the file is cut while it is read.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.base.errors import InputError, WorkError
from namsa.base.files import system_errors
from namsa.base.text import plural
from namsa.io.planes import read_at
from namsa.io.read_options import ReadOptions
from namsa.io.recording import PatternArray, PatternView
from namsa.io.scan_order import with_dropped

Offsets = range | npt.NDArray[np.int64]
Decode = Callable[[npt.NDArray[np.uint8]], Array]  # (frames, bytes) to (frames, dy, dx)

READ_BYTES = 2**24  # at once
GAP_BYTES = 2**16  # between frames that are read together
MAX_PIXELS = 2**26  # of a frame
SUGGESTIONS = 3


class UnknownScanShapeError(InputError):
    """Neither the file nor the caller says the shape of the scan that frames are of."""

    def __init__(self, name: Path | str, frames: int, fits: str) -> None:
        super().__init__(
            f"{name} holds {frames:,} frames and does not state the scan's shape: give "
            f"--scan-shape SYxSX; {fits}"
        )
        self.frames = frames
        self.fits = fits


@dataclass(frozen=True)
class FileFrames:
    """Frames at known places of a file."""

    path: Path  # the file, for messages
    file: BinaryIO  # the open file
    offsets: Offsets  # byte at which each frame begins
    frame_bytes: int  # bytes of a frame
    frame_shape: tuple[int, int]  # its shape (dy, dx)
    dtype: np.dtype[np.generic]  # type of the decoded numbers
    decode: Decode  # from bytes `(frames, frame_bytes)` to frames
    chunks: None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (n, dy, dx)."""
        return (len(self.offsets), *self.frame_shape)

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Returns consecutive frames, or a part of each. Raises WorkError if the file ends before
        them.
        """
        start, stop, _ = index[0].indices(len(self.offsets))
        frames = np.empty((max(0, stop - start), *self.frame_shape), self.dtype)
        stride = self._stride()
        together = max(1, READ_BYTES // stride) if stride - self.frame_bytes <= GAP_BYTES else 1
        for frame in range(start, stop, together):
            count = min(together, stop - frame)
            data = self._read(
                int(self.offsets[frame]), (count - 1) * stride + self.frame_bytes, frame
            )
            stored = np.frombuffer(data.ljust(count * stride, b"\0"), np.uint8).reshape(count, -1)
            frames[frame - start : frame - start + count] = self.decode(
                stored[:, : self.frame_bytes]
            )
        return frames[(slice(None), *index[1:])]

    def _stride(self) -> int:
        """Returns the distance of the frames; without a common one it is too large for reading
        several at once.
        """
        if isinstance(self.offsets, range):
            return max(self.offsets.step, self.frame_bytes)
        return self.frame_bytes + GAP_BYTES + 1

    def _read(self, offset: int, size: int, frame: int) -> bytes:
        with system_errors(f"cannot read {self.path} at frame {frame}"):
            data = read_at(self.file, size, offset)
        if len(data) < size:
            raise WorkError(
                f"cannot read {self.path} at frame {frame}: it has become shorter since it was "
                "opened"
            )
        return data


@dataclass(frozen=True)
class JoinedFrames:
    """Frames of several pieces, one after the other."""

    pieces: Sequence[PatternArray]  # frames `(n, dy, dx)` of one type and size

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (n, dy, dx)."""
        return (sum(piece.shape[0] for piece in self.pieces), *self.pieces[0].shape[1:])

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return self.pieces[0].dtype

    @property
    def chunks(self) -> tuple[int, ...] | None:
        return self.pieces[0].chunks

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Returns consecutive frames, or a part of each."""
        start, stop, _ = index[0].indices(self.shape[0])
        frames = [np.empty((0, *self.shape[1:]), self.dtype)]
        offset = 0
        for piece in self.pieces:
            low = max(start - offset, 0)
            high = min(stop - offset, piece.shape[0])
            if low < high:
                frames.append(piece[low:high,])
            offset += piece.shape[0]
        return np.concatenate(frames)[(slice(None), *index[1:])]


@dataclass(frozen=True)
class ScanOfFrames(PatternView):
    """The scan that frames `(n, dy, dx)` are of, row after row."""

    scan_shape: tuple[int, int]  # rows and columns of the scan
    flyback: int = 0  # frames at the end of each row that are no part of the scan
    first_frame: int = 0  # the scan's first frame
    notes: tuple[str, ...] = ()  # what is left out, one line each

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (scan y, scan x, detector y, detector x)."""
        return (*self.scan_shape, *self.stored.shape[1:])

    @property
    def chunks(self) -> tuple[int, ...] | None:
        if self.stored.chunks is None:
            return None
        count, *frame = self.stored.chunks
        columns = self.scan_shape[1]
        return (
            max(1, min(self.scan_shape[0], count // (columns + self.flyback))),
            min(count, columns),
            *frame,
        )

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Returns a part; there is a slice for each of the first axes."""
        slices = (*index, *(slice(None),) * (4 - len(index)))
        rows, columns = (
            range(*span.indices(n)) for span, n in zip(slices[:2], self.scan_shape, strict=True)
        )
        patterns = np.empty((len(rows), len(columns), *self.stored.shape[1:]), self.dtype)
        if (
            patterns.size
            and len(columns) == self.scan_shape[1]
            and rows.step == 1
            and columns.step == 1
        ):
            line = self.scan_shape[1] + self.flyback
            frames = self.stored[
                self.first_frame + rows.start * line : self.first_frame
                + rows.stop * line
                - self.flyback,
            ]
            last = len(columns)
            for place in range(len(rows)):
                patterns[place] = frames[place * line : place * line + last]
        elif patterns.size:
            low = min(columns)
            high = max(columns) + 1
            for place, row in enumerate(rows):
                line_start = self.first_frame + row * (self.scan_shape[1] + self.flyback)
                patterns[place] = self.stored[line_start + low : line_start + high,][
                    [column - low for column in columns]
                ]
        return patterns[:, :, slices[2], slices[3]]


@dataclass(frozen=True)
class SeriesOfFrames(PatternView):
    """A series of scans that frames `(n, dy, dx)` are of, one scan after the other."""

    count: int  # number of scans
    scan_shape: tuple[int, int]  # rows and columns of each
    chunks: None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (scan, scan y, scan x, detector y, detector x)."""
        return (self.count, *self.scan_shape, *self.stored.shape[1:])

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Returns a part; there is a slice for each of the first axes."""
        size = math.prod(self.scan_shape)
        numbers = range(*index[0].indices(self.count))
        return np.stack(
            [ScanOfFrames(self.stored, self.scan_shape, 0, n * size)[index[1:]] for n in numbers]
        )


def file_frames(
    path: Path,  # the file, for messages
    file: BinaryIO,
    offsets: Offsets,  # byte at which each frame begins
    frame_shape: tuple[int, int],  # shape (dy, dx) of a frame
    # type of the stored numbers; without `decode`, frames are these numbers in the order of C
    stored: np.dtype[np.generic],
    decode: Decode | None = None,  # from bytes `(frames, bytes)` to frames of the type `stored`
    # bytes of a frame, if they are others than those of its numbers
    frame_bytes: int | None = None,
) -> FileFrames:
    """Returns the frames of a file after a check that it holds them.

    Raises:
        InputError: If there is no frame, or if frames are too large, reach beyond the end of the
            file, or overlap.
    """
    height, width = frame_shape
    native = stored.newbyteorder("=")
    if not 0 < height * width <= MAX_PIXELS or min(frame_shape) < 1:
        raise InputError(
            f"{path} declares a detector of {height}x{width} pixels: 1 to {MAX_PIXELS} are read"
        )
    size = height * width * stored.itemsize if frame_bytes is None else frame_bytes
    length = os.fstat(file.fileno()).st_size
    if not len(offsets):
        raise InputError(
            f"{path} holds no frame: it has {length} bytes, and one frame takes {size}"
        )
    low, high = (
        (offsets[0], offsets[-1]) if isinstance(offsets, range) else (min(offsets), max(offsets))
    )
    if low < 0 or high + size > length:
        raise InputError(
            f"{path} is cut short: it declares {len(offsets)} frames to byte {high + size}, has "
            f"{length}"
        )
    if len(offsets) * size > length:
        raise InputError(
            f"{path} is damaged: {len(offsets)} frames of {size} bytes overlap in its {length} "
            "bytes"
        )

    def plain(data: npt.NDArray[np.uint8]) -> Array:
        return np.ascontiguousarray(data).view(stored).reshape(-1, height, width)

    return FileFrames(path, file, offsets, size, frame_shape, native, decode or plain)


def scan_of_frames(
    frames: PatternArray,  # the frames, `(n, dy, dx)`
    # the caller's scan shape, which takes precedence, flyback, and frames to skip
    options: ReadOptions,
    name: Path | str,  # the file, for messages
    stated: tuple[int, int] | None = None,  # rows and columns as the file states them
    stated_flyback: int | None = None,  # frames at the end of each row, as the file states them
) -> ScanOfFrames:
    """Returns the scan that frames are of.

    One frame more per row, or per row but the last, is the beam's flyback. Any other number of
    frames that are no part of the scan must be said by the caller: frames before the scan would
    shift it, and those of a flyback shear it.

    Raises:
        InputError: If the shape of the scan is not known, or does not fit the number of frames.
    """
    frames = with_dropped(frames, options.dropped_frames, name)
    before, after = options.skip_frames
    total = frames.shape[0]
    count = total - before - after
    if count < 1:
        raise InputError(
            f"{name} holds {total:,} frames, and --skip-frames skips {before + after:,}"
        )
    flyback = stated_flyback if options.flyback is None else options.flyback
    shape = options.scan_shape or stated or ((1, 1) if count == 1 else None)
    if shape is None:
        raise UnknownScanShapeError(name, count, _suggestions(count, flyback or 0))
    rows, columns = shape
    notes = []
    if options.dropped_frames:
        dropped = plural(len(options.dropped_frames), "dropped frame")
        notes.append(f"{dropped}: an empty pattern is in the place of each")
    for skipped, where in ((before, "before"), (after, "after")):
        if skipped:
            notes.append(f"{skipped:,} frames {where} the scan left out")
    extra = count - rows * columns
    if flyback is None and not options.growing and extra > 1 and extra in (rows, rows - 1):
        flyback = 1
        notes.append(
            f"{extra:,} frames more than {rows}x{columns}: 1 frame of flyback at the end of each "
            "row left out"
        )
    elif flyback:
        notes.append(f"{flyback:,} frames of flyback at the end of each row left out")
    flyback = flyback or 0
    line = columns + flyback
    if options.growing and count < rows * line - flyback:
        rows = (count + flyback) // line
        if not rows:
            raise InputError(
                f"{name} holds {count:,} frames so far, and the first row takes {line:,}"
            )
    elif count not in (rows * line, rows * line - flyback):
        raise InputError(_misfit(name, count, (rows, columns), flyback, options))
    return ScanOfFrames(frames, (rows, columns), flyback, before, tuple(notes))


def _misfit(
    name: Path | str, count: int, shape: tuple[int, int], flyback: int, options: ReadOptions
) -> str:
    """Returns the message about a number of frames that does not fit the scan, with the options
    that repair it.
    """
    rows, columns = shape
    line = columns + flyback
    needed = rows * line - flyback
    skipped = options.skip_frames[0]
    source = "--scan-shape" if options.scan_shape else "the file"
    with_flyback = f" with a flyback of {flyback}" if flyback else ""
    message = (
        f"{name} holds {count:,} frames, and {source} says {rows}x{columns}, which takes "
        f"{needed:,}{with_flyback}: "
    )
    extra = count - needed
    if extra < 0:
        complete_rows = (count + flyback) // line
        if not complete_rows:
            return f"{message}{_suggestions(count, flyback)}"
        rest = max(0, count - complete_rows * line)
        skip = f" --skip-frames {skipped} {rest}" if rest else ""
        return (
            f"{message}give --scan-shape {complete_rows}x{columns}{skip} for its complete rows; "
            f"{_suggestions(count, flyback)}"
        )
    remedies = [
        f"--skip-frames {skipped + extra} if they were recorded before the scan",
        f"--skip-frames {skipped} {extra} if after it",
    ]
    per_row = -(-count // rows) - columns
    if rows > 1 and count in (rows * (columns + per_row), rows * (columns + per_row) - per_row):
        remedies.append(f"--flyback {per_row} if at the end of each row")
    return (
        f"{message}say where the {extra:,} others are: give {', '.join(remedies)}; or --scan-shape"
    )


def _suggestions(count: int, flyback: int) -> str:
    """Returns the shapes of scans of so many frames, the most square ones first."""
    shapes = []
    for divisor in range(math.isqrt(count), 0, -1):
        if count % divisor == 0:
            for rows in sorted({divisor, count // divisor}):
                columns = count // rows - flyback
                if columns > 0:
                    shapes.append((rows, columns))
        if len(shapes) >= SUGGESTIONS:
            break
    squares = [shape for shape in shapes if shape[0] == shape[1]]
    texts = [f"{rows}x{columns}" for rows, columns in squares or shapes[:SUGGESTIONS]]
    return f"{' or '.join(texts)} would fit"
