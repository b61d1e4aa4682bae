"""FRMS6 of PNDetector (pnCCD): NAME.hdr and NAME_000.frms6, NAME_001.frms6, ...

The first file has dark frames, whose mean is subtracted. A frame is folded: each stored row is a
row of the upper half, then one of the lower half backwards, the last one first. Rows may be binned
along y, as they are stored.

Source: the layout that the reader of LiberTEM (MIT) describes.
"""

import configparser
import math
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array, Floats
from namsa.base.errors import InputError
from namsa.base.files import open_regular, read_text
from namsa.base.text import shorten
from namsa.io.frames import FileFrames, JoinedFrames, file_frames
from namsa.io.layout import arrange
from namsa.io.read_options import ReadOptions
from namsa.io.recording import Recording
from namsa.io.referenced_frames import ReferencedFrames, ReferenceImages

NAME = "FRMS6"
SUFFIXES = (".frms6",)

HEADER_BYTES = 1024
FRAME_HEADER_BYTES = 64
VERSION = 6
SIDES_AT = 88
COUNT_AT = 1020
SECTION = "measurementInfo"
HDR_BYTES = 2**20
DARK_FRAMES = 4096  # of which the mean is taken, at most
READ_FRAMES = 64  # at once


class FileHeader(NamedTuple):
    """Header of a file of frames."""

    columns: int  # of stored rows
    rows: int  # of stored frames
    frames: int


def recognises(path: Path, head: bytes) -> bool:
    """Returns whether the first bytes are those of a file of frames, or of the .hdr beside them."""
    if path.suffix.lower() == ".hdr":
        return f"[{SECTION}]".encode() in head
    return len(head) >= HEADER_BYTES and _has_mark(head)


@contextmanager
def open_recording(path: Path, options: ReadOptions) -> Iterator[Recording]:
    """Opens the frames of a measurement by its .hdr or any of its files."""
    base = re.sub(r"_\d{3}$", "", path.stem)
    files = _files(path, base)
    if not files:
        raise InputError(f"there is no file {path.with_name(f'{base}_000.frms6')} beside {path}")
    stated = _stated(path.with_name(f"{base}.hdr"))
    with ExitStack() as stack:
        opened = [_frames(file, stack) for file in files]
        dark, *signal = opened
        if not signal or dark.shape[0] == 0:
            raise InputError(f"{files[0]} has the dark frames, and there are no others beside it")
        if any(frames.shape[1:] != dark.shape[1:] for frames in signal):
            raise InputError(f"{path} is damaged: its files have frames of several sizes")
        notes = [f"the mean of {dark.shape[0]:,} dark frames in {files[0].name} is subtracted"]
        joined = JoinedFrames(signal)
        shape = _pair(stated.get("stemimagesize", ""))
        count = joined.shape[0]
        if shape is not None and math.prod(shape) != count:
            size = f"{shape[0]}x{shape[1]}"
            notes.append(f"the scan of {size} in the .hdr does not fit {count:,} frames: not used")
            shape = None
        if shape is not None and shape[0] != shape[1]:
            notes.append(
                f"the .hdr's scan of {shape[0]}x{shape[1]} is read as rows x columns; "
                f"--scan-shape {shape[1]}x{shape[0]} says the other way"
            )
        match = re.search(r"bin:\s*(\d+)", stated.get("readoutmode", ""))
        if match and int(match[1]) > 1:
            notes.append(
                f"rows are binned by {match[1]}, as they are stored: pixels are {match[1]} times "
                "as high as wide; --pixel-mrad takes y and x"
            )
        frames = ReferencedFrames(joined, ReferenceImages(_mean(dark), None))
        layout = arrange(frames, options, path, stated=shape)
        metadata: dict[str, object] = {"frames": count, "files": len(files)}
        for name in ("gain", "dwelltimemicroseconds", "readoutmode"):
            metadata[name] = stated.get(name)
        yield layout.recording(NAME, path, notes=notes, metadata=metadata)


def _files(path: Path, base: str) -> list[Path]:
    """Returns the files of frames of a measurement, the dark ones first."""
    pattern = re.compile(rf"{re.escape(base)}_\d{{3}}\.frms6", re.IGNORECASE)
    return sorted(file for file in path.parent.iterdir() if pattern.fullmatch(file.name))


def _has_mark(head: bytes) -> bool:
    sizes = struct.unpack_from("<2H", head)
    return sizes == (HEADER_BYTES, FRAME_HEADER_BYTES) and head[7] == VERSION


def _header(path: Path, head: bytes, length: int) -> FileHeader:
    """Returns what the header of a file states."""
    if len(head) < HEADER_BYTES or not _has_mark(head):
        raise InputError(f"{path} is no file of {NAME}, or is cut short within its header")
    columns, rows = struct.unpack_from("<2H", head, SIDES_AT)
    (count,) = struct.unpack_from("<I", head, COUNT_AT)
    if columns < 2 or columns % 2 or rows < 1:
        raise InputError(f"{path} is damaged: it states frames of {rows}x{columns} pixels")
    size = FRAME_HEADER_BYTES + 2 * rows * columns
    if not count:  # earlier files do not state it
        count, rest = divmod(length - HEADER_BYTES, size)
        if rest:
            raise InputError(f"{path} is cut short: its last frame has {rest} of {size} bytes")
    return FileHeader(columns, rows, count)


def _frames(path: Path, stack: ExitStack) -> FileFrames:
    """Returns the frames of a file, unfolded."""
    file = stack.enter_context(open_regular(path))
    length = file.seek(0, 2)
    file.seek(0)
    header = _header(path, file.read(HEADER_BYTES), length)
    half = header.columns // 2
    size = 2 * header.rows * header.columns
    offset = HEADER_BYTES + FRAME_HEADER_BYTES
    stride = FRAME_HEADER_BYTES + size

    def decode(data: npt.NDArray[np.uint8]) -> Array:
        folded = np.ascontiguousarray(data).view("<u2").reshape(-1, header.rows, header.columns)
        upper = folded[:, :, :half]
        lower = folded[:, ::-1, : half - 1 : -1]
        return np.concatenate([upper, lower], axis=1)

    offsets = range(offset, offset + header.frames * stride, stride)
    shape = (2 * header.rows, half)
    return file_frames(path, file, offsets, shape, np.dtype("<u2"), decode, size)


def _mean(frames: FileFrames) -> Floats:
    """Returns the mean of frames, `(dy, dx)`."""
    count = min(frames.shape[0], DARK_FRAMES)
    total = np.zeros(frames.shape[1:])
    for start in range(0, count, READ_FRAMES):
        total += frames[start : min(start + READ_FRAMES, count),].sum(axis=0, dtype=np.float64)
    return total / count


def _stated(hdr: Path) -> dict[str, str]:
    """Returns the values of the .hdr by their names in small letters; none without one."""
    if not hdr.is_file():
        return {}
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(read_text(hdr, largest_bytes=HDR_BYTES, errors="replace"))
    except configparser.Error as error:
        raise InputError(f"cannot read {hdr}: {shorten(error, 200)}") from None
    if not parser.has_section(SECTION):
        raise InputError(f"{hdr} has no section [{SECTION}]: it is of another program")
    return {name: shorten(value, 200) for name, value in parser.items(SECTION)}


def _pair(text: str) -> tuple[int, int] | None:
    """Returns two numbers of a text such as 256x256."""
    sides: Sequence[str] = text.replace(" ", "").split("x")
    if len(sides) != 2 or not all(s.isascii() and s.isdigit() and len(s) < 7 for s in sides):
        return None
    rows, columns = (int(side) for side in sides)
    return (rows, columns) if rows and columns else None
