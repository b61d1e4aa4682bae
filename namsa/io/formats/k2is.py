"""Gatan K2 IS: eight files NAME1.bin to NAME8.bin, one for each sector of the detector; the .gtg
beside them is not read. The scan's shape is the caller's to give.

A sector is a strip of 256 columns. A frame has 32 blocks in each file, with pixels of 12 bits
behind a header. The files begin at different blocks: frames count from the first one that is
complete in all of them, after the last restart of the frames' numbers in the first blocks.

Source: the layout that the reader of LiberTEM (MIT) describes.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.base.errors import InputError, WorkError
from namsa.base.files import open_regular, system_errors
from namsa.io.layout import arrange
from namsa.io.planes import read_at
from namsa.io.read_options import ReadOptions
from namsa.io.recording import Recording

NAME = "K2IS"
SUFFIXES = (".gtg",)  # .bin is the name of many kinds of files

SYNC = 0xFFFF0055
HEADER = np.dtype(
    [
        ("sync", ">u4"),
        ("unused", "V12"),
        ("block", ">u4"),
        ("width", ">u2"),
        ("height", ">u2"),
        ("frame", ">u4"),
        ("x_start", ">u2"),
        ("y_start", ">u2"),
        ("x_end", ">u2"),
        ("y_end", ">u2"),
        ("size", ">u4"),
    ]
)
BLOCK_BYTES = 0x5758
ROWS, COLUMNS = 930, 16  # of a block
BLOCKS = 32  # of a frame in a file
SECTORS = 8
SECTOR_SHAPE = (1860, 256)
SHAPE = (SECTOR_SHAPE[0], SECTORS * SECTOR_SHAPE[1])
SEARCHED_FRAMES = 400  # for a restart of the frames' numbers


@dataclass(frozen=True)
class Sector:
    """An open file of one sector."""

    path: Path
    file: BinaryIO
    first_byte: int  # at which the first frame begins
    places: tuple[tuple[int, int], ...]  # row and column of each block of a frame, in the sector

    def read(self, frame_number: int) -> Array:
        """Returns the sector's part of a frame. Raises WorkError if blocks are missing."""
        with system_errors(f"cannot read {self.path} at frame {frame_number}"):
            data = read_at(
                self.file,
                BLOCKS * BLOCK_BYTES,
                self.first_byte + frame_number * BLOCKS * BLOCK_BYTES,
            )
        if len(data) < BLOCKS * BLOCK_BYTES:
            raise WorkError(
                f"cannot read {self.path} at frame {frame_number}: it has become shorter"
            )
        blocks = np.frombuffer(data, np.uint8).reshape(BLOCKS, BLOCK_BYTES)
        headers = _headers(blocks)
        if (headers["sync"] != SYNC).any() or len(np.unique(headers["frame"])) > 1:
            raise WorkError(
                f"cannot read {self.path} at frame {frame_number}: blocks of it are missing or "
                "damaged"
            )
        pixels = _unpack(blocks[:, HEADER.itemsize :]).reshape(BLOCKS, ROWS, COLUMNS)
        sector = np.empty(SECTOR_SHAPE, np.uint16)
        for block, (row, column) in zip(pixels, self.places, strict=True):
            sector[row : row + ROWS, column : column + COLUMNS] = block
        return sector


@dataclass(frozen=True)
class K2Frames:
    """Frames `(n, dy, dx)` in the files of all sectors."""

    sectors: Sequence[Sector]
    count: int
    chunks: None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (n, dy, dx)."""
        return (self.count, *SHAPE)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return np.dtype(np.uint16)

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Returns consecutive frames, or a part of each."""
        start, stop, _ = index[0].indices(self.count)
        empty = np.empty((0, *SHAPE), np.uint16)
        frames = [empty[(slice(None), *index[1:])]]
        for frame_number in range(start, stop):
            frame = np.concatenate([sector.read(frame_number) for sector in self.sectors], axis=1)
            frames.append(frame[np.newaxis][(slice(None), *index[1:])])
        return np.concatenate(frames)


def recognises(path: Path, head: bytes) -> bool:
    """Returns whether the first bytes are those of a block, or it is a .gtg beside such files."""
    if path.suffix.lower() == ".gtg":
        return len(_files(path)) == SECTORS
    is_block = path.suffix.lower() == ".bin" and len(head) >= HEADER.itemsize
    return is_block and int(np.frombuffer(head, ">u4", 1)[0]) == SYNC


