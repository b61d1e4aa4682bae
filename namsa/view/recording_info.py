"""The contents of a file of patterns: format, scan and detector, and what it does not state."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path

from namsa.base.arrays import Pair
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
    # pixel of the detector, 1/Å, where the file has it in place of an angle
    pixel_inverse_angstrom: Pair | None
    energy_ev: float | None  # energy of the beam, eV
    semiangle_mrad: float | None  # convergence semiangle of the probe, mrad
    centre_pixels: Pair | None  # optic axis, pixels
    rotation_deg: float | None  # rotation of the detector, degrees
    # what `reconstruct` needs and the file does not say, with the option that gives it
    missing: dict[str, str]
    notes: list[str]  # what was left out or assumed, and what is corrected, one line each
    metadata: dict[str, object]  # what else the file says, JSON types

    def as_json(self) -> dict[str, object]:
        """Returns the attributes in JSON types."""
        return asdict(self)


def describe_recording(recording: Recording, path: Path, frames: str = "") -> RecordingInfo:
    """Describes an open recording; no pattern is read.

    Args:
        frames: Of a scan whose shape is not known: how many frames there are, which are read as one
            row.
    """
    missing = {}
    notes = list(recording.notes)
    if frames:
        missing["scan_shape"] = "--scan-shape"
        notes.insert(0, f"the scan's shape is not known: {frames}")
    for name in REQUIRED:
        if getattr(recording, name) is None:
            missing[name] = LIMITS[name][2]
    return RecordingInfo(
        path=str(path),
        bytes=os.path.getsize(path) if path.is_file() else None,
        format=recording.format,
        shape=recording.shape,
        dtype=recording.dtype.name,
        scan_step_angstrom=recording.scan_step_angstrom,
        pixel_mrad=recording.pixel_mrad,
        pixel_inverse_angstrom=recording.pixel_inverse_angstrom,
        energy_ev=recording.energy_ev,
        semiangle_mrad=recording.semiangle_mrad,
        centre_pixels=recording.centre_pixels,
        rotation_deg=recording.rotation_deg,
        missing=missing,
        notes=notes,
        metadata=dict(recording.metadata),
    )


def rows(info: RecordingInfo) -> list[Row]:
    """Returns the description as names and values for a terminal."""
    sy, sx, dy, dx = info.shape
    size = "" if info.bytes is None else f", {info.bytes / 1e6:.1f} MB"
    table = [
        ("format", f"{info.format}{size}"),
        ("patterns", f"{sy} × {sx} of {dy} × {dx} pixels, {info.dtype}"),
    ]
    if info.energy_ev is not None:
        table.append(("energy", f"{info.energy_ev / 1e3:g} keV"))
    if info.semiangle_mrad is not None:
        table.append(("semiangle", f"{info.semiangle_mrad:g} mrad"))
    if info.scan_step_angstrom is not None:
        table.append(("scan step", _pair(info.scan_step_angstrom, "Å")))
    if info.pixel_mrad is not None:
        table.append(("pixel", _pair(info.pixel_mrad, "mrad")))
    elif info.pixel_inverse_angstrom is not None:
        table.append(("pixel", _pair(info.pixel_inverse_angstrom, "1/Å")))
    if info.centre_pixels is not None:
        table.append(("optic axis", _pair(info.centre_pixels, "pixels")))
    if info.rotation_deg is not None:
        table.append(("rotation", f"{info.rotation_deg:g}°"))
    if info.missing:
        names = REQUIRED | {"scan_shape": "the scan's shape"}
        missing = [f"{names[name]} ({option})" for name, option in info.missing.items()]
        table.append(("missing", ", ".join(missing)))
    for line in info.notes:
        table.append(("note", line))
    for name, value in info.metadata.items():
        if value not in (None, {}, []):
            table.append((name.replace("_", " "), _text(value)))
    return table


def _pair(pair: Pair, units: str) -> str:
    """Returns a pair as text; one number if both are equal."""
    y, x = (f"{value:.6g}" for value in pair)
    if y == x:
        return f"{y} {units}"
    return f"{y} × {x} {units} (y, x)"


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(_text(member) for member in value)
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
