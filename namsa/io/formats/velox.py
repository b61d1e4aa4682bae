"""Velox (Thermo Fisher): .emd with frames along the last axis, in Data/Image/NAME/Data, and JSON
about each of them.

Velox calls its files EMD, and they have nothing of the layout of that name. The JSON of the first
frame has the pixel and its units, the voltage in V and the convergence angle in rad, as texts.
"""

import re
from pathlib import Path

import numpy as np

from namsa.base.errors import InputError
from namsa.base.json_files import parse_json
from namsa.base.text import shorten
from namsa.io.file_axes import NO_AXIS, FileAxis
from namsa.io.hdf5_items import Hdf5Dataset
from namsa.io.layout import arrange
from namsa.io.read_options import ReadOptions
from namsa.io.recording import Recording
from namsa.io.units import as_number, positive

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
    metadata = _metadata(data)
    pixel = _inner(metadata, "BinaryResult", "PixelSize")
    units = _inner(metadata, "BinaryResult")
    axes = [
        FileAxis(
            shorten(str(units.get(f"PixelUnit{axis}", "")), 40), as_number(pixel.get(side)), np.nan
        )
        for axis, side in (("Y", "height"), ("X", "width"))
    ]
    calibration = layout.calibration([*axes, NO_AXIS])
    reasons: dict[str, str] = {}
    if units and "pixel_mrad" in calibration["reasons"]:
        reasons["pixel_mrad"] = calibration["reasons"]["pixel_mrad"]
    calibration["reasons"] = reasons
    optics = _inner(metadata, "Optics")
    semiangle = positive(optics.get("BeamConvergence"))
    return layout.recording(
        NAME,
        path,
        energy_ev=positive(optics.get("AccelerationVoltage")),
        semiangle_mrad=semiangle and 1e3 * semiangle,
        metadata={"dataset": data.name.removeprefix("/"), "frames": data.shape[2]},
        **calibration,
    )


def _metadata(data: Hdf5Dataset) -> dict[str, object]:
    """Returns the JSON of the first frame; empty if there is none."""
    stored = data.parent.get("Metadata")
    if not isinstance(stored, Hdf5Dataset) or len(stored.shape) != 2 or stored.dtype != np.uint8:
        return {}
    if not 0 < stored.shape[0] <= METADATA_BYTES or not stored.shape[1]:
        return {}
    try:
        value = parse_json(
            stored[:, 0:1].tobytes().rstrip(b"\0").decode(errors="replace"), "Metadata"
        )
    except InputError:
        return {}
    return value if isinstance(value, dict) else {}


def _inner(metadata: dict[str, object], *names: str) -> dict[str, object]:
    for name in names:
        inner = metadata.get(name)
        metadata = inner if isinstance(inner, dict) else {}
    return metadata
