"""MRC (MRC2014): a stack of frames. The scan's shape is the caller's to give, or that of the info
file that Direct Electron's server writes beside it.

The header's cell is a length, which says nothing of a detector's pixel. The extended headers FEI1
and FEI2 have the voltage. Rows are returned in the order of the file, whose origin is at the bottom
left.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

import numpy as np

from namsa.base.errors import InputError
from namsa.base.files import open_regular
from namsa.io.formats.direct_electron import server_info
from namsa.io.frames import file_frames
from namsa.io.layout import arrange
from namsa.io.read_options import ReadOptions
from namsa.io.recording import Recording, RecordingFacts

NAME = "MRC"
SUFFIXES = (".mrc", ".mrcs")

HEADER_BYTES = 1024
TYPES = {0: "i1", 1: "i2", 2: "f4", 6: "u2", 12: "f2"}
IMOD_STAMP = 1146047817
IMOD_SIGNED = 1
# of the extended header
VOLTAGE_AT = 84
VOLTAGE_END = 92


def recognises(path: Path, head: bytes) -> bool:
    """Returns whether the mark of MRC is in its place."""
    return (
        len(head) >= 216 and head[208:212] == b"MAP " and head[212:213] in (b"\x44", b"\x11", b"\0")
    )


@contextmanager
def open_recording(path: Path, options: ReadOptions) -> Iterator[Recording]:
    """Opens a stack of frames."""
    with open_regular(path) as file:
        header = _read_header(path, file)
        frames = file_frames(
            path, file, header.offsets, (header.rows, header.columns), header.stored
        )
        voltage = _voltage(file, header)
        info = server_info(path, header.sections - sum(options.skip_frames))
        stated = None if info is None else info.scan_shape
        layout = arrange(frames, options, path, stated=stated)
        known: RecordingFacts = {}
        notes: tuple[str, ...] = ()
        metadata: dict[str, object] = {
            "frames": header.sections,
            "extended_header": header.kind.strip("\0 ") or None,
        }
        if info is not None:
            has_stated_shape = layout.data.shape[:2] == info.scan_shape
            known["scan_step_angstrom"] = info.scan_step_angstrom if has_stated_shape else None
            known["energy_ev"] = info.energy_ev
            notes = info.notes
            metadata |= info.metadata
        if 1e3 < voltage < 1e7:
            known["energy_ev"] = voltage
        known["metadata"] = metadata
        yield layout.recording(NAME, path, notes=notes, **known)


class _Header(NamedTuple):
    """The header of a stack."""

    order: Literal["<", ">"]  # byte order
    columns: int
    rows: int
    sections: int  # number of frames
    stored: np.dtype[np.generic]  # type of a pixel
    extended: int  # number of bytes of the extended header
    kind: str  # of the extended header, four characters

    @property
    def offsets(self) -> range:
        """The bytes at which the frames begin."""
        begin = HEADER_BYTES + self.extended
        size = self.rows * self.columns * self.stored.itemsize
        return range(begin, begin + self.sections * size, size)


def _read_header(path: Path, file: BinaryIO) -> _Header:
    """Returns the header. Raises InputError if the file has none that is read."""
    head = file.read(HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        raise InputError(
            f"{path} is no MRC file: it has {len(head)} bytes, and the header takes {HEADER_BYTES}"
        )
    order: Literal["<", ">"] = ">" if head[212:213] == b"\x11" else "<"
    columns, rows, sections, mode = struct.unpack_from(f"{order}4i", head)
    (extended,) = struct.unpack_from(f"{order}i", head, 92)
    if mode not in TYPES or min(columns, rows, sections) < 1 or extended < 0:
        raise InputError(
            f"{path} is damaged or of another kind: it states {sections} frames of "
            f"{rows}x{columns}, mode {mode}; modes {', '.join(map(str, TYPES))} are read"
        )
    stamp, flags = struct.unpack_from(f"{order}2i", head, 152)
    is_unsigned = mode == 0 and stamp == IMOD_STAMP and not flags & IMOD_SIGNED
    stored = np.dtype("u1" if is_unsigned else TYPES[mode]).newbyteorder(order)
    kind = head[104:108].decode("ascii", "replace")
    return _Header(order, columns, rows, sections, stored, extended, kind)


def _voltage(file: BinaryIO, header: _Header) -> float:
    """Returns the voltage of an extended header of FEI, V; 0 of any other."""
    if header.kind not in ("FEI1", "FEI2") or header.extended < VOLTAGE_END:
        return 0.0
    file.seek(HEADER_BYTES + VOLTAGE_AT)
    (voltage,) = struct.unpack(f"{header.order}d", file.read(8))
    return float(voltage)
