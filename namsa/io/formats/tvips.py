"""TVIPS: .tvips streams of a TemCam, frame after frame in several files, name_000.tvips, name_001.tvips, ...

The first file begins with 256 bytes about the series: version, width, height, bits per pixel, voltage in kV, and in
version 2 the bytes of a frame's header. A frame's header of version 2 has, from byte 68 on, the column and row of the
scan generator, from 0. The scan begins where they begin to count, and ends where they do; other frames are left out.

Sources: TVIPS' description of the format as far as LiberTEM's documentation has it.
"""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.errors import InputError
from namsa.files import open_regular
from namsa.io.frames import FileFrames, JoinedFrames, file_frames
from namsa.io.layout import arrange
from namsa.io.planes import read_at
from namsa.io.read_options import ReadOptions
from namsa.io.recording import Recording
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
SERIES_BYTES, FIRST_FRAME_HEADER = 256, 12
SCAN_AT = 68  # bytes from the beginning of a frame's header
TYPES = {8: "u1", 16: "<u2"}
NUMBERED = re.compile(r"(.*_)(\d{3})(\.tvips)", re.IGNORECASE)
MOST_FILES = 1000
MOST_FRAMES = 2**22  # whose place in the scan is read


class _Series(NamedTuple):
    """What the first file says of all."""

    shape: tuple[int, int]
    stored: np.dtype[Any]
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
        files = [stack.enter_context(open_regular(each)) for each in paths]
        header, series = _read_header(paths[0], files[0])
        pieces = [
            _frames(*each, series, first=not number) for number, each in enumerate(zip(paths, files, strict=True))
        ]
        frames = pieces[0] if len(pieces) == 1 else JoinedFrames(pieces)
        stated, skip, notes = None, options.skip_frames, list[str]()
        if series.version > 1 and series.frame_header >= SCAN_AT + 8 and not options.growing:
            places = np.concatenate([_places(piece, series) for piece in pieces])
            stated, found = _scan(places)
            if skip == (0, 0) and stated is not None and options.scan_shape in (None, stated):
                skip = found
                notes = [f"scan of {stated[0]}x{stated[1]} by the scan generator's counts"]
        layout = arrange(frames, options.skipping(skip), path, stated=stated)
        yield layout.recording(
            NAME,
            path,
            notes=notes,
            energy_ev=1e3 * int(header["voltage_kv"]) if header["voltage_kv"] > 0 else None,
            metadata={
                "frames": frames.shape[0],
                "files": len(paths),
                "camera_pixel_nm": int(header["pixel_nm"]),
                "binning": [int(header["y_binning"]), int(header["x_binning"])],
            },
        )


def _parts(path: Path) -> list[Path]:
    """Returns the files of a stream in their order; one that is not numbered is alone."""
    numbered = NUMBERED.fullmatch(path.name)
    if numbered is None:
        return [path]
    found = {}
    for other in siblings(path, ".tvips"):
        match = NUMBERED.fullmatch(other.name)
        if match is not None and match[1] == numbered[1]:
            found[int(match[2])] = other
    missing = [number for number in range(max(found, default=0) + 1) if number not in found]
    if missing:
        name = f"{numbered[1]}{missing[0]:03d}{numbered[3]}"
        raise InputError(f"{path} is part of a stream of which {name} is missing: copy it beside it")
    if len(found) > MOST_FILES:
        raise InputError(f"{path} is part of a stream of {len(found)} files, at most {MOST_FILES} are read")
    return [found[number] for number in sorted(found)]


def _read_header(path: Path, file: BinaryIO) -> tuple[Any, _Series]:
    """Returns the header of the series."""
    data = read_at(file, HEADER.itemsize, 0)
    if len(data) < HEADER.itemsize:
        raise InputError(f"{path} is no stream of TVIPS: it has {len(data)} bytes, and its header takes {SERIES_BYTES}")
    header: Any = np.frombuffer(data, HEADER)[0]
    version, bits = int(header["version"]), int(header["bits"])
    shape = int(header["rows"]), int(header["columns"])
    own = FIRST_FRAME_HEADER if version == 1 else int(header["frame_header"])
    if int(header["size"]) != SERIES_BYTES or version not in (1, 2) or bits not in TYPES or not 0 < own <= 2**16:
        raise InputError(
            f"{path} is no stream of TVIPS, or is damaged: its header of {header['size']} bytes states version "
            f"{version}, {bits} bits, and frame headers of {own} bytes"
        )
    if min(shape) < 1:
        raise InputError(f"{path} is damaged: it states frames of {shape[0]}x{shape[1]} pixels")
    return header, _Series(shape, np.dtype(TYPES[bits]), own, version)


def _frames(path: Path, file: BinaryIO, series: _Series, first: bool) -> FileFrames:
    """Returns the frames in a file."""
    start = SERIES_BYTES if first else 0
    count, rest = divmod(os.fstat(file.fileno()).st_size - start, series.stride)
    if rest:
        raise InputError(f"{path} is cut short: {rest} bytes follow its {count} frames of {series.stride} bytes")
    begin = start + series.frame_header
    offsets = range(begin, begin + count * series.stride, series.stride)
    return file_frames(path, file, offsets, series.shape, series.stored)


def _places(frames: FileFrames, series: _Series) -> npt.NDArray[np.float32]:
    """Returns the row and the column of each frame, `(n, 2)`."""
    if len(frames.offsets) > MOST_FRAMES:
        return np.zeros((len(frames.offsets), 2), np.float32)
    headers = (read_at(frames.file, 8, offset - series.frame_header + SCAN_AT) for offset in frames.offsets)
    return np.frombuffer(b"".join(headers), "<f4").reshape(-1, 2)[:, ::-1]


def _scan(places: npt.NDArray[np.float32]) -> tuple[tuple[int, int] | None, tuple[int, int]]:
    """Returns rows and columns that frames count through without a gap, and the frames before and after them."""
    count = len(places)
    starts = np.flatnonzero((places[:-1] == 0).all(axis=1) & (places[1:] == (0, 1)).all(axis=1))
    if not len(starts):
        return None, (0, 0)
    first = int(starts[0])
    later = places[first:]
    ends = np.flatnonzero(later[:, 0] != 0)
    columns = int(ends[0]) if len(ends) else len(later)
    expected = np.stack(np.divmod(np.arange(len(later)), columns), axis=1)
    agree = (later == expected).all(axis=1)
    rows = (len(later) if agree.all() else int(np.argmin(agree))) // columns
    return ((rows, columns), (first, count - first - rows * columns)) if rows else (None, (0, 0))
