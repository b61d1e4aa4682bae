"""What a file of patterns holds: its format, scan and detector, what it says of them, and what it does not."""

import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from namsa.arrays import Pair
from namsa.io.calibration import LIMITS, REQUIRED
from namsa.io.recording import Recording

Row = tuple[str, str]  # name and value


@dataclass(frozen=True)
class RecordingInfo:
    """A file of patterns. Pairs are (y, x); `None` is unknown."""

    path: str  # the file
    bytes: int | None  # its size; `None` for a folder
    format: str  # name of its format
    shape: tuple[int, int, int, int]  # shape (scan y, scan x, detector y, detector x)
    dtype: str  # NumPy's name of the numbers' type
    scan_step_angstrom: Pair | None  # step of the scan, Å
    pixel_mrad: Pair | None  # pixel of the detector, mrad
    pixel_inverse_angstrom: Pair | None  # pixel of the detector, 1/Å, where the file has it in place of an angle
    energy_ev: float | None  # energy of the beam, eV
    semiangle_mrad: float | None  # convergence semiangle of the probe, mrad
    centre_pixels: Pair | None  # optic axis, pixels
    rotation_deg: float | None  # rotation of the detector, degrees
    missing: dict[str, str]  # what `reconstruct` needs and the file does not say, with the option that gives it
    notes: list[str]  # what was left out or assumed, and what is corrected, one line each
    metadata: dict[str, Any]  # what else the file says, JSON types

    def as_json(self) -> dict[str, Any]:
        """Returns the attributes in JSON types."""
        return asdict(self)


def describe_recording(recording: Recording, path: Path, frames: str = "") -> RecordingInfo:
    """Describes an open recording; no pattern is read.

    Args:
        frames: Of a scan whose shape is not known: how many frames there are, which are read as one row.
    """
    names = {each.name for each in fields(RecordingInfo)}
    known = {name: value for name, value in vars(recording).items() if name in names}
    unknown = {"scan_shape": "--scan-shape"} if frames else {}
    notes = [f"the scan's shape is not known: {frames}"] if frames else []
    return RecordingInfo(
        path=str(path),
        bytes=os.path.getsize(path) if path.is_file() else None,
        shape=recording.shape,
        dtype=recording.dtype.name,
        missing=unknown | {name: LIMITS[name][2] for name in REQUIRED if getattr(recording, name) is None},
        **known | {"notes": [*notes, *recording.notes], "metadata": dict(recording.metadata)},
    )


def rows(info: RecordingInfo) -> list[Row]:
    """Returns the description as names and values for a terminal."""
    sy, sx, dy, dx = info.shape
    size = "" if info.bytes is None else f", {info.bytes / 1e6:.1f} MB"
    known = {
        "energy": None if info.energy_ev is None else f"{info.energy_ev / 1e3:g} keV",
        "semiangle": None if info.semiangle_mrad is None else f"{info.semiangle_mrad:g} mrad",
        "scan step": _pair(info.scan_step_angstrom, "Å"),
        "pixel": _pair(info.pixel_mrad, "mrad") or _pair(info.pixel_inverse_angstrom, "1/Å"),
        "optic axis": _pair(info.centre_pixels, "pixels"),
        "rotation": None if info.rotation_deg is None else f"{info.rotation_deg:g}°",
    }
    names = REQUIRED | {"scan_shape": "the scan's shape"}
    missing = ", ".join(f"{names[name]} ({option})" for name, option in info.missing.items())
    return [
        ("format", f"{info.format}{size}"),
        ("patterns", f"{sy} × {sx} of {dy} × {dx} pixels, {info.dtype}"),
        *((name, value) for name, value in known.items() if value is not None),
        *([("missing", missing)] if missing else []),
        *(("note", line) for line in info.notes),
        *(
            (name.replace("_", " "), _text(value))
            for name, value in info.metadata.items()
            if value not in (None, {}, [])
        ),
    ]


def _pair(pair: Pair | None, units: str) -> str | None:
    """Returns a pair as text; one number if both are equal."""
    if pair is None:
        return None
    y, x = (f"{number:.6g}" for number in pair)
    return f"{y} {units}" if y == x else f"{y} × {x} {units} (y, x)"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
