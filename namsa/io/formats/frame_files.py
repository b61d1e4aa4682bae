"""Frames in several files, one or more in each: a folder of them, or a pattern of their names such
as "scan/frame_*.mib".

The frames are those of the files in the order of the numbers in their names, all of one format.
Files are opened when their frame is read, and what the first one says of the calibration stands for
all.
"""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from namsa.base.errors import InputError, WorkError
from namsa.base.files import open_regular
from namsa.base.text import shorten
from namsa.io.formats import gatan, merlin
from namsa.io.frames import Array, UnknownScanShapeError
from namsa.io.layout import arrange
from namsa.io.read_options import ReadOptions
from namsa.io.recording import Recording
from namsa.io.siblings import siblings

NAME = "one file per frame"
SUFFIXES = ()

READERS = {".mib": merlin, ".dm3": gatan, ".dm4": gatan}
MOST_FILES = 10**6


@dataclass(frozen=True)
class FilesOfFrames:
    """Frames in files of their own."""

    paths: tuple[Path, ...]  # the files
    ends: npt.NDArray[np.int64]  # number of frames up to the end of each file
    frame_shape: tuple[int, ...]  # the shape (dy, dx)
    dtype: np.dtype[np.generic]  # type of the numbers
    chunks: None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (n, dy, dx)."""
        return (int(self.ends[-1]), *self.frame_shape)

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Returns parts of consecutive frames. Raises WorkError if a file is missing, damaged or
        unlike the first.
        """
        start, stop, _ = index[0].indices(self.shape[0])
        frames = np.empty((max(0, stop - start), *self.frame_shape), self.dtype)
        frame = start
        while frame < stop:
            file_index = int(np.searchsorted(self.ends, frame, side="right"))
            end = min(stop, int(self.ends[file_index]))
            frames[frame - start : end - start] = self._read(file_index, frame, end)
            frame = end
        return frames[(slice(None), *index[1:])]

    def _read(self, file_index: int, start: int, stop: int) -> Array:
        """Returns the frames from `start` to `stop`, which one file holds."""
        first_frame = int(self.ends[file_index - 1]) if file_index else 0
        expected = (1, int(self.ends[file_index]) - first_frame, *self.frame_shape)
        try:
            with _open(self.paths[file_index]) as recording:
                if recording.shape != expected or recording.dtype != self.dtype:
                    raise WorkError(
                        f"{self.paths[file_index]} is of another size or type than {self.paths[0]}"
                    )
                in_file = slice(start - first_frame, stop - first_frame)
                return np.asarray(recording.read(slice(0, 1), in_file)[0])
        except InputError as error:
            raise WorkError(str(error)) from None


def recognises(path: Path, head: bytes) -> bool:
    """Returns whether it is a folder that holds files of frames."""
    return path.is_dir() and bool(_files(path.iterdir()))


def is_pattern(path: Path) -> bool:
    """Returns whether a path is a pattern of names of files of frames."""
    return any(mark in path.name for mark in "*?[") and path.parent.is_dir()


@contextmanager
def open_recording(path: Path, options: ReadOptions) -> Iterator[Recording]:
    """Opens the frames in files of their own, of a folder or of a pattern of names."""
    files = _files(path.iterdir() if path.is_dir() else path.parent.glob(path.name))
    problem = _problem(files)
    if problem:
        raise InputError(
            f"{shorten(str(path), 300)} holds {problem}: name those of one scan by a pattern, such "
            'as "scan/frame_*.mib"'
        )
    paths = tuple(sorted(files, key=_natural_order))
    with _open(paths[0]) as first_file:
        ends = np.cumsum(_counts(paths, first_file.shape[1]), dtype=np.int64)
        frames = FilesOfFrames(paths, ends, first_file.shape[2:], first_file.dtype)
        count = frames.shape[0]
        layout = arrange(frames, options, path, stated=_stated_shape(paths, count))
        of_files = {"frames": count, "files": len(paths), "first_file": paths[0].name}
        yield replace(
            first_file,
            data=layout.data,
            name=str(path),
            notes=layout.notes,
            reasons={},
            metadata={**first_file.metadata, **of_files},
        )


def _counts(paths: Sequence[Path], first_count: int) -> list[int]:
    """Returns the number of frames in each file; files of the first one's size have as many."""
    first_bytes = paths[0].stat().st_size
    counts = []
    for path in paths:
        if path.stat().st_size == first_bytes:
            counts.append(first_count)
            continue
        count = first_count
        with suppress(InputError), _open(path) as recording:  # an error where its frames are read
            count = recording.shape[1]
        counts.append(count)
    return counts


def _stated_shape(paths: Sequence[Path], frames: int) -> tuple[int, int] | None:
    """Returns the scan that the only .hdr of Merlin beside the files states, if it takes so many
    frames.
    """
    if paths[0].suffix.lower() not in merlin.SUFFIXES:
        return None
    headers = list(islice(siblings(paths[0], ".hdr"), 2))
    if len(headers) != 1:
        return None
    shape = merlin.stated_scan(headers[0])[0]
    return shape if shape is not None and math.prod(shape) == frames else None


def _problem(files: Sequence[Path]) -> str:
    """Returns why files are not those of one scan; empty if they may be."""
    kinds = sorted({file.suffix.lower() for file in files})
    if not kinds:
        return f"no files of {', '.join(READERS)}"
    if len(kinds) > 1:
        return f"files of {', '.join(kinds)}"
    if len(files) > MOST_FILES:
        return f"more than {MOST_FILES} files"
    return ""


def _files(candidates: Iterator[Path]) -> list[Path]:
    """Returns the files of frames among some, in no order; one more than are read at most."""
    files = []
    for path in candidates:
        is_frame = path.suffix.lower() in READERS and not path.name.startswith(".")
        if is_frame and path.is_file():
            files.append(path)
        if len(files) > MOST_FILES:
            break
    return files


def _natural_order(path: Path) -> list[tuple[int, int, str]]:
    """Returns what sorts names with numbers by the numbers: digits come before text."""
    order = []
    for text in re.split(r"(\d+)", path.name):
        if text.isascii() and text.isdigit():
            order.append((0, int(text), ""))
        else:
            order.append((1, 0, text.lower()))
    return order


@contextmanager
def _open(path: Path) -> Iterator[Recording]:
    """Opens one file, which must be what its name says."""
    module = READERS[path.suffix.lower()]
    with open_regular(path) as file:
        head = file.read(64)
    if not module.recognises(path, head):
        raise InputError(f"{path} is no file of {module.NAME}")
    with ExitStack() as stack:
        try:
            recording = stack.enter_context(module.open_recording(path, ReadOptions()))
        except UnknownScanShapeError as unknown:
            row = _one_row(unknown.frames)
            recording = stack.enter_context(module.open_recording(path, row))
        if recording.shape[0] != 1:
            row = _one_row(recording.shape[0] * recording.shape[1])
            recording = stack.enter_context(module.open_recording(path, row))
        yield recording


def _one_row(frames: int) -> ReadOptions:
    """Returns the options that read frames as one row of a scan."""
    return ReadOptions(scan_shape=(1, frames), flyback=0)
