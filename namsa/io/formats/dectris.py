"""Dectris master files (NeXus, HDF5): frames in entry/data/data_000001, data_000002, ..., mostly in files beside it.

The scan is rows of triggers and frames per trigger, if there are several of both; otherwise the caller states it. The
detector's distance is that of the microscope's nominal camera length where it is set at all.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from namsa.errors import InputError
from namsa.io.frames import JoinedFrames, scan_of_frames
from namsa.io.read_options import ReadOptions
from namsa.io.recording import Recording
from namsa.io.safe_hdf5 import Hdf5Dataset, Hdf5File, Hdf5Group

NAME = "Dectris"

DATA, FIRST = "entry/data", "data_000001"
DETECTOR = "entry/instrument/detector"
SPECIFIC = f"{DETECTOR}/detectorSpecific"
BEAM = "entry/instrument/beam"
FRAMES = 3  # axes of a dataset of frames
MASK_PIXELS = 2**24
LISTED = 4096  # masked pixels


def is_master(file: Hdf5File) -> bool:
    """Returns whether a file lists datasets of frames as Dectris does."""
    group = file.find(DATA)
    return isinstance(group, Hdf5Group) and FIRST in group.children()


def describe(file: Hdf5File, path: Path, options: ReadOptions) -> Recording:
    """Returns the scan in a master file.

    Args:
        file: The open file.
        path: Its path.
        options: The scan, where the file does not say it.

    Raises:
        InputError: If a file with frames is missing, or if frames differ in size or type.
    """
    group = file.find(DATA)
    assert isinstance(group, Hdf5Group)
    names = sorted(name for name in group.children() if name.startswith("data_"))
    pieces = [group.get(name) for name in names]
    frames = [piece for piece in pieces if isinstance(piece, Hdf5Dataset) and len(piece.shape) == FRAMES]
    if len(frames) < len(names) or len({(piece.shape[1:], piece.dtype) for piece in frames}) != 1:
        raise InputError(f"{path}: not all of {DATA}/data_... are frames (n, y, x) of one size and type")
    if not frames[0].is_numeric:
        raise InputError(f"{path}: {DATA}/{names[0]} holds no numbers")
    triggers, images = (_number(file, f"{SPECIFIC}/{name}") for name in ("ntrigger", "nimages"))
    stated = (int(triggers), int(images)) if triggers and images and min(triggers, images) > 1 else None
    distance = _number(file, f"{DETECTOR}/detector_distance")
    sizes = [_number(file, f"{DETECTOR}/{axis}_pixel_size") for axis in "yx"]
    pixel = [1e3 * math.atan(size / distance) for size in sizes if size and distance]
    energy = [_number(file, name) for name in (f"{BEAM}/incident_energy", f"{SPECIFIC}/photon_energy")]
    stack = frames[0] if len(frames) == 1 else JoinedFrames(frames)
    return Recording(
        data=scan_of_frames(stack, options, path, stated),
        format=NAME,
        name=str(path),
        pixel_mrad=(pixel[0], pixel[1]) if len(pixel) == 2 else None,
        energy_ev=next((value for value in energy if value), None),
        metadata={
            "frames": stack.shape[0],
            "files": len(frames),
            "description": _value(file, f"{DETECTOR}/description"),
            "count_time_s": _number(file, f"{DETECTOR}/count_time"),
            "saturation_value": _number(file, f"{DETECTOR}/saturation_value"),
            "threshold_energy_ev": _number(file, f"{DETECTOR}/threshold_energy"),
            "masked_pixels": _masked(file),
        },
    )


def _value(file: Hdf5File, name: str) -> Any:
    item = file.find(name)
    return item.value() if isinstance(item, Hdf5Dataset) else None


def _number(file: Hdf5File, name: str) -> float | None:
    """Returns a positive number; `None` for all else, with which a detector says that it was not told."""
    value = _value(file, name)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return float(value) if isinstance(value, int | float) and math.isfinite(value) and value > 0 else None


def _masked(file: Hdf5File) -> list[list[int]] | None:
    """Returns the pixels [y, x] that the detector's mask excludes, the first ones of many; `None` without a mask."""
    mask = file.find(f"{SPECIFIC}/pixel_mask")
    if not isinstance(mask, Hdf5Dataset) or len(mask.shape) != 2 or not mask.is_numeric:
        return None
    if math.prod(mask.shape) > MASK_PIXELS:
        return None
    masked: list[list[int]] = np.argwhere(mask[:, :])[:LISTED].tolist()
    return masked
