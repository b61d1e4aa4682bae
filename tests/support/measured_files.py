"""Small files in the formats of microscopes, written by the formats' descriptions; and where the
real ones are.

Every function writes patterns `(sy, sx, dy, dx)`.
"""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from paths import ROOT

import namsa
from namsa.base.arrays import Array

MEASURED = ROOT.parent / "shared" / "data" / "measured"
Order = Literal["<", ">"]
# neither is square
SCAN = (3, 4)
DETECTOR = (6, 8)
needs_measured = pytest.mark.skipif(not MEASURED.is_dir(), reason="the measured files are not here")


def patterns(
    dtype: npt.DTypeLike = "u2",
    scan: tuple[int, int] = SCAN,
    detector: tuple[int, int] = DETECTOR,
    largest: int | None = None,
) -> Array:
    """Returns patterns of which no two pixels in a neighbourhood are equal."""
    shape = (*scan, *detector)
    if largest is None:
        largest = min(np.iinfo(dtype).max if np.dtype(dtype).kind in "ui" else 2**20, 2**31)
    return (np.arange(np.prod(shape)) * 7919 % (largest + 1)).astype(dtype).reshape(shape)


def frames_of(data: Array) -> Array:
    """Returns the frames `(n, dy, dx)` of patterns."""
    return data.reshape(-1, *data.shape[2:])


def scan_of(data: Any, **options: Any) -> Array:
    """Returns all patterns of what `namsa.read` takes."""
    with namsa.read(data, **options) as recording:
        return recording.read(slice(0, recording.shape[0]), slice(0, recording.shape[1]))


def assert_reads(
    source: Any, data: Array, attributes: dict[str, Any] | None = None, **options: Any
) -> None:
    """`namsa.read` gives these patterns, whole and in parts, and a recording with these
    attributes.
    """
    with namsa.read(source, **options) as recording:
        assert recording.shape == data.shape
        np.testing.assert_array_equal(
            recording.read(slice(0, data.shape[0]), slice(0, data.shape[1])), data
        )
        np.testing.assert_array_equal(recording.read(slice(1, 2), slice(1, 3)), data[1:2, 1:3])
        np.testing.assert_array_equal(recording.data[::2, 1:, 1:, ::3], data[::2, 1:, 1:, ::3])
        for name, value in (attributes or {}).items():
            actual = getattr(recording, name)
            assert actual == value or actual == pytest.approx(value), name


def assert_refused(message: str, data: Any, **options: Any) -> None:
    """`namsa.read` refuses it with this message."""
    with pytest.raises(namsa.InputError, match=message):
        namsa.read(data, **options)


# ---- Merlin

TYPES = {"U08": "u1", "U16": ">u2", "U32": ">u4"}
BITS = {1: 1, 6: 8, 12: 16}  # that a pixel takes in a word of raw data


def mib_header(
    frame_number: int,
    size: int,
    shape: tuple[int, ...],
    kind: str,
    layout: str,
    chips: int,
    depth: int,
) -> bytes:
    height, width = shape
    text = (
        f"MQ1,{frame_number:06d},{size:05d},{chips:02d},{width:04d},{height:04d},{kind},{layout:>6},01,"
        f"2021-05-07 18:51:10.905800,0.100000,0,0,0,4.000000E+1,{'0.000000E+0,' * 7}3RX,068,511,"
        f"MQ1A,2021-05-07T16:51:10.905800928Z,100000000ns,{depth},"
    )
    return text.encode().ljust(size, b"\0")


