"""NumPy: .npy and .npz of patterns `(sy, sx, dy, dx)`, or of frames `(n, dy, dx)` whose scan the
caller states.

An array in an archive is read in place, unless it is packed: then as a whole. Nion Swift's .ndata
is such an archive with its calibrations beside the array, as JSON.
"""

import math
import os
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from namsa.base.errors import InputError
from namsa.base.files import open_regular
from namsa.base.json_files import parse_json
from namsa.base.memory import available_memory_bytes
from namsa.base.numpy_files import ARCHIVE_FAULTS, MOST_MEMBERS, read_array, read_header
from namsa.base.text import shorten
from namsa.io.file_axes import NO_AXIS, axis_order
from namsa.io.frames import ScanOfFrames, SeriesOfFrames, file_frames
from namsa.io.layout import AxesView, arrange, only_array
from namsa.io.nion_swift import swift_axes, swift_beam, swift_properties
from namsa.io.planes import ScanPlanes
from namsa.io.read_options import ReadOptions
from namsa.io.recording import ArrayPatterns, PatternArray, Recording

NAME = "NumPy"
SUFFIXES = (".npy", ".npz", ".ndata", ".ndata1")

ARCHIVES = SUFFIXES[1:]
LOCAL_HEADER = 30  # bytes before the names in an archive
METADATA = "metadata.json"  # of Nion Swift
METADATA_BYTES = 2**24
COMPRESSION = 1032  # largest ratio of zlib
AXES = (3, 4, 5)
REVERSED = (3, 2, 1, 0)


def recognises(path: Path, head: bytes) -> bool:
    """Returns whether the first bytes are NumPy's, or those of an archive that is named as one of
    arrays.
    """
    return head.startswith(b"\x93NUMPY") or (
        head.startswith(b"PK\3\4") and path.suffix.lower() in ARCHIVES
    )


@contextmanager
def open_recording(path: Path, options: ReadOptions) -> Iterator[Recording]:
    """Opens an array. It is not loaded, unless it is packed in an archive."""
    with open_regular(path) as file:
        if path.suffix.lower() in ARCHIVES:
            yield _from_archive(path, file, options)
            return
        if options.dataset is not None:
            raise InputError(f"--dataset is {shorten(options.dataset)}, and {path} holds one array")
        layout = arrange(_in_place(path, file, str(path)), options, path)
        yield layout.recording(NAME, path)


def _in_place(path: Path, file: BinaryIO, name: str) -> PatternArray:
    """Returns the array whose header is at the file's position."""
    shape, fortran_order, stored = read_header(file, name)
    if len(shape) not in AXES or stored.kind not in "uif":
        raise InputError(
            f"{name} holds {stored} of shape {shape}: give numbers (scan y, scan x, detector y, "
            "detector x), or (frame, detector y, detector x) with --scan-shape"
        )
    if min(shape) < 1:
        raise InputError(f"{name} holds no patterns: its shape is {shape}")
    if fortran_order and len(shape) == 4:
        sy, sx, dy, dx = shape
        return AxesView(ScanPlanes(path, file, file.tell(), (dx, dy, sx, sy), stored), REVERSED)
    if fortran_order:
        raise InputError(
            f"{name} holds {len(shape)} axes in Fortran's order: save np.ascontiguousarray of them"
        )
    *counts, dy, dx = shape
    size = dy * dx * stored.itemsize
    offset = file.tell()
    frames = file_frames(
        path, file, range(offset, offset + math.prod(counts) * size, size), (dy, dx), stored
    )
    if len(counts) == 1:
        return frames
    scan = counts[-2], counts[-1]
    if len(counts) == 2:
        return ScanOfFrames(frames, scan)
    return SeriesOfFrames(frames, counts[0], scan)


# ---- Archives


def _from_archive(path: Path, file: BinaryIO, options: ReadOptions) -> Recording:
    """Returns the scan in an archive."""
    try:
        with zipfile.ZipFile(file) as archive:
            member = _chosen(archive, path, options.dataset)
            properties = _metadata(archive, path)
            name = f"{path}, {shorten(member.filename.removesuffix('.npy'))},"
            patterns = _member(archive, member, path, file, name)
    except InputError:
        raise
    except ARCHIVE_FAULTS as error:
        raise InputError(
            f"{path} is no archive of arrays: {shorten(error, 200) or type(error).__name__}"
        ) from None
    listed = properties.get("dimensional_calibrations", properties.get("spatial_calibrations"))
    axes = swift_axes(listed) if isinstance(listed, list) else []
    if len(axes) != len(patterns.shape):
        axes = [NO_AXIS] * len(patterns.shape)
    layout = arrange(patterns, options, path, order=axis_order(axes))
    calibration = layout.calibration(axes)
    if not listed:
        calibration["reasons"] = {}
    return layout.recording(
        "Nion Swift" if listed else NAME,
        path,
        energy_ev=swift_beam(properties).energy_ev,
        metadata={"dataset": member.filename.removesuffix(".npy")},
        **calibration,
    )


def _chosen(archive: zipfile.ZipFile, path: Path, name: str | None) -> zipfile.ZipInfo:
    """Returns the member that is named, or the only array of four axes, or of five or three."""
    members = {
        array_name.filename.removesuffix(".npy"): array_name
        for array_name in archive.infolist()
        if array_name.filename.endswith(".npy")
    }
    if not 0 < len(members) <= MOST_MEMBERS:
        raise InputError(f"{path} holds {len(members)} arrays: 1 to {MOST_MEMBERS} are read")
    if name is not None:
        if name not in members:
            raise InputError(
                f"{path} has no array {shorten(name)}: it has {shorten(', '.join(members), 200)}"
            )
        return members[name]
    axes = {}
    for array_name, member in members.items():
        with archive.open(member) as opened:
            shape, _, stored = read_header(opened, f"{path}, {shorten(array_name)},")
        axes[array_name] = len(shape) if stored.kind in "uif" and 0 not in shape else 0
    return members[only_array(axes, path)]


def _member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path, file: BinaryIO, name: str
) -> PatternArray:
    """Returns the array of a member: in place if it is not packed, and otherwise in memory."""
    if member.flag_bits & 1:
        raise InputError(f"{path} is encrypted: save it without a password")
    if member.compress_type == zipfile.ZIP_STORED:
        file.seek(member.header_offset)
        local = file.read(LOCAL_HEADER)
        if len(local) < LOCAL_HEADER or not local.startswith(b"PK\3\4"):
            raise InputError(
                f"{path} is damaged: {shorten(member.filename)} is not where it should be"
            )
        file.seek(member.header_offset + LOCAL_HEADER + sum(struct.unpack_from("<2H", local, 26)))
        return _in_place(path, file, name)
    size = os.fstat(file.fileno()).st_size
    if member.file_size > COMPRESSION * size or 2 * member.file_size > available_memory_bytes():
        raise InputError(
            f"{name} has {member.file_size / 1e9:.3g} GB when unpacked, which are read as a whole: "
            "save it with np.savez or as .npy"
        )
    with archive.open(member) as opened:
        return ArrayPatterns(read_array(opened, member.file_size, name))


def _metadata(archive: zipfile.ZipFile, path: Path) -> dict[str, object]:
    """Returns Nion Swift's description of the data; empty if there is none."""
    if METADATA not in archive.namelist():
        return {}
    with archive.open(METADATA) as opened:
        data = opened.read(METADATA_BYTES + 1)
    value = parse_json(data[:METADATA_BYTES].decode(errors="replace"), f"{METADATA} in {path}")
    return swift_properties(value)