@contextmanager
def open_recording(path: Path, options: ReadOptions) -> Iterator[Recording]:
    """Opens the frames in the files of all sectors, by any of them."""
    paths = _files(path)
    if len(paths) != SECTORS:
        raise InputError(
            f"{path}: {len(paths)} files of sectors are beside it, and a measurement has "
            f"{SECTORS}, NAME1.bin to NAME8.bin"
        )
    with ExitStack() as stack:
        files = [stack.enter_context(open_regular(sector)) for sector in paths]
        starts = _starts(paths, files)
        counts = []
        sectors = []
        for sector, file, start in zip(paths, files, starts, strict=True):
            length = os.fstat(file.fileno()).st_size
            counts.append((length - start) // (BLOCKS * BLOCK_BYTES))
            sectors.append(Sector(sector, file, start, _places(sector, file, start)))
        notes = []
        skipped = starts[0] // (BLOCKS * BLOCK_BYTES)
        if skipped:
            notes.append(f"{skipped:,} frames before the files' common start left out")
        layout = arrange(K2Frames(tuple(sectors), min(counts)), options, path)
        yield layout.recording(NAME, path, notes=notes, metadata={"frames": min(counts)})


def _files(path: Path) -> list[Path]:
    """Returns the files of the sectors, in their order."""
    base = path.stem if path.suffix.lower() == ".gtg" else path.stem[:-1]
    pattern = re.compile(rf"{re.escape(base)}[1-8]\.bin", re.IGNORECASE)
    return sorted(sibling for sibling in path.parent.iterdir() if pattern.fullmatch(sibling.name))


def _headers(blocks: npt.NDArray[np.uint8]) -> Array:
    """Returns the headers of blocks `(n, bytes)`."""
    return np.ascontiguousarray(blocks[:, : HEADER.itemsize]).view(HEADER)[:, 0]


def _unpack(data: npt.NDArray[np.uint8]) -> Array:
    """Returns the pixels of blocks, two in three bytes, the low bits first."""
    low, middle, high = np.moveaxis(data.reshape(len(data), -1, 3), -1, 0).astype(np.uint16)
    pixels = np.empty((len(data), 2 * low.shape[1]), np.uint16)
    pixels[:, ::2] = low | (middle & 0x0F) << 8
    pixels[:, 1::2] = middle >> 4 | high << 4
    return pixels


def _first_headers(path: Path, file: BinaryIO) -> Array:
    """Returns the headers of the first blocks of a file."""
    blocks = os.fstat(file.fileno()).st_size // BLOCK_BYTES
    count = min(blocks, SEARCHED_FRAMES * BLOCKS)
    parts = [read_at(file, HEADER.itemsize, index * BLOCK_BYTES) for index in range(count)]
    headers = np.frombuffer(b"".join(parts), HEADER)
    if not count or (headers["sync"] != SYNC).any():
        raise InputError(f"{path} is damaged: its blocks do not begin with their mark")
    return headers


def _starts(paths: Sequence[Path], files: Sequence[BinaryIO]) -> list[int]:
    """Returns the byte of each file at which the first frame begins that is complete in all."""
    begins = []  # of each file, the block at which each complete frame begins, by its number
    for path, file in zip(paths, files, strict=True):
        headers = _first_headers(path, file)
        frames = headers["frame"].astype(np.int64)
        edges = np.flatnonzero(np.diff(frames, prepend=frames[0] - 1))
        restarts = np.flatnonzero(np.diff(frames) < 0) + 1
        earliest = int(restarts[-1]) if len(restarts) else 0
        blocks = {}
        for start in edges.tolist():
            is_whole = len(np.unique(frames[start : start + BLOCKS])) == 1
            if start >= earliest and is_whole and start + BLOCKS <= len(frames):
                blocks[int(frames[start])] = start
        begins.append(blocks)
    common = set.intersection(*map(set, begins))
    if not common:
        raise InputError(
            f"{paths[0]} and the other files of sectors have no complete frame in common: they are "
            "not of one measurement, or are damaged"
        )
    first_frame = min(common)
    return [blocks[first_frame] * BLOCK_BYTES for blocks in begins]


def _places(path: Path, file: BinaryIO, start: int) -> tuple[tuple[int, int], ...]:
    """Returns the row and the column of each block of a frame."""
    places = []
    for index in range(BLOCKS):
        data = read_at(file, HEADER.itemsize, start + index * BLOCK_BYTES)
        header = np.frombuffer(data, HEADER)[0]
        places.append((int(header["y_start"]), int(header["x_start"])))
    expected = {(row, column) for row in (0, ROWS) for column in range(0, 256, COLUMNS)}
    if set(places) != expected:
        raise InputError(f"{path} is damaged: the blocks of a frame do not fill its sector")
    return tuple(places)
