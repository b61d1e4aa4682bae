"""TIA (FEI, Emispec): .ser of images at the positions of a scan, and the .emi that names them.

The scan's step is stored in metres. A pixel's size is stored without units: it is kept as metadata,
and the caller gives the angle. The .emi NAME.emi beside NAME_1.ser, NAME_2.ser, ... has the high
tension in its XML. Images are stored from the bottom row up, and are turned.

Source: C. B. Boothroyd, "TIA file format" (er-c.org/cbb/info/TIAformat).
"""

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypedDict

import numpy as np
import numpy.typing as npt

from namsa.base.errors import InputError, WorkError
from namsa.base.files import open_regular
from namsa.io.formats import tia_experiment
from namsa.io.frames import Array, file_frames
from namsa.io.layout import arrange
from namsa.io.planes import read_at
from namsa.io.read_options import ReadOptions
from namsa.io.recording import Recording
from namsa.io.units import angstrom_per_unit, finite

NAME = "TIA"
SUFFIXES = (".ser", ".emi")

MAGIC = struct.pack("<HH", 0x4949, 0x0197)
IMAGES = 0x4122
WIDE_OFFSETS = 0x0220  # the version from which on offsets have eight bytes
TYPES = {1: "<u1", 2: "<u2", 3: "<u4", 4: "<i1", 5: "<i2", 6: "<i4", 7: "<f4", 8: "<f8"}
ELEMENT = np.dtype(
    [
        ("x", [("offset", "<f8"), ("step", "<f8"), ("at", "<i4")]),
        ("y", [("offset", "<f8"), ("step", "<f8"), ("at", "<i4")]),
        ("type", "<i2"),
        ("columns", "<i4"),
        ("rows", "<i4"),
    ]
)
SHAPE_BYTES = 10  # of an element's header: type, columns, rows
MAX_FRAMES = 2**24
MAX_TEXT = 2**12
AXES = 2  # of a scan


def recognises(path: Path, head: bytes) -> bool:
    """Returns whether the first bytes are those of a series of TIA, or it is an .emi."""
    return head.startswith(MAGIC) or path.suffix.lower() == ".emi"


@contextmanager
def open_recording(path: Path, options: ReadOptions) -> Iterator[Recording]:
    """Opens a series of images, by its .ser, or by the .emi of one."""
    if path.suffix.lower() == ".emi":
        path = tia_experiment.series_of(path, is_images)
    with open_regular(path) as file:
        try:
            axes, offsets = _read_header(path, file)
        except struct.error:
            raise InputError(f"{path} is cut short: it ends within its header") from None
        data = read_at(file, ELEMENT.itemsize, int(offsets[0]))
        if len(data) < ELEMENT.itemsize:
            raise InputError(f"{path} is damaged: its first image has no known type")
        element: np.void = np.frombuffer(data, ELEMENT)[0]
        if int(element["type"]) not in TYPES:
            raise InputError(f"{path} is damaged: its first image has no known type")
        stored = np.dtype(TYPES[int(element["type"])])
        rows = int(element["rows"])
        columns = int(element["columns"])
        layout = data[-SHAPE_BYTES:]

        def decode(data: npt.NDArray[np.uint8]) -> Array:
            shapes = data[:, ELEMENT.itemsize - SHAPE_BYTES : ELEMENT.itemsize]
            if any(shape.tobytes() != layout for shape in shapes):
                raise WorkError(
                    f"{path} is damaged: not all images have the type and the size of the first"
                )
            pixels = np.ascontiguousarray(data[:, ELEMENT.itemsize :]).view(stored)
            return pixels.reshape(-1, rows, columns)[:, ::-1]

        size = ELEMENT.itemsize + max(0, rows) * max(0, columns) * stored.itemsize
        frames = file_frames(path, file, offsets, (rows, columns), stored, decode, size)
        grid = [axis for axis in axes if axis["size"] > 1]
        shape = (grid[1]["size"], grid[0]["size"]) if len(grid) == AXES else None
        arranged = arrange(frames, options, path, stated=shape)
        experiment = tia_experiment.beside(path)
        yield arranged.recording(
            NAME,
            path,
            scan_step_angstrom=_scan_step(grid),
            energy_ev=experiment.energy_ev,
            metadata={
                "frames": len(offsets),
                "axes": axes,
                "pixel_of_unstated_units": [
                    finite(element["y"]["step"]),
                    finite(element["x"]["step"]),
                ],
            }
            | experiment.metadata,
        )


class TiaAxis(TypedDict):
    """An axis of a series."""

    size: int
    step: float | None  # `None` where it is not finite
    description: str
    units: str


def _scan_step(grid: Sequence[TiaAxis]) -> tuple[float, float] | None:
    """Returns the scan's step (y, x) in Å from its axes (x, y); `None` if a unit is not stated."""
    if len(grid) != AXES:
        return None
    steps = []
    for axis in grid:
        unit_angstrom = angstrom_per_unit(axis["units"])
        if not unit_angstrom:
            return None
        if not axis["step"]:
            return None
        steps.append(abs(axis["step"] * unit_angstrom))
    return steps[1], steps[0]


def is_images(path: Path) -> bool:
    """Returns whether a file is a series of images."""
    with open_regular(path) as file:
        head = file.read(8)
    return head.startswith(MAGIC) and struct.unpack_from("<H", head, 6)[0] == IMAGES


def _read_header(path: Path, file: BinaryIO) -> tuple[list[TiaAxis], npt.NDArray[np.int64]]:
    """Returns the scan's axes, fastest first, and the byte at which each image begins."""
    _, _, version, kind, _, _, valid = struct.unpack("<3H4i", file.read(22))
    offset = "q" if version >= WIDE_OFFSETS else "i"
    width = struct.calcsize(f"<{offset}")
    (table,) = struct.unpack(f"<{offset}", file.read(width))
    (dimensions,) = struct.unpack("<i", file.read(4))
    length = os.fstat(file.fileno()).st_size
    if kind != IMAGES:
        raise InputError(f"{path} holds spectra (type {kind:#x}), not images: patterns are needed")
    if (
        not 0 < valid <= MAX_FRAMES
        or not 0 <= dimensions <= 8
        or not 0 < table <= length - valid * width
    ):
        raise InputError(
            f"{path} is damaged or cut short: it states {valid} images at byte {table} of {length}"
        )
    axes: list[TiaAxis] = []
    for _ in range(dimensions):
        size, _, step, _ = struct.unpack("<iddi", file.read(24))
        axes.append(
            {"size": size, "step": finite(step), "description": _text(file), "units": _text(file)}
        )
    listed = read_at(file, valid * width, table)
    if len(listed) < valid * width:
        raise InputError(f"{path} is cut short: it ends within the list of its images")
    return axes, np.frombuffer(listed, f"<{offset}{width}".replace("q", "i")).astype(np.int64)


def _text(file: BinaryIO) -> str:
    (length,) = struct.unpack("<i", file.read(4))
    if not 0 <= length <= MAX_TEXT:
        raise struct.error
    return file.read(length).decode("utf-8", "replace")
