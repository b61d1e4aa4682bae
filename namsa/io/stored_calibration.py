"""What 4D-STEM files of other programs say of their axes, their calibration and their beam."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import h5py
import numpy as np

from namsa.io.units import angstrom_per_unit, mrad_per_unit

Pair = tuple[float, float]


class StoredAxis(NamedTuple):
    """An axis with the coordinates origin + i · step.

    Attributes:
        units: As the file spells them; empty if it has none.
        step: Distance between neighbouring indices.
        origin: Coordinate of index 0.
    """

    units: str
    step: float
    origin: float


class Beam(NamedTuple):
    """The beam as a file describes it.

    Attributes:
        energy_ev: Energy, eV; `None` if the file does not say.
        semiangle_mrad: Convergence semiangle, mrad; `None` if the file does not say.
    """

    energy_ev: float | None = None
    semiangle_mrad: float | None = None


class Calibration(NamedTuple):
    """Scan and detector as a file describes them. Pairs are (y, x), and NaN if the units are unknown.

    Attributes:
        scan_step_angstrom: Step of the scan, Å.
        pixel_mrad: Pixel of the detector, mrad.
        centre_pixels: Optic axis in pixels from the centre of the first one; `None` if the file does not say.
        rotation_deg: Rotation of the detector's frame; see `namsa.io.foreign`.
        flip: Whether the detector's y and x are exchanged.
        scan_units: Units of the scan's step, as the file spells them.
        pixel_units: Units of the detector's pixel, as the file spells them.
    """

    scan_step_angstrom: Pair
    pixel_mrad: Pair
    centre_pixels: Pair | None
    rotation_deg: float
    flip: bool
    scan_units: str
    pixel_units: str


def stored_axes(data: h5py.Dataset) -> list[StoredAxis]:
    """Returns the four axes: HyperSpy's axis-0 to axis-3, EMD's dim0 to dim3 or dim1 to dim4, or axes without units."""
    group = data.parent
    if "axis-0" in group:
        attributes = [group[f"axis-{number}"].attrs for number in range(4)]
        return [StoredAxis(text(a.get("units", "")), float(a["scale"]), float(a["offset"])) for a in attributes]
    first = 0 if "dim0" in group else 1
    vectors = [group[f"dim{first + number}"] for number in range(4) if f"dim{first + number}" in group]
    if len(vectors) < 4 or any(len(vector) < 2 for vector in vectors):
        return [StoredAxis("", 1.0, 0.0)] * 4
    return [StoredAxis(text(v.attrs.get("units", "")), float(v[1]) - float(v[0]), float(v[0])) for v in vectors]


def are_reversed(axes: Sequence[StoredAxis], wavelength: float) -> bool:
    """Whether the detector's axes come first, as HyperSpy writes EMD."""
    detector_first = all(mrad_per_unit(axis.units, wavelength) for axis in axes[:2])
    return detector_first and all(angstrom_per_unit(axis.units) for axis in axes[2:])


def stored_calibration(
    data: h5py.Dataset, axes: Sequence[StoredAxis], shape: Sequence[int], wavelength: float
) -> Calibration:
    """Returns the calibration: py4DSTEM's numbers if there are any, otherwise that of the axes.

    py4DSTEM's numbers come first because its axes mix pixels and units (0.14.18).

    Args:
        data: The patterns.
        axes: Their axes, in the order (sy, sx, dy, dx).
        shape: Their shape, in the same order.
        wavelength: Of the electrons, Å.
    """
    group = _py4dstem_group(data)
    if group is None:
        return _calibration_of_axes(axes, shape, wavelength)
    scan_units, pixel_units = _py4dstem_units(group, "R"), _py4dstem_units(group, "Q")
    centre = [_number(group, f"{name}_mean", _number(group, name)) for name in ("qx0", "qy0")]
    step = _number(group, "R_pixel_size") * (angstrom_per_unit(scan_units) or np.nan)
    pixel = _number(group, "Q_pixel_size") * (mrad_per_unit(pixel_units, wavelength) or np.nan)
    return Calibration(
        scan_step_angstrom=(step, step),
        pixel_mrad=(pixel, pixel),
        centre_pixels=None if np.isnan(centre).any() else _pair(centre),
        rotation_deg=_number(group, "QR_rotation_degrees", 0.0),
        flip=bool(_number(group, "QR_flip", 0.0)),
        scan_units=scan_units,
        pixel_units=pixel_units,
    )


def stored_beam(data: h5py.Dataset) -> Beam:
    """Returns the beam as namsa, HyperSpy or py4DSTEM 0.12 wrote it."""
    for group in _parents(data):
        if "provenance" in group.attrs:
            provenance = json.loads(group.attrs["provenance"])
            return Beam(provenance.get("energy_ev"), provenance.get("semiangle_mrad"))
        if "metadata/Acquisition_instrument/TEM" in group:
            attributes = group["metadata/Acquisition_instrument/TEM"].attrs
            energy_ev = float(1e3 * attributes.get("beam_energy", 0))
            return Beam(energy_ev or None, float(attributes.get("convergence_angle", 0)) or None)
        if "beam_energy" in group.get("metadata/microscope", ()):
            return Beam(float(group["metadata/microscope/beam_energy"][()]))
    return Beam()


def text(value: Any) -> str:
    """Returns an attribute as text."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _calibration_of_axes(axes: Sequence[StoredAxis], shape: Sequence[int], wavelength: float) -> Calibration:
    """Returns the calibration of four axes. The optic axis is at the detector's zero, if that lies inside."""
    scan, detector = axes[:2], axes[2:]
    pixel = _pair([axis.step * (mrad_per_unit(axis.units, wavelength) or np.nan) for axis in detector])
    centre = _pair([-axis.origin / axis.step for axis in detector])
    inside = all(0 < at < size - 1 for at, size in zip(centre, shape[2:], strict=True))
    return Calibration(
        scan_step_angstrom=_pair([axis.step * (angstrom_per_unit(axis.units) or np.nan) for axis in scan]),
        pixel_mrad=pixel,
        centre_pixels=centre if inside and not np.isnan(pixel).any() else None,
        rotation_deg=0.0,
        flip=False,
        scan_units=scan[0].units,
        pixel_units=detector[0].units,
    )


def _py4dstem_group(data: h5py.Dataset) -> h5py.Group | None:
    """Returns py4DSTEM's calibration: beside the patterns (0.13), or in the metadata of a parent (0.14, 0.12)."""
    for group in _parents(data):
        for name in ("calibration", "metadatabundle/calibration", "metadata/calibration"):
            if "R_pixel_size" in group.get(name, ()):
                return group[name]
    return None


def _py4dstem_units(calibration: h5py.Group, space: str) -> str:
    """Returns the units of real space, "R", or of diffraction space, "Q"."""
    for name in (f"{space}_pixel_units", f"{space}_pixel_size_units"):
        if name in calibration:
            return text(calibration[name][()])
    return ""


def _parents(data: h5py.Dataset) -> Iterator[h5py.Group]:
    """Yields the groups that hold `data`, from the inside out."""
    group = data.parent
    while True:
        yield group
        if group.name == "/":
            return
        group = group.parent


def _number(group: h5py.Group, name: str, default: float = np.nan) -> float:
    """Returns a scalar, NaN for what is no number, and the default for what is missing."""
    value = group[name][()] if name in group else default
    return float(value) if np.ndim(value) == 0 and not isinstance(value, bytes | str) else np.nan


def _pair(values: Sequence[float]) -> Pair:
    return float(values[0]), float(values[1])
