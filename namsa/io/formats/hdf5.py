"""HDF5: py4DSTEM (0.12 to 0.14), HyperSpy (.hspy and EMD), EMD in general, namsa's own files, and plain datasets.

The first ones have units. A plain HDF5 file has none, and neither has a file whose axes are in pixels: there the caller
must give them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from namsa.errors import InputError
from namsa.io.formats.options import ReadOptions
from namsa.io.recording import REVERSED, PatternArray, Recording, TransposedAxes
from namsa.io.safe_hdf5 import Hdf5Dataset, Hdf5File, Hdf5Group, open_hdf5
from namsa.io.stored_calibration import StoredAxis, are_reversed, stored_axes, stored_beam, stored_calibration
from namsa.io.units import angstrom_per_unit
from namsa.pixels import UNITS
from namsa.text import shorten

NAME = "HDF5"
SUFFIXES = (".h5", ".hdf5", ".emd", ".hspy", ".nxs")

MAX_ORIGIN_ANGSTROM = 1e10  # of a scan, a metre
MAX_CHOICES = 12  # datasets that a message names


def recognises(path: Path, head: bytes) -> bool:
    """Returns whether the first bytes are those of HDF5."""
    return head.startswith(b"\x89HDF\r\n\x1a\n")


@contextmanager
def open_recording(path: Path, options: ReadOptions) -> Iterator[Recording]:
    """Opens the scan in an HDF5 file.

    Args:
        path: A file with a dataset of four axes.
        options: Which dataset.

    Raises:
        InputError: If the file cannot be read, or holds no scan or several.
    """
    with open_hdf5(path) as file:
        data = _find_scan(file, path, options.dataset)
        if 0 in data.shape:
            raise InputError(f"{path} holds no patterns in {shorten(data.name)}: its shape is {data.shape}")
        yield _describe(data, path)


def _find_scan(file: Hdf5File, path: Path, name: str | None) -> Hdf5Dataset:
    """Returns the dataset of four axes that is named, or the only one."""
    if name is not None:
        item = file.find(name)
        if isinstance(item, Hdf5Group):
            item = item.get("data")
        if not isinstance(item, Hdf5Dataset) or len(item.shape) != 4 or not item.is_numeric:
            raise InputError(f"{path} has no dataset {shorten(name)} of four axes: {_choices(*file.scans())}")
        return item
    scans, refused = file.scans()
    item = file.find(scans[0]) if len(scans) == 1 else None
    if not isinstance(item, Hdf5Dataset):
        reason = "several" if scans else "no"
        raise InputError(f"{path} holds {reason} datasets of four axes: {_choices(scans, refused)}")
    return item


def _choices(scans: list[str], refused: list[str]) -> str:
    """Returns what to do about the choice of a scan."""
    if scans:
        names = ", ".join(shorten(scan.removeprefix("/")) for scan in scans[:MAX_CHOICES])
        return f"choose one with --dataset: {names}{' and more' * (len(scans) > MAX_CHOICES)}"
    return "; ".join(
        ("a scan is stored as (y, x, detector y, detector x)", *(shorten(line, 160) for line in refused[:3]))
    )


def _describe(data: Hdf5Dataset, path: Path) -> Recording:
    """Returns the scan with what the file says of it."""
    patterns: PatternArray = data
    axes, beam = stored_axes(data), stored_beam(data)
    if are_reversed(axes):
        axes, patterns = axes[::-1], TransposedAxes(data, REVERSED)
    stored = stored_calibration(data, axes, patterns.shape)
    return Recording(
        data=patterns,
        format=NAME,
        name=str(path),
        scan_step_angstrom=stored.scan_step_angstrom,
        scan_origin_angstrom=(_origin_angstrom(axes[0]), _origin_angstrom(axes[1])),
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


def _origin_angstrom(axis: StoredAxis) -> float:
    """Returns the coordinate of an axis' first position, Å; 0 if it is not stored as a length."""
    origin = axis.origin * (angstrom_per_unit(axis.units) or 0.0)
    return origin if np.isfinite(origin) and abs(origin) <= MAX_ORIGIN_ANGSTROM else 0.0
