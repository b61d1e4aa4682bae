"""One file per frame: a folder of them, or a pattern of their names such as "scan/frame_*.mib".

The frames are those of the files in the order of the numbers in their names, all of one format. Files are opened when
their frame is read, and what the first one says of the calibration stands for all.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from namsa.errors import InputError, WorkError
from namsa.files import open_regular
from namsa.io.formats import gatan, merlin
from namsa.io.frames import Array, UnknownScanShapeError
from namsa.io.layout import arrange
from namsa.io.read_options import ReadOptions
from namsa.io.recording import Recording
from namsa.text import shorten

NAME = "one file per frame"
SUFFIXES = ()

READERS = {".mib": merlin, ".dm3": gatan, ".dm4": gatan}
MOST_FILES = 10**6


@dataclass(frozen=True)
class FilesOfFrames:
    """Frames in files of their own."""

    paths: tuple[Path, ...]  # the files
    shape: tuple[int, ...]  # the shape (n, dy, dx)
    dtype: np.dtype[Any]  # type of the numbers
    chunks: None = None

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Returns parts of consecutive frames. Raises WorkError if one is missing, damaged or unlike the first."""
        numbers = range(*index[0].indices(len(self.paths)))
        frames = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        for at, number in enumerate(numbers):
            try:
                with _open(self.paths[number]) as recording:
                    if recording.shape != (1, 1, *self.shape[1:]) or recording.dtype != self.dtype:
                        raise WorkError(f"{self.paths[number]} is of another size or type than {self.paths[0]}")
                    frames[at] = recording.read(slice(0, 1), slice(0, 1))[0, 0]
            except InputError as error:
                raise WorkError(str(error)) from None
        return frames[(slice(None), *index[1:])]


def recognises(path: Path, head: bytes) -> bool:
    """Returns whether it is a folder that holds files of frames."""
    return path.is_dir() and bool(_files(path.iterdir()))


def is_pattern(path: Path) -> bool:
    """Returns whether a path is a pattern of names of files of frames."""
    return any(mark in path.name for mark in "*?[") and path.parent.is_dir()


@contextmanager
def open_recording(path: Path, options: ReadOptions) -> Iterator[Recording]:
    """Opens the frames in files of their own, of a folder or of a pattern of names."""
    found = _files(path.iterdir() if path.is_dir() else path.parent.glob(path.name))
    kinds = sorted({each.suffix.lower() for each in found})
    if len(kinds) != 1 or len(found) > MOST_FILES:
        several = f"files of {', '.join(kinds)}" if kinds else f"no files of {', '.join(READERS)}"
        what = several if len(kinds) != 1 else f"more than {MOST_FILES} files"
        raise InputError(
            f'{shorten(str(path), 300)} holds {what}: name those of one scan by a pattern, such as "scan/frame_*.mib"'
        )
    paths = tuple(sorted(found, key=lambda each: [_natural(part) for part in re.split(r"(\d+)", each.name)]))
    with _open(paths[0]) as first:
        layout = arrange(FilesOfFrames(paths, (len(paths), *first.shape[2:]), first.dtype), options, path)
        yield replace(
            first,
            data=layout.data,
            name=str(path),
            notes=layout.notes,
            reasons={},
            metadata={**first.metadata, "frames": len(paths), "first_file": paths[0].name},
        )


def _files(candidates: Iterator[Path]) -> list[Path]:
    """Returns the files of frames among some, in no order."""
    named = (each for each in candidates if each.suffix.lower() in READERS and not each.name.startswith("."))
    return list(islice((each for each in named if each.is_file()), MOST_FILES + 1))


def _natural(part: str) -> tuple[int, int, str]:
    """Returns what sorts parts of names: numbers by their value."""
    return (0, int(part), "") if part.isascii() and part.isdigit() else (1, 0, part.lower())


@contextmanager
def _open(path: Path) -> Iterator[Recording]:
    """Opens one file, which must be what its name says."""
    module = READERS[path.suffix.lower()]
    with open_regular(path) as file:
        head = file.read(64)
    if not module.recognises(path, head):
        raise InputError(f"{path} is no file of {module.NAME}")
    with ExitStack() as stack:
        recording = None
        with suppress(UnknownScanShapeError):
            recording = stack.enter_context(module.open_recording(path, ReadOptions()))
        if recording is None or recording.shape[:2] != (1, 1):
            raise InputError(f"{path} has more than one frame, and each file of a folder is one: name the file itself")
        yield recording
