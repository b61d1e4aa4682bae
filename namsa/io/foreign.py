"""4D-STEM files of other programs, read piece by piece.

py4DSTEM (0.12 to 0.14), HyperSpy (.hspy and EMD), EMD in general and namsa's own files have units. A plain HDF5 file
has none, and neither has a file whose axes are in pixels: there the caller must give them.

The detector is turned into the scan's frame as in py4DSTEM: y and x are exchanged if `flip` is set, then rotated by the
angle, y' = y cos − x sin and x' = y sin + x cos.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from namsa.errors import InputError, WorkError
from namsa.io.safe_hdf5 import DamagedFileError, Hdf5Dataset, Hdf5File, Hdf5Group, open_hdf5
from namsa.io.stored_calibration import (
    Pair,
    StoredAxis,
    are_reversed,
    stored_axes,
    stored_beam,
    stored_calibration,
)
from namsa.io.units import angstrom_per_unit, mrad_per_unit
from namsa.physics.optics import wavelength_angstrom
from namsa.pixels import UNITS
from namsa.text import shorten

MAX_ORIGIN_ANGSTROM = 1e10  # of a scan, a metre
MAX_CHOICES = 12  # datasets that a message names

# The smallest and largest number of each quantity, and the option that gives it.
LIMITS = {
    "energy_ev": (10e3, 1e6, "--energy-ev"),
    "semiangle_mrad": (1e-3, 200.0, "--semiangle-mrad"),
    "scan_step_angstrom": (1e-4, 1e5, "--scan-step-angstrom"),
    "pixel_mrad": (1e-5, 1e3, "--pixel-mrad"),
    "centre_pixels": (-1e5, 1e5, "--centre-pixels"),
    "rotation_deg": (-720.0, 720.0, "--rotation-deg"),
}


class PatternArray(Protocol):
    """What a scan needs of its patterns: a dataset of a file, or an array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in the order of the file."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers."""

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """The shape of the pieces that are stored together, if there are any."""

    def __getitem__(self, index: tuple[slice, ...]) -> npt.NDArray[Any]:
        """Returns a part."""


@dataclass(frozen=True)
class CalibrationOverrides:
    """What the caller knows of a file; it takes precedence over what the file says. Pairs are (y, x).

    Attributes:
        dataset: Name of the dataset in the file; needed if it holds several of four axes.
        scan_step_angstrom: Step of the scan, Å.
        pixel_mrad: Pixel of the detector, mrad.
        energy_ev: Energy of the beam, eV.
        semiangle_mrad: Convergence semiangle of the probe, mrad.
        centre_pixels: Optic axis, in pixels from the centre of the first one.
        rotation_deg: Rotation from the detector's frame to the scan's, degrees.
    """

    dataset: str | None = None
    scan_step_angstrom: Pair | None = None
    pixel_mrad: Pair | None = None
    energy_ev: float | None = None
    semiangle_mrad: float | None = None
    centre_pixels: Pair | None = None
    rotation_deg: float | None = None


