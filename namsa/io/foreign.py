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
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from namsa.errors import InputError, WorkError
from namsa.io.stored_calibration import Pair, are_reversed, stored_axes, stored_beam, stored_calibration, text
from namsa.io.units import angstrom_per_unit
from namsa.physics.optics import wavelength_angstrom
from namsa.pixels import UNITS


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

    data: h5py.Dataset
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
                return np.asarray(self.data[:, :, columns, rows]).transpose(3, 2, 1, 0)
            return np.asarray(self.data[rows, columns])
        except OSError as error:
            raise WorkError(
                f"cannot read {self.data.file.filename} from scan row {rows.start} on, it is damaged or packed by a "
                f"filter that h5py lacks (h5repack makes it plain): {' '.join(str(error).split())}"
            ) from None

    def _scan_first(self, values: tuple[int, ...]) -> tuple[int, ...]:
        """Returns one value per axis in the order (sy, sx, dy, dx)."""
        return tuple(values[::-1] if self.axes_reversed else values)


@contextmanager
def open_patterns(
    path: Path,
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
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise InputError(f"cannot read {path} as HDF5: {' '.join(str(error).split())}") from None
    with file:
        data = _find_scan(file, path, overrides.dataset)
        yield _calibrate(data, overrides, path)


def _find_scan(file: h5py.File, path: Path, name: str | None) -> h5py.Dataset:
    """Returns the dataset of four axes that is named, or the only one."""
    if name is not None:
        item = file.get(name)
        if isinstance(item, h5py.Group):
            item = item.get("data")
        if not isinstance(item, h5py.Dataset) or item.ndim != 4:
            raise InputError(f"{path} has no dataset {name} of four axes: {_choices(_scans(file))}")
        return item
    scans = _scans(file)
    if len(scans) != 1:
        reason = "several" if scans else "no"
        raise InputError(f"{path} holds {reason} datasets of four axes: {_choices(scans)}")
    return scans[0]


def _scans(file: h5py.File) -> list[h5py.Dataset]:
    """Returns the numeric datasets of four axes."""
    scans: list[h5py.Dataset] = []

    def visit(_: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.ndim == 4 and item.dtype.kind in "uif":
            scans.append(item)

    file.visititems(visit)
    return scans


def _choices(scans: list[h5py.Dataset]) -> str:
    names = ", ".join(scan.name.removeprefix("/") for scan in scans)
    return f"choose one with --dataset: {names}" if scans else "a scan is stored as (y, x, detector y, detector x)"


def _calibrate(data: h5py.Dataset, overrides: CalibrationOverrides, path: Path) -> FourDData:
    """Returns the scan with the calibration of the file and of the overrides."""
    beam = stored_beam(data)
    energy_ev = overrides.energy_ev or beam.energy_ev
    semiangle_mrad = overrides.semiangle_mrad or beam.semiangle_mrad
    if energy_ev is None:
        raise InputError(f"{path} does not say the beam's energy: give --energy-ev")
    if semiangle_mrad is None:
        raise InputError(f"{path} does not say the probe's semiangle: give --semiangle-mrad")
    wavelength = wavelength_angstrom(energy_ev)
    axes, shape = stored_axes(data), data.shape
    axes_reversed = are_reversed(axes, wavelength)
    if axes_reversed:
        axes, shape = axes[::-1], shape[::-1]
    stored = stored_calibration(data, axes, shape, wavelength)
    step, pixel = overrides.scan_step_angstrom or stored.scan_step_angstrom, overrides.pixel_mrad or stored.pixel_mrad
    if not min(step) > 0:
        units = stored.scan_units or "no units"
        raise InputError(f"{path}: the scan's step is in {units}, not a length: give --scan-step-angstrom")
    if not min(pixel) > 0:
        units = stored.pixel_units or "no units"
        raise InputError(f"{path}: the detector's pixel is in {units}, not an angle: give --pixel-mrad")
    y, x = (axis.origin * (angstrom_per_unit(axis.units) or 0.0) for axis in axes[:2])
    return FourDData(
        data=data,
        axes_reversed=axes_reversed,
        scan_step_angstrom=step,
        scan_origin_angstrom=(y, x),
        pixel_mrad=pixel,
        energy_ev=float(energy_ev),
        semiangle_mrad=float(semiangle_mrad),
        centre_pixels=overrides.centre_pixels or stored.centre_pixels,
        rotation_deg=stored.rotation_deg if overrides.rotation_deg is None else overrides.rotation_deg,
        flip=stored.flip,
        normalised=text(data.attrs.get("units", "")) == UNITS["cbed"],
    )
