"""The file beside a movie of Direct Electron's server: `NAME_info.txt`, lines of "name = value".

It has the scan's rows and columns, the voltage, and the scan's step where the microscope states it.
The detector's pixel has no unit there, and is kept as metadata.

Source: files of the server 2.7 that RosettaSciIO's tests store (hyperspy/rosettasciio, mrc).
"""

import re
from dataclasses import dataclass
from pathlib import Path

from namsa.base.arrays import Pair
from namsa.base.files import read_text
from namsa.base.text import shorten
from namsa.io.units import positive

INFO_BYTES = 2**20
ENDINGS = ("_movie", r"_\d+_movie", "")  # of the frames' name, in whose place "_info" stands
ON = ("enable", "on", "true")
LARGEST_SIDE = 10**6


@dataclass(frozen=True)
class ServerInfo:
    """The contents of an info file; `None` is unknown. Pairs are (y, x).

    Attributes:
        name: Its name.
        scan_shape: Rows and columns of the scan.
        scan_step_angstrom: Step of the scan, Å.
        energy_ev: Energy of the beam, eV.
        notes: What is not used, and why, one line each.
        metadata: What else it says, JSON types.
    """

    name: str
    scan_shape: tuple[int, int] | None
    scan_step_angstrom: Pair | None
    energy_ev: float | None
    notes: tuple[str, ...]
    metadata: dict[str, object]


def server_info(path: Path, frames: int) -> ServerInfo | None:
    """Returns what the server wrote beside a file of frames; `None` without such a file.

    Args:
        frames: Number of the frames, which a scan's shape must fit.
    """
    for ending in ENDINGS:
        base, count = re.subn(f"{ending}$", "", path.stem)
        file = path.with_name(f"{base}_info.txt")
        if count and file.is_file():
            return _parsed(file, frames)
    return None


def _parsed(file: Path, frames: int) -> ServerInfo:
    """Returns the contents of an info file."""
    text = read_text(file, largest_bytes=INFO_BYTES, errors="replace")
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals:
            values[name.strip()] = shorten(value.strip(), 200)
    notes: list[str] = []
    shape = _scan_shape(values, frames, notes)
    steps = [positive(values.get(f"Specimen Pixel Size {axis} (nanometers)")) for axis in "YX"]
    step = None
    if shape is not None and steps[0] and steps[1]:
        step = (10 * steps[0], 10 * steps[1])
    metadata: dict[str, object] = {"info": file.name, "camera": values.get("Camera Model")}
    pixels = [positive(values.get(f"Diffraction Pixel Size {axis}")) for axis in "YX"]
    if all(pixels):
        metadata["pixel_of_unstated_units"] = pixels
    return ServerInfo(
        name=file.name,
        scan_shape=shape,
        scan_step_angstrom=step,
        energy_ev=positive(values.get("Instrument Accelerating Voltage (V)")),
        notes=tuple(f"{file.name}: {line}" for line in notes),
        metadata=metadata,
    )


def _scan_shape(values: dict[str, str], frames: int, notes: list[str]) -> tuple[int, int] | None:
    """Returns rows and columns of the scan; `None` if the frames are not those of one raster."""
    if values.get("Scan - Enable", "").lower() not in ON:
        return None
    roi = values.get("Scan - ROI Enable", "").lower() in ON
    prefix = "Scan - ROI " if roi else "Scan - "
    kind = values.get(f"{prefix}Type", "Raster")
    sides = [values.get(f"{prefix}Size {axis}", "") for axis in "YX"]
    if not all(side.isascii() and side.isdigit() and len(side) < 8 for side in sides):
        return None
    rows, columns = (int(side) for side in sides)
    if not (0 < rows <= LARGEST_SIDE and 0 < columns <= LARGEST_SIDE):
        return None
    if kind.lower() not in ("raster", "serpentine"):
        notes.append(f"the scan is {kind}, not a raster, and its shape is not used")
        return None
    if rows * columns != frames:
        notes.append(f"a scan of {rows}x{columns} does not fit {frames:,} frames, and is not used")
        return None
    if kind.lower() == "serpentine":
        notes.append("the scan is serpentine: if frames are in the order of time, --serpentine")
    return rows, columns
