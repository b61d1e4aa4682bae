"""TVIPS: .tvips streams of a TemCam, frame after frame in several files, name_000.tvips,
name_001.tvips, ...

The first file begins with 256 bytes about the series: version, width, height, bits per pixel,
voltage in kV, and in version 2 the bytes of a frame's header. A frame's header of version 2 has,
from byte 68 on, the column and row of the scan generator, from 0, by which frames get their places
(`namsa.io.scan_counts`).

Sources: TVIPS' description of the format as far as LiberTEM's documentation has it.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.base.errors import InputError
from namsa.base.files import open_regular
from namsa.io.frames import FileFrames, JoinedFrames, file_frames
from namsa.io.layout import arrange
from namsa.io.planes import read_at
from namsa.io.read_options import ReadOptions
from namsa.io.recording import PatternArray, Recording
from namsa.io.scan_counts import CountedScan, scan_by_counts
from namsa.io.scan_order import PlacedFrames
from namsa.io.siblings import siblings

NAME = "TVIPS"
SUFFIXES = (".tvips",)

HEADER = np.dtype(
    [
        *((name, "<i4") for name in ("size", "version", "columns", "rows", "bits")),
        *((name, "<i4") for name in ("x_offset", "y_offset", "x_binning", "y_binning")),
        *((name, "<i4") for name in ("pixel_nm", "voltage_kv", "magnification", "frame_header")),
    ]
)
SERIES_BYTES = 256
FIRST_FRAME_HEADER = 12
SCAN_AT = 68  # bytes from the beginning of a frame's header
TYPES = {8: "u1", 16: "<u2"}
NUMBERED = re.compile(r"(.*_)(\d{3})(\.tvips)", re.IGNORECASE)
MOST_FILES = 1000
MOST_FRAMES = 2**22  # whose place in the scan is read


class _Series(NamedTuple):
    """Header of the first file, which holds for all."""

    shape: tuple[int, int]
    stored: np.dtype[np.generic]
    frame_header: int
    version: int

    @property
    def stride(self) -> int:
        """Bytes of a frame with its header."""
        return self.frame_header + self.shape[0] * self.shape[1] * self.stored.itemsize


def recognises(path: Path, head: bytes) -> bool:
    """Returns whether it is named as a stream, and begins as one or is a later part of one."""
    return path.suffix.lower() in SUFFIXES


@contextmanager
def open_recording(path: Path, options: ReadOptions) -> Iterator[Recording]:
    """Opens a stream by any of its files."""
    paths = _parts(path)
    with ExitStack() as stack:
        files = [stack.enter_context(open_regular(path_of_part)) for path_of_part in paths]
        header, series = _read_header(paths[0], files[0])
        pieces: list[FileFrames] = []
        for path_of_part, file in zip(paths, files, strict=True):
            pieces.append(_frames(path_of_part, file, series, is_first=not pieces))
        frames = pieces[0] if len(pieces) == 1 else JoinedFrames(pieces)
        placed = _PlacedPatterns(frames, options.skip_frames, ())
        counted = _counted_scan(pieces, series, options)
        stated = None
        if counted is not None:
            stated = counted.shape
            if _counts_decide(counted, options):
                placed = _placed_by_counts(frames, counted, options, path)
        layout = arrange(placed.patterns, options.skipping(placed.skip), path, stated=stated)
        voltage_kv = int(header["voltage_kv"])
        yield layout.recording(
            NAME,
            path,
            notes=placed.notes,
            energy_ev=1e3 * voltage_kv if voltage_kv > 0 else None,
            metadata={
                "frames": frames.shape[0],
                "files": len(paths),
                "camera_pixel_nm": int(header["pixel_nm"]),
                "binning": [int(header["y_binning"]), int(header["x_binning"])],
            },
        )


class _PlacedPatterns(NamedTuple):
    """The patterns of a scan, or frames that make it without some at both ends."""

    patterns: PatternArray
    skip: tuple[int, int]  # number of frames before and after the scan
    notes: tuple[str, ...]


def _counted_scan(
    pieces: Sequence[FileFrames], series: _Series, options: ReadOptions
) -> CountedScan | None:
    """Returns the scan by the scan generator's counts; `None` without usable counts."""
    if not _has_counts(series) or options.growing:
        return None
    places = np.concatenate([_places(piece, series) for piece in pieces])
    return scan_by_counts(places.astype(np.float64))


