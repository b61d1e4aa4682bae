"""NanoMEGAS blockfile: .blo, frames of uint8 behind six bytes each.

The header has the scan's step in nm, the energy in V, the camera's pixels per metre and the camera
length in 0.1 mm as the operator entered them: the detector's pixel is nominal. Of each frame's six
bytes the first two are 55 AA in hexadecimal and the others its number.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from namsa.base.errors import InputError, WorkError
from namsa.base.files import open_regular
from namsa.io.frames import Array, file_frames
from namsa.io.layout import arrange
from namsa.io.read_options import ReadOptions
from namsa.io.recording import Recording

NAME = "NanoMEGAS blockfile"
SUFFIXES = (".blo",)

MAGIC = 0x0102
FRAME_MARK = 0x55AA
MARK_BYTES = 6
HEADER = np.dtype(
    [
        ("id", "S6"),
        ("magic", "<u2"),
        ("image_offset", "<u4"),  # of a virtual bright field
        ("frames_offset", "<u4"),
        ("unknown", "<u4"),
        ("side", "<u2"),
        ("pattern_rotation", "<u2"),
        ("columns", "<u2"),
        ("rows", "<u2"),
        ("scan_rotation", "<u2"),  # 0.01 degrees
        ("step_x_nm", "<f8"),
        ("step_y_nm", "<f8"),
        ("energy_ev", "<u4"),
        ("pixels_per_metre", "<u2"),
        ("camera_length", "<u4"),  # 0.1 mm
        ("dwell_ms", "<f8"),
    ]
)


def recognises(path: Path, head: bytes) -> bool:
    """Returns whether the first bytes are those of a blockfile."""
    return head.startswith(b"IMGBLO")


@contextmanager
def open_recording(path: Path, options: ReadOptions) -> Iterator[Recording]:
    """Opens a blockfile."""
    with open_regular(path) as file:
        data = file.read(HEADER.itemsize)
        if len(data) < HEADER.itemsize or not recognises(path, data):
            raise InputError(
                f"{path} is no blockfile: its header has {len(data)} of {HEADER.itemsize} bytes"
            )
        header: np.void = np.frombuffer(data, HEADER)[0]
        rows, columns, side = (int(header[name]) for name in ("rows", "columns", "side"))
        if int(header["magic"]) != MAGIC or not rows * columns * side:
            raise InputError(
                f"{path} is damaged: it states {rows}x{columns} patterns of {side}x{side} pixels"
            )
        offset = int(header["frames_offset"])
        stride = side * side + MARK_BYTES

        def decode(data: npt.NDArray[np.uint8]) -> Array:
            marks = np.ascontiguousarray(data[:, :2]).view("<u2")
            if (marks != FRAME_MARK).any():
                raise WorkError(f"{path} is damaged: a pattern does not begin with its mark")
            return data[:, MARK_BYTES:].reshape(-1, side, side)

        offsets = range(offset, offset + rows * columns * stride, stride)
        frames = file_frames(path, file, offsets, (side, side), np.dtype("u1"), decode, stride)
        step = _pair(10 * header["step_y_nm"], 10 * header["step_x_nm"])
        per_mrad = 1e-7 * int(header["pixels_per_metre"]) * int(header["camera_length"])
        layout = arrange(frames, options, path, stated=(rows, columns))
        yield layout.recording(
            NAME,
            path,
            scan_step_angstrom=step,
            pixel_mrad=_pair(1 / per_mrad, 1 / per_mrad) if per_mrad else None,
            energy_ev=float(header["energy_ev"]) or None,
            metadata={
                "camera_length_m": 1e-4 * int(header["camera_length"]),
                "scan_rotation_deg": 0.01 * int(header["scan_rotation"]),
                "pixel_is_nominal": True,
            },
        )


def _pair(y: float, x: float) -> tuple[float, float] | None:
    """Returns two positive numbers; `None` for others."""
    pair = (float(y), float(x))
    return pair if min(pair) > 0 and np.isfinite(pair).all() else None