@dataclass(frozen=True)
class FourDData:
    """A calibrated scan of patterns in an open file. Pairs are (y, x).

    Attributes:
        data: The patterns in the file.
        axes_reversed: Whether the file stores the axes as (dx, dy, sx, sy).
        scan_step_angstrom: Step of the scan, Å.
        scan_origin_angstrom: First position of the scan, Å.
        pixel_mrad: Pixel of the detector, mrad.
        energy_ev: Energy of the beam, eV.
        semiangle_mrad: Convergence semiangle of the probe, mrad.
        centre_pixels: Optic axis, in pixels from the centre of the first one; `None` if it is not known.
        rotation_deg: Rotation from the detector's frame to the scan's, degrees; see the module.
        flip: Whether the detector's y and x are exchanged before the rotation.
        normalised: Whether intensities are fractions of the incident beam.
    """

    data: PatternArray
    axes_reversed: bool
    scan_step_angstrom: Pair
    scan_origin_angstrom: Pair
    pixel_mrad: Pair
    energy_ev: float
    semiangle_mrad: float
    centre_pixels: Pair | None
    rotation_deg: float
    flip: bool
    normalised: bool

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape (sy, sx, dy, dx), whatever the order in the file."""
        sy, sx, dy, dx = self._scan_first(self.data.shape)
        return sy, sx, dy, dx

    @property
    def chunk(self) -> tuple[int, int]:
        """Scan rows and columns that the file stores in one piece; (1, 1) if it is not chunked."""
        rows, columns = self._scan_first(self.data.chunks or (1, 1, 1, 1))[:2]
        return rows, columns

    def read(self, rows: slice, columns: slice) -> npt.NDArray[Any]:
        """Reads patterns of a part of the scan.

        Args:
            rows: Rows of the scan.
            columns: Columns of the scan.

        Returns:
            Patterns in the file's type, `(rows, columns, dy, dx)`.

        Raises:
            WorkError: If HDF5 cannot unpack them.
        """
        try:
            if self.axes_reversed:
                return self.data[:, :, columns, rows].transpose(3, 2, 1, 0)
            return self.data[rows, columns]
        except DamagedFileError as error:
            raise WorkError(
                f"cannot read {error.path} from scan row {rows.start} on, it is damaged or packed by a filter that "
                f"h5py lacks (h5repack makes it plain): {error.reason}"
            ) from None

    def _scan_first(self, values: tuple[int, ...]) -> tuple[int, ...]:
        """Returns one value per axis in the order (sy, sx, dy, dx)."""
        return tuple(values[::-1] if self.axes_reversed else values)


@contextmanager
def open_patterns(
    path: Path | str,
    overrides: CalibrationOverrides = CalibrationOverrides(),
) -> Iterator[FourDData]:
    """Opens the 4D-STEM scan in an HDF5 file.

    Args:
        path: File of py4DSTEM, HyperSpy, namsa, or any HDF5 file with a dataset of four axes.
        overrides: What the file does not say, or says wrongly.

    Yields:
        The scan. It is read piece by piece while the file is open.

    Raises:
        InputError: If the file cannot be read, holds no scan or several, or if its calibration is neither in the file
            nor in `overrides`.
    """
    path = Path(path)
    with open_hdf5(path) as file:
        data = _find_scan(file, path, overrides.dataset)
        if 0 in data.shape:
            raise InputError(f"{path} holds no patterns in {shorten(data.name)}: its shape is {data.shape}")
        yield _calibrate(data, overrides, path)


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


def _calibrate(data: Hdf5Dataset, overrides: CalibrationOverrides, path: Path) -> FourDData:
    """Returns the scan with the calibration of the file and of the overrides."""
    energy_ev, semiangle_mrad = _beam(data, overrides, path)
    wavelength = wavelength_angstrom(energy_ev)
    axes, shape = stored_axes(data), data.shape
    axes_reversed = are_reversed(axes, wavelength)
    if axes_reversed:
        axes, shape = axes[::-1], shape[::-1]
    stored = stored_calibration(data, axes, shape, wavelength)
    step, pixel = overrides.scan_step_angstrom or stored.scan_step_angstrom, overrides.pixel_mrad or stored.pixel_mrad
    if not overrides.scan_step_angstrom and not angstrom_per_unit(stored.scan_units):
        units = stored.scan_units or "no units"
        raise InputError(f"{path}: the scan's step is in {units}, not a length: give --scan-step-angstrom")
    if not overrides.pixel_mrad and not mrad_per_unit(stored.pixel_units, wavelength):
        units = stored.pixel_units or "no units"
        raise InputError(f"{path}: the detector's pixel is in {units}, not an angle: give --pixel-mrad")
    patterns = FourDData(
        data=data,
        axes_reversed=axes_reversed,
        scan_step_angstrom=step,
        scan_origin_angstrom=(_origin_angstrom(axes[0]), _origin_angstrom(axes[1])),
        pixel_mrad=pixel,
        energy_ev=energy_ev,
        semiangle_mrad=semiangle_mrad,
        centre_pixels=overrides.centre_pixels or stored.centre_pixels,
        rotation_deg=stored.rotation_deg if overrides.rotation_deg is None else overrides.rotation_deg,
        flip=stored.flip,
        normalised=data.attribute("units") == UNITS["cbed"],
    )
    check_limits(patterns, f"{path}: ")
    return patterns


def check_limits(patterns: FourDData, place: str = "") -> None:
    """Checks that every number of the calibration is finite and in its range.

    Args:
        patterns: The scan.
        place: Where the numbers come from, before the name of the number in the message.

    Raises:
        InputError: If a number is not.
    """
    for name in LIMITS:
        value = getattr(patterns, name)
        for number in value if isinstance(value, tuple) else () if value is None else (value,):
            _check_limit(name, number, place)


def _check_limit(name: str, value: float, place: str) -> None:
    low, high, option = LIMITS[name]
    if not low <= value <= high:
        kind = "a positive number" if low > 0 else "a number"
        raise InputError(f"{place}{name} is {value:g}: give {kind} from {low:g} to {high:g} with {option}")


def _beam(data: Hdf5Dataset, overrides: CalibrationOverrides, path: Path) -> Pair:
    """Returns the energy and the semiangle of the beam."""
    beam = stored_beam(data)
    energy_ev = beam.energy_ev if overrides.energy_ev is None else overrides.energy_ev
    semiangle_mrad = beam.semiangle_mrad if overrides.semiangle_mrad is None else overrides.semiangle_mrad
    if energy_ev is None:
        raise InputError(f"{path} does not say the beam's energy: give --energy-ev")
    if semiangle_mrad is None:
        raise InputError(f"{path} does not say the probe's semiangle: give --semiangle-mrad")
    _check_limit("energy_ev", energy_ev, f"{path}: ")
    return float(energy_ev), float(semiangle_mrad)


def _origin_angstrom(axis: StoredAxis) -> float:
    """Returns the coordinate of an axis' first position, Å; 0 if it is not stored as a length."""
    origin = axis.origin * (angstrom_per_unit(axis.units) or 0.0)
    return origin if abs(origin) <= MAX_ORIGIN_ANGSTROM else 0.0
