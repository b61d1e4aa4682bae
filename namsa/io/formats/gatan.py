"""Gatan DigitalMicrograph: .dm3 and .dm4 of two, three or four axes.

Dimensions are listed fastest first. Of a scan of four axes their units say which are the scan's.
Where they do not, the detector is listed first if the tag "Data Order Swapped" is set; otherwise
the scan is, and the file holds an image of the scan for each pixel of the detector. Three axes are
a stack of frames, two are one frame. Of several images in a file the largest is read; the others
are previews.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from namsa.base.errors import InputError
from namsa.base.files import open_regular
from namsa.base.text import shorten
from namsa.io.file_axes import NO_AXIS, FileAxis, axis_order
from namsa.io.formats.gatan_tags import TaggedArray, Tags, read_tags
from namsa.io.frames import ScanOfFrames, file_frames
from namsa.io.layout import arrange
from namsa.io.planes import ScanPlanes
from namsa.io.read_options import FRAME_AXES, SCAN_AXES, ReadOptions
from namsa.io.recording import PatternArray, Recording
from namsa.io.units import as_number, finite

NAME = "DigitalMicrograph"
SUFFIXES = (".dm3", ".dm4")

# Of the tag DataType.
TYPES = {
    1: "i2",
    2: "f4",
    6: "u1",
    7: "i4",
    9: "i1",
    10: "u2",
    11: "u4",
    12: "f8",
    39: "i8",
    40: "u8",
}


def recognises(path: Path, head: bytes) -> bool:
    """Returns whether the first bytes are a version and a byte order of DigitalMicrograph."""
    order = {b"\0\0\0\3": head[8:12], b"\0\0\0\4": head[12:16]}.get(head[:4], b"")
    return order in (b"\0\0\0\0", b"\0\0\0\1")


@contextmanager
def open_recording(path: Path, options: ReadOptions) -> Iterator[Recording]:
    """Opens the largest image of a file."""
    with open_regular(path) as file:
        image = _largest_image(read_tags(path, file), path)
        array, sizes, stored = _array(image, path)
        tags = _group(image, "ImageTags")
        swapped = _group(tags, "Meta Data").get("Data Order Swapped")
        described = _axes(image, len(sizes))
        order, notes = _order(described, swapped)
        layout = arrange(
            _patterns(path, file, array, sizes, stored, options.axes or order),
            options,
            path,
            order=order,
        )
        calibration = layout.calibration(described)
        if layout.axes[0] is None:  # frames, of which a file says no step
            reasons = dict(calibration["reasons"])
            reasons.pop("scan_step_angstrom", None)
            calibration["reasons"] = reasons
        # of an image that was cut from another
        created = _group(_group(tags, "source"), "Tags at creation")
        microscope = _group(tags, "Microscope Info") or _group(created, "Microscope Info")
        voltage = as_number(microscope.get("Voltage"), 0.0)
        yield layout.recording(
            NAME,
            path,
            notes=notes if options.axes is None else (),
            energy_ev=voltage if voltage > 0 else None,
            **calibration,
            metadata={
                "dimensions": sizes,
                "axes": [
                    [shorten(axis.units, 40), finite(axis.step)]
                    for axis in layout.arranged(described)
                    if axis.units
                ],
                "stem_camera_length_mm": finite(microscope.get("STEM Camera Length")),
                "microscope": _text(microscope.get("Name")),
                "format": _text(_group(tags, "Meta Data").get("Format")),
            },
        )


def _largest_image(tags: Tags, path: Path) -> Tags:
    """Returns the tags of the image that takes most bytes."""
    images = [image for image in _group(tags, "ImageList").values() if isinstance(image, dict)]
    sizes = [_bytes(_group(image, "ImageData")) for image in images]
    if not any(sizes):
        raise InputError(f"{path} holds no image of integers or real numbers")
    return images[int(np.argmax(sizes))]


def _bytes(data: Tags) -> int:
    """Returns the bytes of an image's numbers; 0 for one of colours or complex numbers, as previews
    are.
    """
    array = data.get("Data")
    kind = data.get("DataType")
    if not isinstance(array, TaggedArray) or not isinstance(kind, int) or kind not in TYPES:
        return 0
    return array.length * array.dtype.itemsize


def _array(image: Tags, path: Path) -> tuple[TaggedArray, list[int], np.dtype[np.generic]]:
    """Returns where the numbers are, the dimensions, and the type."""
    data = _group(image, "ImageData")
    array = data["Data"]
    sizes = [int(as_number(size, 0)) for size in _group(data, "Dimensions").values()]
    stored = np.dtype(TYPES[data["DataType"]]).newbyteorder(array.dtype.byteorder)
    while len(sizes) > 2 and sizes[-1] == 1:
        sizes.pop()
    if not 2 <= len(sizes) <= 4 or min(sizes) < 1:
        raise InputError(f"{path} holds an image of the dimensions {sizes}: 2 to 4 are read")
    if math.prod(sizes) * stored.itemsize > array.length * array.dtype.itemsize:
        raise InputError(
            f"{path} is damaged: its dimensions {sizes} take more than its {array.length} numbers"
        )
    return array, sizes, stored


def _patterns(
    path: Path,
    file: BinaryIO,
    array: TaggedArray,
    sizes: Sequence[int],
    stored: np.dtype[np.generic],
    order: Sequence[str] | None,
) -> PatternArray:
    """Returns the array as it is stored, its last axis the first dimension."""
    shape = tuple(reversed(sizes))
    if order is not None and order[:2] == ("dy", "dx"):
        return ScanPlanes(
            path, file, array.offset, (shape[0], shape[1], shape[2], shape[3]), stored
        )
    size = math.prod(shape[-2:]) * stored.itemsize
    offsets = range(array.offset, array.offset + math.prod(shape[:-2]) * size, size)
    frames = file_frames(path, file, offsets, (shape[-2], shape[-1]), stored)
    if len(shape) < len(SCAN_AXES):
        return frames
    return ScanOfFrames(frames, (shape[0], shape[1]))


def _order(
    axes: Sequence[FileAxis], swapped: object
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Returns which stored axis is which, by their units or else by the tag, and a line about what
    is assumed.
    """
    if len(axes) < len(SCAN_AXES):
        return None, ()  # frames
    order = axis_order(axes)
    if order is not None:
        return order, ()
    scan_first = bool(as_number(swapped, 0.0))  # in the order in which they are stored
    also_open = "" if swapped is not None else ", and so does the tag Data Order Swapped"
    kind = "scan before detector" if scan_first else "detector before scan"
    line = (
        f"the units leave the order of the axes open{also_open}: stored as {kind}; --axes says "
        "another"
    )
    if scan_first:
        return SCAN_AXES, (line,)
    return (*SCAN_AXES[2:], *SCAN_AXES[:2]), (line,)


def _axes(image: Tags, count: int) -> list[FileAxis]:
    """Returns the axes in the stored order. DigitalMicrograph's coordinates are (i − origin) ·
    scale.

    An image alone, of two dimensions, is a frame: its first axis is that of the frames.
    """
    dimensions = _group(_group(_group(image, "ImageData"), "Calibrations"), "Dimension")
    axes = [] if count > len(FRAME_AXES) - 1 else [NO_AXIS]
    for index in reversed(range(count)):
        tags = _group(dimensions, str(index))
        scale = as_number(tags.get("Scale"))
        origin = as_number(tags.get("Origin"))
        units = _text(tags.get("Units")) or ""
        axes.append(FileAxis(units, scale, -origin * scale) if units else NO_AXIS)
    return axes


def _group(tags: Tags, name: str) -> Tags:
    value = tags.get(name)
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    value = value.text if isinstance(value, TaggedArray) else value
    if isinstance(value, str):
        return shorten(value.strip("\0 "), 100)
    return None
