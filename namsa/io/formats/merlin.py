"""Merlin (Quantum Detectors, Medipix3): .mib, with an .hdr beside it.

Each frame has an ASCII header of its own, comma separated: MQ1, number, bytes of the header, chips,
width, height, type, layout of the chips, ..., counter depth. Processed frames are big-endian
integers (U08, U16, U32) of the assembled detector. Raw frames (R64) are 64-bit words with their
pixels in reverse: 64 of 1 bit, 8 of 6 bits in a byte each, 4 of 12 bits in two bytes each; 24 bits
are two frames of 12 bits, of which the first has the higher bits. Raw frames of four chips (2x2)
have them side by side: right bottom, left bottom, both turned by 180°, right top, left top.

Rows are returned in the order of the file. Where nothing states the scan and every pixel was
triggered, its rows are told by the longer times between their frames.

Sources: Merlin manual (MIB file header); the layout of raw frames was compared with processed ones
of the same test pattern.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from namsa.base.errors import InputError
from namsa.base.files import open_regular, read_text
from namsa.base.text import shorten
from namsa.io.frames import Array, Decode, file_frames
from namsa.io.layout import arrange
from namsa.io.planes import read_at
from namsa.io.read_options import ReadOptions
from namsa.io.recording import Recording
from namsa.io.siblings import sibling
from namsa.io.units import finite

NAME = "Merlin"
SUFFIXES = (".mib", ".hdr")

HEADER_BYTES = (128, 2**16)
HDR_BYTES = 2**20
RAW_BYTES = {1: 0.125, 6: 1, 12: 2, 24: 4}  # of a pixel
RAW_TYPES = {1: "u1", 6: "u1", 12: "u2", 24: "u4"}
# in a frame's header
TIME = re.compile(rb"\d{4}-[01]\d-[0-3]\d[ T][0-2]\d:[0-5]\d:[0-5]\d\.\d{1,9}")
TYPES = {"U01": "u1", "U08": "u1", "U8": "u1", "U16": ">u2", "U32": ">u4", "U64": ">u8"}
QUAD = 4
TIMED_FRAMES = 2**20  # whose times are read, at most
ROW_PAUSE = 1.5  # time between rows over that between frames, at least


@dataclass(frozen=True)
class _Header:
    """The header of the first frame."""

    size: int  # its bytes
    shape: tuple[int, int]  # height and width of the frame as it is stored
    type: str  # type of the numbers, such as "U16"; "R64" for raw frames
    layout: str  # layout of the chips, such as "2x2"
    depth: int | None  # bits of the counter; `None` if it does not say
    chips: int  # number of chips
    fields: list[str]  # all fields


def recognises(path: Path, head: bytes) -> bool:
    """Returns whether the first bytes are those of a frame's header, or of the .hdr beside
    frames.
    """
    return head.startswith(b"MQ1,") or (head.startswith(b"HDR,") and path.suffix.lower() == ".hdr")


@contextmanager
def open_recording(path: Path, options: ReadOptions) -> Iterator[Recording]:
    """Opens a .mib file, or the one beside an .hdr."""
    hdr = path if path.suffix.lower() == ".hdr" else sibling(path, ".hdr")
    path = (sibling(path, ".mib") or path.with_suffix(".mib")) if path == hdr else path
    with open_regular(path) as file:
        header = _read_header(path, file)
        stated = _read_hdr(hdr)
        shape, stored, decode, frame_bytes = _layout(header, path)
        stride = header.size + frame_bytes
        count = os.fstat(file.fileno()).st_size // stride
        frames = file_frames(
            path,
            file,
            range(header.size, header.size + count * stride, stride),
            shape,
            stored,
            decode,
            frame_bytes,
        )
        scan, flyback = _scan_shape(stated)
        notes: tuple[str, ...] = ()
        if scan is None and options.scan_shape is None and not options.growing:
            scan, notes = _scan_by_times(file, header.size, stride, count)
        layout = arrange(frames, options, path, stated=scan, stated_flyback=flyback)
        yield layout.recording(
            NAME,
            path,
            notes=notes,
            metadata={
                "frames": count,
                "counter_depth": header.depth,
                "chips": header.layout,
                "stored_type": header.type,
                "time": header.fields[9].strip() if len(header.fields) > 9 else None,
                "exposure_s": finite(header.fields[10:11]),
                "threshold_kev": finite(header.fields[14:15]),
                "header": stated,
            },
        )


def _read_header(path: Path, file: BinaryIO) -> _Header:
    """Returns the first frame's header."""
    data = read_at(file, HEADER_BYTES[1], 0)
    fields = data[:4096].decode("ascii", "replace").split("\0")[0].split(",")
    try:
        size, chips, width, height = (int(fields[index]) for index in (2, 3, 4, 5))
        kind = fields[6].strip().upper()
        layout = fields[7].strip()
    except (ValueError, IndexError):
        raise InputError(
            f"{path} is no file of Merlin: its first header is {shorten(fields[:8], 120)}"
        ) from None
    if not HEADER_BYTES[0] <= size <= HEADER_BYTES[1] or min(width, height) < 1:
        raise InputError(
            f"{path} is damaged: its first header states {size} bytes and {height}x{width} pixels"
        )
    fields = data[:size].decode("ascii", "replace").rstrip("\0 ").split(",")
    return _Header(size, (height, width), kind, layout, _depth(fields), chips, fields)


def _depth(fields: list[str]) -> int | None:
    """Returns the counter depth, which follows the exposure in ns in the last block of the
    header.
    """
    if "MQ1A" not in fields:
        return None
    text = "".join(fields[fields.index("MQ1A") + 3 :][:1]).strip()
    if text.isascii() and text.isdigit() and len(text) < 4:
        return int(text)
    return None


