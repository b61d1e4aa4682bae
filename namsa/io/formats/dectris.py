"""Dectris master files (NeXus, HDF5): frames in entry/data/data_000001, data_000002, ..., mostly in files beside it.

The scan is rows of triggers and frames per trigger, if there are several of both; otherwise the caller states it. The
detector's distance is that of the microscope's nominal camera length where it is set at all. A master file is written
before the frames: of an acquisition that was stopped, the last files that it names do not exist. Pixels of the
detector's mask hold the largest number of their type, and are replaced as other bad pixels are.
"""

import math
from pathlib import Path
from typing import Any

from namsa.errors import InputError
from namsa.io.frames import JoinedFrames
from namsa.io.layout import arrange
from namsa.io.mask import stored_mask
from namsa.io.read_options import ReadOptions
from namsa.io.recording import Recording
from namsa.io.safe_hdf5 import Hdf5Dataset, Hdf5File, Hdf5Group
from namsa.io.units import positive

NAME = "Dectris"

DATA, FIRST = "entry/data", "data_000001"
DETECTOR = "entry/instrument/detector"
SPECIFIC = f"{DETECTOR}/detectorSpecific"
BEAM = "entry/instrument/beam"
MASKS = (f"{DETECTOR}/pixel_mask", f"{SPECIFIC}/pixel_mask")
FRAMES = 3  # axes of a dataset of frames


def is_master(file: Hdf5File) -> bool:
    """Returns whether a file lists datasets of frames as Dectris does."""
    group = file.find(DATA)
    return isinstance(group, Hdf5Group) and FIRST in group.children()


def describe(file: Hdf5File, path: Path, options: ReadOptions) -> Recording:
    """Returns the scan in a master file; the options say what the file does not.

    Raises:
        InputError: If a file with frames is missing, or if frames differ in size or type.
    """
    group = file.find(DATA)
    assert isinstance(group, Hdf5Group)
    names, notes = _present(group)
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
    try:
        layout = arrange(stack, options, path, stated=stated)
    except InputError as error:
        raise InputError("; ".join((str(error), *notes))) from None
    masked, unfit = stored_mask(file, MASKS, layout.data.shape[2:])
    return layout.recording(
        NAME,
        path,
        notes=(*notes, *unfit),
        bad_pixels=masked,
        pixel_mrad=(pixel[0], pixel[1]) if len(pixel) == 2 else None,
        energy_ev=next((value for value in energy if value), None),
        metadata={
            "frames": stack.shape[0],
            "files": len(frames),
            "description": _value(file, f"{DETECTOR}/description"),
            "count_time_s": _number(file, f"{DETECTOR}/count_time"),
            "saturation_value": _number(file, f"{DETECTOR}/saturation_value"),
            "threshold_energy_ev": _number(file, f"{DETECTOR}/threshold_energy"),
            "masked_pixels": len(masked),
        },
    )


def _present(group: Hdf5Group) -> tuple[list[str], tuple[str, ...]]:
    """Returns the names of the datasets of frames up to the first file that does not exist, and a line about the rest.

    Raises:
        InputError: If the first one is missing, or if one is missing between others.
    """
    names = sorted(name for name in group.children() if name.startswith("data_"))
    missing = [name for name in names if group.leads_nowhere(name)]
    present = names[: len(names) - len(missing)]
    if not missing or not present or present + missing != names:
        return names, ()  # whose reading says what is missing, if anything is
    return present, (f"the acquisition was stopped: {len(missing)} of {len(names)} files of frames do not exist",)


def _value(file: Hdf5File, name: str) -> Any:
    item = file.find(name)
    return item.value() if isinstance(item, Hdf5Dataset) else None


def _number(file: Hdf5File, name: str) -> float | None:
    return positive(_value(file, name))
