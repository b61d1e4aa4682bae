"""Velox (Thermo Fisher): .emd with frames along the last axis, in Data/Image/NAME/Data, and JSON about each of them.

Velox calls its files EMD, and they have nothing of the layout of that name. The JSON of the first frame has the pixel
and its units, the voltage in V and the convergence angle in rad, as texts.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np

from namsa.errors import InputError
from namsa.io.layout import arrange
from namsa.io.read_options import ReadOptions
from namsa.io.recording import Recording
from namsa.io.safe_hdf5 import Hdf5Dataset
from namsa.io.stored_calibration import NO_AXIS, StoredAxis, calibration_of_axes
from namsa.json_files import parse_json
from namsa.text import shorten

NAME = "Velox"
FRAMES_LAST = ("dy", "dx", "n")
_NAME = re.compile(r"/?Data/Image/[^/]+/Data")
METADATA_BYTES = 2**22


def is_name(name: str) -> bool:
    """Returns whether a dataset is named as Velox names images."""
    return _NAME.fullmatch(name) is not None


def is_image(data: Hdf5Dataset) -> bool:
    """Returns whether a dataset is an image of Velox, or several of them as frames."""
    return is_name(data.name) and len(data.shape) == len(FRAMES_LAST)


def describe(data: Hdf5Dataset, path: Path, options: ReadOptions) -> Recording:
    """Returns the frames as a scan, with what Velox says of them."""
    layout = arrange(data, options, path, order=FRAMES_LAST)
    said = _metadata(data)
    pixel, units = _inner(said, "BinaryResult", "PixelSize"), _inner(said, "BinaryResult")
    axes = [
        StoredAxis(shorten(str(units.get(f"PixelUnit{axis}", "")), 40), _number(pixel.get(side)), np.nan)
        for axis, side in (("Y", "height"), ("X", "width"))
    ]
    calibration = calibration_of_axes([NO_AXIS, NO_AXIS, *axes], layout.data.shape)
    optics = _inner(said, "Optics")
    energy, semiangle = _number(optics.get("AccelerationVoltage")), _number(optics.get("BeamConvergence"))
    return Recording(
        data=layout.data,
        format=NAME,
        name=str(path),
        pixel_mrad=calibration.pixel_mrad,
        pixel_inverse_angstrom=calibration.pixel_inverse_angstrom,
        energy_ev=energy if energy > 0 else None,
        semiangle_mrad=1e3 * semiangle if semiangle > 0 else None,
        notes=layout.notes,
        metadata={"dataset": data.name.removeprefix("/"), "frames": data.shape[2]},
        reasons={name: reason for name, reason in calibration.reasons.items() if name == "pixel_mrad" and units},
    )


def _metadata(data: Hdf5Dataset) -> dict[str, Any]:
    """Returns the JSON of the first frame; empty if there is none."""
    stored = data.parent.get("Metadata")
    if not isinstance(stored, Hdf5Dataset) or len(stored.shape) != 2 or stored.dtype != np.uint8:
        return {}
    if not 0 < stored.shape[0] <= METADATA_BYTES or not stored.shape[1]:
        return {}
    try:
        value = parse_json(stored[:, 0:1].tobytes().rstrip(b"\0").decode(errors="replace"), "Metadata")
    except InputError:
        return {}
    return value if isinstance(value, dict) else {}


def _inner(said: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        inner = said.get(name)
        said = inner if isinstance(inner, dict) else {}
    return said


def _number(value: Any) -> float:
    """Returns a number, which Velox writes as a text; NaN for all else."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return np.nan
    return number if np.isfinite(number) else np.nan