def _layout(
    header: _Header, path: Path
) -> tuple[tuple[int, int], np.dtype[np.generic], Decode | None, int]:
    """Returns the detector's shape, the type of its numbers, how frames are decoded, and their
    bytes.
    """
    height, width = header.shape
    if header.type in TYPES:
        stored = np.dtype(TYPES[header.type])
        return header.shape, stored, None, height * width * stored.itemsize
    depth = header.depth
    if not header.type.startswith("R") or depth not in RAW_BYTES:
        raise InputError(
            f"{path} has frames of type {shorten(header.type)} and counter depth {depth}: read are "
            "U08, U16, U32 and raw frames of 1, 6, 12 and 24 bits; save it as one of these"
        )
    frame_bytes = int(height * width * RAW_BYTES[depth])
    quad = header.layout.startswith("2x2") and header.chips == QUAD
    if header.chips > 1 and not quad:
        raise InputError(
            f"{path} has raw frames of {header.chips} chips in the layout "
            f"{shorten(header.layout)}: raw frames of one chip and of 2x2 are read; save it as "
            "processed"
        )
    if width % 64 or (quad and width % QUAD):
        raise InputError(
            f"{path} is damaged: it states raw rows of {width} pixels, not of whole words of 64"
        )
    shape = (2 * height, width // 2) if quad else header.shape

    def decode(data: npt.NDArray[np.uint8]) -> Array:
        frames = _unpack(np.ascontiguousarray(data), depth).reshape(-1, height, width)
        return _assemble(frames) if quad else frames

    return shape, np.dtype(RAW_TYPES[depth]), decode, frame_bytes


def _unpack(data: npt.NDArray[np.uint8], depth: int) -> Array:
    """Returns the pixels `(frames, pixels)` of raw frames `(frames, bytes)`."""
    count = len(data)
    if depth == 1:
        words = data.reshape(count, -1, 8)[:, :, ::-1]
        return np.unpackbits(words, axis=-1, bitorder="little").reshape(count, -1)
    if depth == 6:
        return data.reshape(count, -1, 8)[:, :, ::-1].reshape(count, -1)
    values = data.view(">u2").reshape(count, -1, 4)[:, :, ::-1].reshape(count, -1)
    if depth == 12:
        return values.astype(np.uint16)
    high, low = np.split(values.astype(np.uint32), 2, axis=1)
    return (high << 12) + low


def _assemble(frames: Array) -> Array:
    """Returns frames of four chips, which are stored side by side, as the detector shows them."""
    bottom_right, bottom_left, top_right, top_left = np.split(frames, QUAD, axis=2)
    top = np.concatenate([top_left, top_right], axis=2)
    bottom = np.concatenate([bottom_left[:, ::-1, ::-1], bottom_right[:, ::-1, ::-1]], axis=2)
    return np.concatenate([top, bottom], axis=1)


def stated_scan(hdr: Path) -> tuple[tuple[int, int] | None, int | None]:
    """Returns the scan's shape and its flyback, as far as an .hdr states them."""
    return _scan_shape(_read_hdr(hdr))


def _read_hdr(path: Path | None) -> dict[str, str]:
    """Returns the lines "name: value" of the .hdr beside the frames; nothing if there is none."""
    if path is None:
        return {}
    text = read_text(path, largest_bytes=HDR_BYTES, errors="replace")
    lines = (line.partition(":\t") for line in text.replace("\0", "").splitlines())
    return {
        shorten(name.strip(), 80): shorten(value.strip(), 200) for name, tab, value in lines if tab
    }


def _scan_shape(stated: dict[str, str]) -> tuple[tuple[int, int] | None, int | None]:
    """Returns the scan's shape and its flyback, as far as they are stated.

    The shape is ScanY and ScanX, or frames of an acquisition of several frames per trigger. If both
    are there and a trigger has more frames than a row, the others are the flyback.
    """
    numbers = {}
    for name, value in stated.items():
        if value.isascii() and value.isdigit() and len(value) < 8:
            key = re.sub(r"\W*\(.*", "", name).lower()
            numbers[key] = int(value)
    rows = numbers.get("scany", 0)
    columns = numbers.get("scanx", 0)
    total = numbers.get("frames in acquisition", 0)
    line = numbers.get("frames per trigger", 0)
    if rows > 0 and columns > 0:
        has_flyback = line > columns and total == rows * line
        return (rows, columns), line - columns if has_flyback else None
    if line > 1 and total > line and total % line == 0:
        return (total // line, line), None
    return None, None


def _scan_by_times(
    file: BinaryIO, size: int, stride: int, count: int
) -> tuple[tuple[int, int] | None, tuple[str, ...]]:
    """Returns rows and columns of a scan whose frames pause at the end of each row, and a line
    about it.
    """
    if not 4 <= count <= TIMED_FRAMES:
        return None, ()
    times = np.empty(count, np.int64)
    for index in range(count):
        stamps = TIME.findall(read_at(file, size, index * stride))
        if not stamps:
            return None, ()
        times[index] = np.datetime64(
            max(stamps, key=len).decode().strip().replace(" ", "T"), "ns"
        ).astype(np.int64)
    steps = np.diff(times)
    ends = np.flatnonzero(steps > ROW_PAUSE * np.median(steps)) + 1
    columns = int(ends[0]) if len(ends) and np.median(steps) > 0 else 0
    if (
        not columns
        or count % columns
        or not np.array_equal(ends, np.arange(columns, count, columns))
    ):
        return None, ()
    shape = (count // columns, columns)
    return shape, (
        f"scan of {shape[0]}x{shape[1]} by the frames' times, which pause after each row",
    )
