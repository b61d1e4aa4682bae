"""Files without a format: numbers whose type, detector and first byte the caller states."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from namsa.base.errors import InputError
from namsa.base.files import open_regular
from namsa.io.frames import file_frames
from namsa.io.layout import arrange
from namsa.io.read_options import ReadOptions
from namsa.io.recording import Recording

NAME = "raw"
SUFFIXES = (".raw", ".bin", ".dat")


def recognises(path: Path, head: bytes) -> bool:
    """Returns false: no byte says that a file has no format."""
    return False


@contextmanager
def open_recording(path: Path, options: ReadOptions) -> Iterator[Recording]:
    """Opens frames one after the other, whose type, detector, scan and first byte the caller
    states.
    """
    given = {
        "--dtype": options.dtype,
        "--detector-shape": options.detector_shape,
        "--scan-shape": options.scan_shape,
    }
    missing = [name for name, value in given.items() if value is None]
    if options.dtype is None or options.detector_shape is None or options.scan_shape is None:
        raise InputError(f"{path} does not state its layout: give {', '.join(missing)}")
    with open_regular(path) as file:
        length = os.fstat(file.fileno()).st_size - options.offset_bytes
        frame_bytes = math.prod(options.detector_shape) * options.dtype.itemsize
        count, rest = divmod(max(0, length), frame_bytes)
        if rest and not options.growing:
            shape = "x".join(map(str, options.detector_shape))
            raise InputError(
                f"{path} has {length} bytes from byte {options.offset_bytes} on, which are no "
                f"whole frames of {shape} {options.dtype.name} ({frame_bytes} bytes): give "
                "--dtype, --detector-shape or --offset-bytes"
            )
        offset = options.offset_bytes
        offsets = range(offset, offset + count * frame_bytes, frame_bytes)
        frames = file_frames(path, file, offsets, options.detector_shape, options.dtype)
        layout = arrange(frames, options, path)
        yield layout.recording(NAME, path)
