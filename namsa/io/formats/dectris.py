"""Dectris master files (NeXus, HDF5): frames in entry/data/data_000001, data_000002, ..., mostly in
files beside it.

The scan is rows of triggers and frames per trigger, if there are several of both; otherwise the
caller states it. The detector's distance is that of the microscope's nominal camera length where it
is set at all. A master file is written before the frames: of an acquisition that was stopped, the
last files that it names do not exist. Pixels of the detector's mask hold the largest number of
their type, and are replaced as other bad pixels are. Of a detector with several thresholds a frame
has an axis more, of which `--index` chooses one; without it the first is read.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from namsa.base.arrays import Pair
from namsa.base.errors import InputError
from namsa.io.frames import JoinedFrames
from namsa.io.hdf5_items import Hdf5Dataset, Hdf5Group
from namsa.io.layout import arrange
from namsa.io.mask import stored_mask
from namsa.io.read_options import ReadOptions
from namsa.io.recording import Recording
from namsa.io.safe_hdf5 import Hdf5File
from namsa.io.units import positive

NAME = "Dectris"

DATA = "entry/data"
FIRST = "data_000001"
DETECTOR = "entry/instrument/detector"
SPECIFIC = f"{DETECTOR}/detectorSpecific"
BEAM = "entry/instrument/beam"
MASKS = (f"{DETECTOR}/pixel_mask", f"{SPECIFIC}/pixel_mask")
FRAMES = 3  # axes of a dataset of frames
THRESHOLDS = 4  # axes of a dataset of frames at several thresholds: (n, threshold, y, x)


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
    frames = _frames(group, names, path)
    stack = frames[0] if len(frames) == 1 else JoinedFrames(frames)
    order = None
    if len(frames[0].shape) == THRESHOLDS:
        order = ("n", "t", "dy", "dx")
    stated = _scan_shape(file)
    wanted = options.scan_shape
    if wanted is None:
        wanted = stated
    elif not notes and _due_frames(file) <= stack.shape[0]:
        wanted = None  # the acquisition was not stopped
    if wanted is not None and not options.growing:
        options, stopped_notes = _complete_rows(options, stack.shape[0], wanted)
        notes = (*notes, *stopped_notes)
    try:
        layout = arrange(
            stack, options, path, order=order, stated=stated, counters=order is not None
        )
    except InputError as error:
        raise InputError("; ".join((str(error), *notes))) from None
    masked, unfit = stored_mask(file, MASKS, layout.data.shape[2:])
    return layout.recording(
        NAME,
        path,
        notes=(*notes, *unfit),
        bad_pixels=masked,
        pixel_mrad=_pixel_mrad(file),
        energy_ev=_number(file, f"{BEAM}/incident_energy")
        or _number(file, f"{SPECIFIC}/photon_energy"),
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


def _complete_rows(
    options: ReadOptions, frames: int, stated: tuple[int, int]
) -> tuple[ReadOptions, tuple[str, ...]]:
    """Returns options for the complete rows of a scan that was stopped, and a line about them."""
    rows, columns = stated
    line = columns + (options.flyback or 0)
    before, after = options.skip_frames
    count = frames + len(options.dropped_frames) - before - after
    complete = (count + (options.flyback or 0)) // line
    if not 0 < complete < rows:
        return options, ()
    rest = max(0, count - complete * line)
    options = replace(options, scan_shape=(complete, columns), skip_frames=(before, after + rest))
    return options, (f"{complete} of {rows} rows of {columns} positions are complete and read",)


def _frames(group: Hdf5Group, names: Sequence[str], path: Path) -> list[Hdf5Dataset]:
    """Returns the datasets of frames. Raises InputError if they differ, or hold no numbers."""
    frames = []
    for name in names:
        dataset = group.get(name)
        if isinstance(dataset, Hdf5Dataset) and len(dataset.shape) in (FRAMES, THRESHOLDS):
            frames.append(dataset)
    kinds = {(dataset.shape[1:], dataset.dtype) for dataset in frames}
    if len(frames) < len(names) or len(kinds) != 1:
        raise InputError(
            f"{path}: not all of {DATA}/data_... are frames (n, y, x) of one size and type"
        )
    if not frames[0].is_numeric:
        raise InputError(f"{path}: {DATA}/{names[0]} holds no numbers")
    return frames


def _scan_shape(file: Hdf5File) -> tuple[int, int] | None:
    """Returns rows and columns of the scan: one row per trigger; `None` for a single one."""
    triggers = _number(file, f"{SPECIFIC}/ntrigger")
    images = _number(file, f"{SPECIFIC}/nimages")
    if triggers and images and min(triggers, images) > 1:
        return int(triggers), int(images)
    return None


def _due_frames(file: Hdf5File) -> float:
    """Returns how many frames the acquisition was to have; 0 if that is not known."""
    triggers = _number(file, f"{SPECIFIC}/ntrigger")
    images = _number(file, f"{SPECIFIC}/nimages")
    return (triggers or 0) * (images or 0)


def _pixel_mrad(file: Hdf5File) -> Pair | None:
    """Returns the angle of a pixel (y, x), mrad; `None` without distance or sizes."""
    distance = _number(file, f"{DETECTOR}/detector_distance")
    y = _number(file, f"{DETECTOR}/y_pixel_size")
    x = _number(file, f"{DETECTOR}/x_pixel_size")
    if not (distance and y and x):
        return None
    return 1e3 * math.atan(y / distance), 1e3 * math.atan(x / distance)


def _present(group: Hdf5Group) -> tuple[list[str], tuple[str, ...]]:
    """Returns the names of the datasets of frames up to the first file that does not exist, and a
    line about the rest.

    Raises:
        InputError: If the first one is missing, or if one is missing between others.
    """
    names = sorted(name for name in group.children() if name.startswith("data_"))
    missing = [name for name in names if group.leads_nowhere(name)]
    present = names[: len(names) - len(missing)]
    if not missing or not present or present + missing != names:
        return names, ()  # whose reading says what is missing, if anything is
    return present, (
        f"the acquisition was stopped: {len(missing)} of {len(names)} files of frames do not exist",
    )


def _value(file: Hdf5File, name: str) -> object:
    item = file.find(name)
    return item.value() if isinstance(item, Hdf5Dataset) else None


def _number(file: Hdf5File, name: str) -> float | None:
    return positive(_value(file, name))
