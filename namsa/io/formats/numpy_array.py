"""NumPy: .npy of patterns `(sy, sx, dy, dx)`, or of frames `(n, dy, dx)` whose scan the caller states."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from namsa.errors import InputError
from namsa.files import open_regular
from namsa.io.frames import file_frames, scan_of_frames
from namsa.io.planes import ScanPlanes
from namsa.io.read_options import ReadOptions
from namsa.io.recording import REVERSED, PatternArray, Recording, TransposedAxes
from namsa.numpy_files import read_header

NAME = "NumPy"
SUFFIXES = (".npy",)


def recognises(path: Path, head: bytes) -> bool:
    """Returns whether the first bytes are NumPy's."""
    return head.startswith(b"\x93NUMPY")


@contextmanager
def open_recording(path: Path, options: ReadOptions) -> Iterator[Recording]:
    """Opens an array. It is not loaded.

    Args:
        path: The file.
        options: Scan shape and flyback of frames.

    Raises:
        InputError: If it holds no array of numbers of three or four axes, or is cut short.
    """
    with open_regular(path) as file:
        shape, fortran_order, stored = read_header(file, str(path))
        if len(shape) not in (3, 4) or stored.kind not in "uif":
            raise InputError(
                f"{path} holds {stored} of shape {shape}: give numbers (scan y, scan x, detector y, detector x), or "
                "(frame, detector y, detector x) with --scan-shape"
            )
        if min(shape) < 1:
            raise InputError(f"{path} holds no patterns: its shape is {shape}")
        if fortran_order and len(shape) == 3:
            raise InputError(f"{path} holds frames in Fortran's order: save np.ascontiguousarray of them")
        *scan, dy, dx = shape
        data: PatternArray
        if fortran_order:
            data = TransposedAxes(ScanPlanes(path, file, file.tell(), (dx, dy, scan[1], scan[0]), stored), REVERSED)
        else:
            size, first = dy * dx * stored.itemsize, file.tell()
            frames = file_frames(path, file, range(first, first + math.prod(scan) * size, size), (dy, dx), stored)
            data = scan_of_frames(frames, options, path, (scan[0], scan[1]) if len(scan) == 2 else None)
        yield Recording(data=data, format=NAME, name=str(path))