def raw_bytes(frame: Array, depth: int) -> bytes:
    """Returns a frame as 64-bit words, the first pixel of each in its lowest bits."""
    if depth == 24:
        return raw_bytes(frame >> 12, 12) + raw_bytes(frame & 0xFFF, 12)
    pixels = frame.astype(">u8").reshape(-1, 64 // BITS[depth])
    shifts = np.arange(pixels.shape[1], dtype="u8") * np.uint64(BITS[depth])
    return (pixels << shifts).sum(axis=1, dtype="u8").astype(">u8").tobytes()


def side_by_side(frame: Array) -> Array:
    """Returns a frame of 2 × 2 chips as raw data have it."""
    top, bottom = np.split(frame, 2)
    (top_left, top_right), (bottom_left, bottom_right) = (
        np.split(top, 2, axis=1),
        np.split(bottom, 2, axis=1),
    )
    return np.hstack([np.rot90(bottom_right, 2), np.rot90(bottom_left, 2), top_right, top_left])


def write_mib(
    path: Path, data: Array, kind: str = "U16", depth: int = 12, quad: bool = False
) -> None:
    size = 768 if quad else 384
    with path.open("wb") as file:
        for frame_number, frame in enumerate(frames_of(data), start=1):
            stored = side_by_side(frame) if quad and kind == "R64" else frame
            file.write(
                mib_header(
                    frame_number,
                    size,
                    stored.shape,
                    kind,
                    "2x2" if quad else "1x1",
                    4 if quad else 1,
                    depth,
                )
            )
            file.write(
                raw_bytes(stored, depth) if kind == "R64" else stored.astype(TYPES[kind]).tobytes()
            )


def write_hdr(path: Path, **lines: object) -> None:
    path.write_text(
        "HDR,\n" + "".join(f"{name}:\t{value}\n" for name, value in lines.items()) + "End\t"
    )


# ---- EMPAD, blockfile, MRC, TIA


def write_empad(path: Path, data: Array, xml: str | None = None) -> None:
    """Writes frames of 130 rows, of which the last two are no pixels."""
    stored = np.full((len(frames_of(data)), 130, 128), np.nan, "<f4")
    stored[:, :128] = frames_of(data)
    path.write_bytes(stored.tobytes())
    if xml is not None:
        path.with_suffix(".xml").write_text(xml)


def write_blo(path: Path, data: Array) -> None:
    sy, sx, side, _ = data.shape
    head = struct.pack(
        "<6sHIIIHHHHHddIHId", b"IMGBLO", 0x102, 4096, 4096 + sy * sx, 0x2003F, side, 0, sx, sy,
        2500, 1.5, 2.5, 200000,
        6226, 2000, 40.0,
    )  # fmt: skip
    with path.open("wb") as file:
        file.write(head.ljust(4096, b"\0") + bytes(sy * sx))
        for index, frame in enumerate(frames_of(data)):
            file.write(struct.pack("<HI", 0x55AA, index) + frame.astype("u1").tobytes())


def write_mrc(
    path: Path,
    data: Array,
    order: Order = "<",
    mode: int = 6,
    voltage: float | None = None,
) -> None:
    if voltage is None:
        extended = b""
    else:
        extended = bytes(84) + struct.pack(f"{order}d", voltage) + bytes(676)
    frames = frames_of(data)
    head = bytearray(1024)
    struct.pack_into(f"{order}4i", head, 0, frames.shape[2], frames.shape[1], len(frames), mode)
    struct.pack_into(f"{order}i", head, 92, len(extended))
    head[104:108] = b"FEI1" if extended else b"\0\0\0\0"
    head[208:216] = b"MAP " + (b"\x44\x44\0\0" if order == "<" else b"\x11\x11\0\0")
    stored = {0: "i1", 1: "i2", 2: "f4", 6: "u2", 12: "f2"}[mode]
    path.write_bytes(
        bytes(head) + extended + frames.astype(np.dtype(stored).newbyteorder(order)).tobytes()
    )


def write_ser(
    path: Path,
    data: Array,
    version: int = 0x0220,
    step_metres: tuple[float, float] = (2e-9, 1e-9),
    valid: int | None = None,
) -> None:
    """Writes a series of 16-bit images, whose rows are stored from the bottom up."""
    frames = frames_of(data)
    offset = "q" if version >= 0x220 else "i"
    valid = len(frames) if valid is None else valid
    axes = b"".join(
        struct.pack("<iddi", size, 0.0, step, 0) + struct.pack("<i4si1s", 4, b"scan", 1, b"m")
        for size, step in zip(data.shape[1::-1], step_metres[::-1], strict=True)
    )
    start = 26 + struct.calcsize(f"<{offset}") + len(axes)
    element = 50 + frames[0].size * 2
    table = start + len(frames) * element
    head = struct.pack("<3H4i", 0x4949, 0x0197, version, 0x4122, 0x4142, len(frames), valid)
    with path.open("wb") as file:
        file.write(head + struct.pack(f"<{offset}i", table, 2) + axes)
        for frame in frames:
            file.write(struct.pack("<ddiddihii", 0.0, 1.0, 0, 0.0, 1.0, 0, 2, *frame.shape[::-1]))
            file.write(frame[::-1].astype("<u2").tobytes())
        file.write(
            np.arange(start, table, element).astype(f"<{'i8' if offset == 'q' else 'i4'}").tobytes()
        )


# ---- Gatan

CODES = {
    "i2": (2, 1),
    "i4": (3, 7),
    "u2": (4, 10),
    "f4": (6, 2),
    "u1": (10, 6),
}  # of a value, and of DataType


class Dm:
    """Writes the tags of DM3 or DM4."""

    def __init__(self, version: int, order: Order) -> None:
        self.size = "I" if version == 3 else "Q"
        self.order = order

    def tag(self, name: str, value: object) -> bytes:
        data = self.group(value) if isinstance(value, dict) else self.value(value)
        total = struct.pack(">Q", len(data)) if self.size == "Q" else b""
        kind = 20 if isinstance(value, dict) else 21
        return struct.pack(">BH", kind, len(name)) + name.encode() + total + data

    def group(self, tags: dict[str, Any]) -> bytes:
        body = b"".join(
            self.tag("" if name.isdigit() else name, value) for name, value in tags.items()
        )
        return struct.pack(f">2B{self.size}", 1, 0, len(tags)) + body

    def value(self, value: object) -> bytes:
        if isinstance(value, np.ndarray):
            array = value.astype(value.dtype.newbyteorder(self.order))
            return self.layout(20, CODES[value.dtype.str[1:]][0], value.size) + array.tobytes()
        if isinstance(value, str):
            return self.value(np.frombuffer(value.encode("utf-16-le"), "<u2"))
        code = 3 if isinstance(value, int) else 7
        return self.layout(code) + struct.pack(f"{self.order}{'i' if code == 3 else 'd'}", value)

    def layout(self, *numbers: int) -> bytes:
        return b"%%%%" + struct.pack(f">{len(numbers) + 1}{self.size}", len(numbers), *numbers)


def write_dm(
    path: Path,
    array: Array,
    axes: Sequence[tuple[float, float, str]],
    *,
    version: int = 4,
    order: Order = "<",
    swapped: bool | None = None,
) -> None:
    """Writes an array, whose last axis is the first dimension, after a preview of colours.

    Args:
        axes: Scale, origin and units of each dimension.
    """

    def image(
        values: Array, dimensions: Sequence[tuple[float, float, str]], kind: int
    ) -> dict[str, Any]:
        calibrations = {
            str(n): {"Origin": origin, "Scale": scale, "Units": units}
            for n, (scale, origin, units) in enumerate(dimensions)
        }
        sizes = {str(n): size for n, size in enumerate(values.shape[::-1])}
        data = {
            "Calibrations": {"Dimension": calibrations},
            "Data": values,
            "DataType": kind,
            "Dimensions": sizes,
        }
        return {"ImageData": data}

    shown = image(np.zeros((400, 400), "i4"), [(1.0, 0.0, "")] * 2, 23)
    scan_image = image(array, axes, CODES[array.dtype.str[1:]][1])
    scan_image["ImageTags"] = {"Microscope Info": {"Voltage": 300000.0, "Name": "Titan"}}
    if swapped is not None:
        scan_image["ImageTags"]["Meta Data"] = {"Data Order Swapped": int(swapped)}
    dm = Dm(version, order)
    body = dm.group({"ImageList": {"0": shown, "1": scan_image}})
    head = struct.pack(f">I{dm.size}I", version, len(body), int(order == "<"))
    path.write_bytes(head + body + bytes(8))


def vendor(name: str) -> Path:
    """Returns a real file."""
    return MEASURED / "vendor" / name
