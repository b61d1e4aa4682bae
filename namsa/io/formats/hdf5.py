"""HDF5: py4DSTEM (0.12 to 0.14), HyperSpy (.hspy and EMD), EMD in general, fpd, namsa's own files, plain datasets.

The first ones have units. A plain HDF5 file has none, and neither has a file whose axes are in pixels: there the caller
must give them. A dataset of three axes is a stack of frames, whose scan the caller states. fpd stores the detector's
counters as a fifth axis; the first one is read.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from namsa.errors import InputError
from namsa.io.formats import dectris
from namsa.io.frames import scan_of_frames
from namsa.io.read_options import ReadOptions
from namsa.io.recording import REVERSED, OneCounter, PatternArray, Recording, TransposedAxes
from namsa.io.safe_hdf5 import SIGNATURE, Hdf5Dataset, Hdf5File, Hdf5Group, open_hdf5
from namsa.io.stored_calibration import (
    StoredAxis,
    are_reversed,
    origin_angstrom,
    stored_axes,
    stored_beam,
    stored_calibration,
)
from namsa.pixels import UNITS
from namsa.text import shorten

NAME = "HDF5"
SUFFIXES = (".h5", ".hdf5", ".emd", ".hspy", ".nxs")

MAX_CHOICES = 12  # datasets that a message names
FPD = "fpd_expt/fpd_data/data"
STACK, SCAN, COUNTERS = 3, 4, 5  # numbers of axes
NO_AXIS = StoredAxis("", np.nan, np.nan)


def recognises(path: Path, head: bytes) -> bool:
    """Returns whether the first bytes are those of HDF5."""
    return head.startswith(SIGNATURE)


@contextmanager
def open_recording(path: Path, options: ReadOptions) -> Iterator[Recording]:
    """Opens the scan in an HDF5 file.

    Args:
        path: A file with a dataset of four axes, a master file of Dectris, or a file with a stack of frames.
        options: Which dataset, and the scan of a stack.

    Raises:
        InputError: If the file cannot be read, or holds no scan or several.
    """
    with open_hdf5(path) as file:
        if options.dataset is None and dectris.is_master(file):
            yield dectris.describe(file, path, options)
            return
        data = _find_scan(file, path, options.dataset)
        if 0 in data.shape:
            raise InputError(f"{path} holds no patterns in {shorten(data.name)}: its shape is {data.shape}")
        yield _describe(data, path, options)


def _find_scan(file: Hdf5File, path: Path, name: str | None) -> Hdf5Dataset:
    """Returns the dataset that is named, fpd's, the only one of four axes, or else the only one of three."""
    if name is not None:
        item = file.find(name)
        if isinstance(item, Hdf5Group):
            item = item.get("data")
        if not isinstance(item, Hdf5Dataset) or len(item.shape) not in (STACK, SCAN, COUNTERS) or not item.is_numeric:
            raise InputError(f"{path} has no dataset {shorten(name)} of four axes: {_choices(*file.scans())}")
        return item
    fpd = file.find(FPD)
    if isinstance(fpd, Hdf5Dataset) and len(fpd.shape) == COUNTERS and fpd.is_numeric:
        return fpd
    scans, refused = file.scans()
    stacks = file.scans(STACK)[0] if not scans else []
    item = file.find((scans or stacks)[0]) if len(scans or stacks) == 1 else None
    if not isinstance(item, Hdf5Dataset):
        reason = "several" if scans else "no"
        raise InputError(f"{path} holds {reason} datasets of four axes: {_choices(scans, refused, stacks)}")
    return item


def _choices(scans: list[str], refused: list[str], stacks: list[str] | None = None) -> str:
    """Returns what to do about the choice of a scan."""
    if scans or stacks:
        found = scans or stacks or []
        names = ", ".join(shorten(scan.removeprefix("/")) for scan in found[:MAX_CHOICES])
        also = "" if scans else " and give --scan-shape"
        return f"choose one with --dataset{also}: {names}{' and more' * (len(found) > MAX_CHOICES)}"
    return "; ".join(
        ("a scan is stored as (y, x, detector y, detector x)", *(shorten(line, 160) for line in refused[:3]))
    )


def _describe(data: Hdf5Dataset, path: Path, options: ReadOptions) -> Recording:
    """Returns the scan with what the file says of it."""
    patterns: PatternArray = data
    axes, beam = stored_axes(data), stored_beam(data)
    counters = 1
    if len(data.shape) == STACK:
        patterns, axes = scan_of_frames(data, options, path), [NO_AXIS, NO_AXIS, *axes[1:]]
    elif len(data.shape) == COUNTERS:
        patterns, axes, counters = OneCounter(data), [*axes[:2], *axes[3:]], data.shape[2]
    elif are_reversed(axes):
        patterns, axes = TransposedAxes(data, REVERSED), axes[::-1]
    if options.scan_shape not in (None, patterns.shape[:2]) and not options.growing:
        raise InputError(
            f"{path} holds a scan of {patterns.shape[0]}x{patterns.shape[1]}: --scan-shape is for stacks of frames"
        )
    stored = stored_calibration(data, axes, patterns.shape)
    recording = Recording(
        data=patterns,
        format=NAME,
        name=str(path),
        scan_step_angstrom=stored.scan_step_angstrom,
        scan_origin_angstrom=(origin_angstrom(axes[0]), origin_angstrom(axes[1])),
        pixel_mrad=stored.pixel_mrad,
        pixel_inverse_angstrom=stored.pixel_inverse_angstrom,
        energy_ev=beam.energy_ev,
        semiangle_mrad=beam.semiangle_mrad,
        centre_pixels=stored.centre_pixels,
        rotation_deg=stored.rotation_deg,
        flip=stored.flip,
        normalised=data.attribute("units") == UNITS["cbed"],
        metadata={"dataset": data.name.removeprefix("/")},
        reasons=stored.reasons,
    )
    return recording if counters == 1 else replace(recording, metadata={**recording.metadata, "counters": counters})
