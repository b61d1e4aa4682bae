"""NorPix .seq (StreamPix, which Direct Electron's earlier cameras write): frames of one size behind
a header. The scan's shape is the caller's to give.

`FILE.seq.dark.mrc` and `FILE.seq.gain.mrc` beside it are the camera's references: they are
subtracted and multiplied as frames are read.

Source: the layout that the readers of PIMS (soft-matter/pims, BSD) and LiberTEM (MIT) describe.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.base.files import open_regular
from namsa.io.formats import mrc
from namsa.io.frames import file_frames
from namsa.io.layout import arrange
from namsa.io.read_options import ReadOptions
from namsa.io.recording import PatternArray, Recording
from namsa.io.referenced_frames import ReferencedFrames, ReferenceImages

NAME = "NorPix"
SUFFIXES = (".seq",)

MAGIC = struct.pack("<I", 0xFEED)
TITLE = "Norpix seq".encode("utf-16-le")
VERSION_AT = 28
SIZES_AT = 548  # width, height, bits, bits that are used, bytes, format, frames, origin, stride
COMPRESSION_AT = 620
HEADER_BYTES = 8192
EARLIER_HEADER_BYTES = 1024
LONG_HEADER = 5  # the version from which on the header is long
TYPES = {8: "<u1", 16: "<u2", 32: "<u4"}  # by the bits of a pixel


def recognises(path: Path, head: bytes) -> bool:
    """Returns whether the first bytes are those of a sequence of NorPix."""
    return head.startswith(MAGIC) and head[4 : 4 + len(TITLE)] == TITLE


@contextmanager
def open_recording(path: Path, options: ReadOptions) -> Iterator[Recording]:
    """Opens the frames of a sequence."""
    with open_regular(path) as file:
        head = file.read(EARLIER_HEADER_BYTES)
        if len(head) < EARLIER_HEADER_BYTES or not recognises(path, head):
            raise InputError(f"{path} is no sequence of NorPix: its header is cut short or another")
        (version,) = struct.unpack_from("<i", head, VERSION_AT)
        columns, rows, bits, _, _, kind, declared, _, stride = struct.unpack_from(
            "<9I", head, SIZES_AT
        )
        (compression,) = struct.unpack_from("<I", head, COMPRESSION_AT)
        if compression or bits not in TYPES:
            raise InputError(
                f"{path} has pixels of {bits} bits and compression {compression}: pixels of "
                f"{', '.join(map(str, TYPES))} bits without compression are read"
            )
        stored = np.dtype(TYPES[bits])
        if stride < rows * columns * stored.itemsize or not stride:
            raise InputError(
                f"{path} is damaged: its frames of {rows}x{columns} pixels take more than the "
                f"{stride} bytes that it states"
            )
        offset = HEADER_BYTES if version >= LONG_HEADER else EARLIER_HEADER_BYTES
        length = file.seek(0, 2)
        count = max(0, length - offset) // stride
        notes = []
        if declared and declared != count:
            notes.append(f"the header states {declared:,} frames, and {count:,} are there")
        offsets = range(offset, offset + count * stride, stride)
        frames: PatternArray = file_frames(path, file, offsets, (rows, columns), stored)
        references = _references(path, (rows, columns), notes)
        if references.dark is not None or references.gain is not None:
            frames = ReferencedFrames(frames, references)
        layout = arrange(frames, options, path)
        yield layout.recording(
            NAME,
            path,
            notes=notes,
            metadata={"frames": count, "version": version, "image_format": kind},
        )


def _references(path: Path, shape: tuple[int, int], notes: list[str]) -> ReferenceImages:
    """Returns the camera's references beside a file."""
    times_of_files: dict[str, Floats | None] = {}
    for name, done in (("dark", "subtracted"), ("gain", "multiplied")):
        file = path.with_name(f"{path.name}.{name}.mrc")
        times_of_files[name] = None
        if not file.is_file():
            continue
        with mrc.open_recording(file, ReadOptions(scan_shape=(1, 1))) as image:
            if image.shape != (1, 1, *shape):
                raise InputError(
                    f"{file} has an image of {image.shape[2]}x{image.shape[3]} pixels, and the "
                    f"frames have {shape[0]}x{shape[1]}: remove it, or give the right one"
                )
            times_of_files[name] = image.read(slice(0, 1), slice(0, 1))[0, 0].astype(np.float64)
        notes.append(f"{file.name} {done}")
    return ReferenceImages(**times_of_files)