def _counts_decide(counted: CountedScan, options: ReadOptions) -> bool:
    """Returns whether the caller leaves it to the counts which frame is where."""
    if options.skip_frames != (0, 0) or options.dropped_frames:
        return False
    return options.scan_shape in (None, counted.shape)


def _placed_by_counts(
    frames: FileFrames | JoinedFrames, counted: CountedScan, options: ReadOptions, path: Path
) -> _PlacedPatterns:
    """Returns the frames where the scan generator's counts place them."""
    rows, columns = counted.shape
    notes = (f"scan of {rows}x{columns} by the scan generator's counts", *counted.notes)
    if counted.is_plain:
        after = frames.shape[0] - counted.first - len(counted.numbers)
        return _PlacedPatterns(frames, (counted.first, after), notes)
    if options.flyback:
        raise InputError(
            f"{path} counts rows and columns of its frames, which say which are of "
            "the scan: leave out --flyback"
        )
    return _PlacedPatterns(PlacedFrames(frames, counted.numbers), options.skip_frames, notes)


def _parts(path: Path) -> list[Path]:
    """Returns the files of a stream in their order; one that is not numbered is alone."""
    numbered = NUMBERED.fullmatch(path.name)
    if numbered is None:
        return [path]
    parts = {}
    for other in siblings(path, ".tvips"):
        match = NUMBERED.fullmatch(other.name)
        if match is not None and match[1] == numbered[1]:
            parts[int(match[2])] = other
    missing = [
        file_number for file_number in range(max(parts, default=0) + 1) if file_number not in parts
    ]
    if missing:
        name = f"{numbered[1]}{missing[0]:03d}{numbered[3]}"
        raise InputError(
            f"{path} is part of a stream of which {name} is missing: copy it beside it"
        )
    if len(parts) > MOST_FILES:
        raise InputError(
            f"{path} is part of a stream of {len(parts)} files, at most {MOST_FILES} are read"
        )
    return [parts[file_number] for file_number in sorted(parts)]


def _read_header(path: Path, file: BinaryIO) -> tuple[np.void, _Series]:
    """Returns the header of the series."""
    data = read_at(file, HEADER.itemsize, 0)
    if len(data) < HEADER.itemsize:
        raise InputError(
            f"{path} is no stream of TVIPS: it has {len(data)} bytes, and its header takes "
            f"{SERIES_BYTES}"
        )
    header: np.void = np.frombuffer(data, HEADER)[0]
    version = int(header["version"])
    bits = int(header["bits"])
    shape = int(header["rows"]), int(header["columns"])
    header_bytes = FIRST_FRAME_HEADER if version == 1 else int(header["frame_header"])
    if (
        int(header["size"]) != SERIES_BYTES
        or version not in (1, 2)
        or bits not in TYPES
        or not 0 < header_bytes <= 2**16
    ):
        raise InputError(
            f"{path} is no stream of TVIPS, or is damaged: its header of {header['size']} bytes "
            f"states version {version}, {bits} bits, and frame headers of {header_bytes} bytes"
        )
    if min(shape) < 1:
        raise InputError(f"{path} is damaged: it states frames of {shape[0]}x{shape[1]} pixels")
    return header, _Series(shape, np.dtype(TYPES[bits]), header_bytes, version)


def _frames(path: Path, file: BinaryIO, series: _Series, is_first: bool) -> FileFrames:
    """Returns the frames in a file."""
    start = SERIES_BYTES if is_first else 0
    count, rest = divmod(os.fstat(file.fileno()).st_size - start, series.stride)
    if rest:
        raise InputError(
            f"{path} is cut short: {rest} bytes follow its {count} frames of {series.stride} bytes"
        )
    begin = start + series.frame_header
    offsets = range(begin, begin + count * series.stride, series.stride)
    return file_frames(path, file, offsets, series.shape, series.stored)


def _has_counts(series: _Series) -> bool:
    """Returns whether the frames' headers hold the counts of the scan generator."""
    return series.version > 1 and series.frame_header >= SCAN_AT + 8


def _places(frames: FileFrames, series: _Series) -> npt.NDArray[np.float32]:
    """Returns the row and the column of each frame, `(n, 2)`."""
    if len(frames.offsets) > MOST_FRAMES:
        return np.zeros((len(frames.offsets), 2), np.float32)
    headers = (
        read_at(frames.file, 8, offset - series.frame_header + SCAN_AT) for offset in frames.offsets
    )
    return np.frombuffer(b"".join(headers), "<f4").reshape(-1, 2)[:, ::-1]
