"""What 4D-STEM files of other programs say of their axes, their calibration and their beam."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from namsa.errors import InputError
from namsa.io.recording import Pair
from namsa.io.safe_hdf5 import Hdf5Dataset, Hdf5Group, Value
from namsa.io.units import angstrom_per_unit, inverse_angstrom_per_unit, mrad_per_unit
from namsa.json_files import parse_json
from namsa.text import shorten


class StoredAxis(NamedTuple):
    """An axis with the coordinates origin + i · step.

    Attributes:
        units: As the file spells them; empty if it has none.
        step: Distance between neighbouring indices; NaN if the file has no number for it.
        origin: Coordinate of index 0; NaN if the file has no number for it.
    """

    units: str
    step: float
    origin: float


MAX_ORIGIN_ANGSTROM = 1e10  # of a scan, a metre


class Beam(NamedTuple):
    """The beam as a file describes it.

    Attributes:
        energy_ev: Energy, eV; `None` if the file does not say.
        semiangle_mrad: Convergence semiangle, mrad; `None` if the file does not say.
    """

    energy_ev: float | None = None
    semiangle_mrad: float | None = None


@dataclass(frozen=True)
class Calibration:
    """Scan and detector as a file describes them; `None` is unknown. Pairs are (y, x).

    Attributes:
        scan_step_angstrom: Step of the scan, Å.
        pixel_mrad: Pixel of the detector, mrad.
        pixel_inverse_angstrom: Pixel of the detector, 1/Å, if the file has it in place of an angle.
        centre_pixels: Optic axis in pixels from the centre of the first one.
        rotation_deg: Rotation of the detector's frame; see `namsa.io.calibration`.
        flip: Whether the detector's y and x are exchanged.
        reasons: Why a number is unknown of which the file says something, by its name.
    """

    scan_step_angstrom: Pair | None = None
    pixel_mrad: Pair | None = None
    pixel_inverse_angstrom: Pair | None = None
    centre_pixels: Pair | None = None
    rotation_deg: float | None = None
    flip: bool = False
    reasons: Mapping[str, str] = field(default_factory=dict)


def stored_axes(data: Hdf5Dataset) -> list[StoredAxis]:
    """Returns the axes: HyperSpy's axis-0, ..., EMD's dim0 or dim1, ..., or axes without units."""
    group, count = data.parent, len(data.shape)
    if group.get("axis-0") is not None:
        return [_hyperspy_axis(group, number) for number in range(count)]
    first = 0 if group.get("dim0") is not None else 1
    vectors = [group.get(f"dim{first + number}") for number in range(count)]
    axes = [_vector_axis(vector) for vector in vectors if isinstance(vector, Hdf5Dataset)]
    described = [axis for axis in axes if axis is not None]
    return described if len(described) == count else [StoredAxis("", 1.0, 0.0)] * count


def origin_angstrom(axis: StoredAxis) -> float:
    """Returns the coordinate of an axis' first position, Å; 0 if it is not stored as a length."""
    origin = axis.origin * (angstrom_per_unit(axis.units) or 0.0)
    return origin if np.isfinite(origin) and abs(origin) <= MAX_ORIGIN_ANGSTROM else 0.0


def are_reversed(axes: Sequence[StoredAxis]) -> bool:
    """Whether the detector's axes come first, as HyperSpy writes EMD."""
    detector_first = all(mrad_per_unit(axis.units) or inverse_angstrom_per_unit(axis.units) for axis in axes[:2])
    return detector_first and all(angstrom_per_unit(axis.units) for axis in axes[2:])


def stored_calibration(data: Hdf5Dataset, axes: Sequence[StoredAxis], shape: Sequence[int]) -> Calibration:
    """Returns the calibration: py4DSTEM's numbers if there are any, otherwise that of the axes.

    py4DSTEM's numbers come first because its axes mix pixels and units (0.14.18).

    Args:
        data: The patterns.
        axes: Their axes, in the order (sy, sx, dy, dx).
        shape: Their shape, in the same order.
    """
    group = _py4dstem_group(data)
    if group is None:
        return calibration_of_axes(axes, shape)
    centre = [_number(group, f"{name}_mean", _number(group, name)) for name in ("qx0", "qy0")]
    step, pixel = _number(group, "R_pixel_size"), _number(group, "Q_pixel_size")
    scan_units, pixel_units = _py4dstem_units(group, "R"), _py4dstem_units(group, "Q")
    return replace(
        _calibration_in_units((step, step), (pixel, pixel), scan_units, pixel_units),
        centre_pixels=None if np.isnan(centre).any() else _pair(centre),
        rotation_deg=_number(group, "QR_rotation_degrees", 0.0),
        flip=abs(_number(group, "QR_flip", 0.0)) > 0,
    )


def stored_beam(data: Hdf5Dataset) -> Beam:
    """Returns the beam as namsa, HyperSpy or py4DSTEM 0.12 wrote it."""
    for group in _parents(data):
        provenance = group.attribute("provenance")
        if isinstance(provenance, str):
            values = _json_object(provenance)
            return Beam(_positive(values.get("energy_ev")), _positive(values.get("semiangle_mrad")))
        microscope = group.get("metadata/Acquisition_instrument/TEM")
        if microscope is not None:
            energy_kev = _positive(microscope.attribute("beam_energy"))
            return Beam(energy_kev and 1e3 * energy_kev, _positive(microscope.attribute("convergence_angle")))
        energy = group.get("metadata/microscope/beam_energy")
        if isinstance(energy, Hdf5Dataset):
            return Beam(_positive(energy.value()))
    return Beam()


def text(value: Value | None) -> str:
    """Returns an attribute as text of bounded length; empty if it is missing."""
    return "" if value is None else shorten(value)


def calibration_of_axes(axes: Sequence[StoredAxis], shape: Sequence[int]) -> Calibration:
    """Returns the calibration of four axes. The optic axis is at the detector's zero, if that lies inside.

    Args:
        axes: The axes, in the order (sy, sx, dy, dx).
        shape: Their shape.
    """
    scan, detector = axes[:2], axes[2:]
    steps, pixels = _pair([axis.step for axis in scan]), _pair([axis.step for axis in detector])
    calibration = _calibration_in_units(steps, pixels, scan[0].units, detector[0].units)
    centre = _pair([-axis.origin / axis.step if axis.step else np.nan for axis in detector])
    inside = all(0 < at < size - 1 for at, size in zip(centre, shape[2:], strict=True))
    known = calibration.pixel_mrad is not None or calibration.pixel_inverse_angstrom is not None
    return replace(calibration, centre_pixels=centre if inside and known else None)


def _calibration_in_units(step: Pair, pixel: Pair, scan_units: str, pixel_units: str) -> Calibration:
    """Returns the scan's step and the detector's pixel, or why they are not known."""
    reasons = {}
    steps, pixels, inverse = (
        _scaled(pair, scale)
        for pair, scale in (
            (step, angstrom_per_unit(scan_units)),
            (pixel, mrad_per_unit(pixel_units)),
            (pixel, inverse_angstrom_per_unit(pixel_units)),
        )
    )
    if angstrom_per_unit(scan_units) is None:
        reasons["scan_step_angstrom"] = f"the scan's step is in {scan_units or 'no units'}, not a length"
    elif steps is None:
        reasons["scan_step_angstrom"] = "the scan's step is no number"
    if mrad_per_unit(pixel_units) is None and inverse_angstrom_per_unit(pixel_units) is None:
        reasons["pixel_mrad"] = f"the detector's pixel is in {pixel_units or 'no units'}, not an angle"
    elif pixels is None and inverse is None:
        reasons["pixel_mrad"] = "the detector's pixel is no number"
    return Calibration(scan_step_angstrom=steps, pixel_mrad=pixels, pixel_inverse_angstrom=inverse, reasons=reasons)


def _scaled(pair: Pair, scale: float | None) -> Pair | None:
    """Returns a pair in other units; `None` if it is not known."""
    return None if scale is None or np.isnan(pair).any() else (pair[0] * scale, pair[1] * scale)


def _hyperspy_axis(group: Hdf5Group, number: int) -> StoredAxis:
    """Returns an axis from the attributes of HyperSpy."""
    axis = group.get(f"axis-{number}")
    if axis is None:
        return StoredAxis("", np.nan, np.nan)
    step, origin = (_finite(axis.attribute(name)) for name in ("scale", "offset"))
    return StoredAxis(text(axis.attribute("units")), step, origin)


def _vector_axis(vector: Hdf5Dataset) -> StoredAxis | None:
    """Returns an axis from the first two of its coordinates; `None` if they are not two numbers."""
    if len(vector.shape) != 1 or vector.shape[0] < 2 or not vector.is_numeric:
        return None
    first, second = (_finite(value) for value in vector[0:2].tolist())
    return StoredAxis(text(vector.attribute("units")), second - first, first)


def _py4dstem_group(data: Hdf5Dataset) -> Hdf5Group | None:
    """Returns py4DSTEM's calibration: beside the patterns (0.13), or in the metadata of a parent (0.14, 0.12)."""
    for parent in _parents(data):
        for name in ("calibration", "metadatabundle/calibration", "metadata/calibration"):
            group = parent.get(name)
            if isinstance(group, Hdf5Group) and group.get("R_pixel_size") is not None:
                return group
    return None


def _py4dstem_units(calibration: Hdf5Group, space: str) -> str:
    """Returns the units of real space, "R", or of diffraction space, "Q"."""
    for name in (f"{space}_pixel_units", f"{space}_pixel_size_units"):
        stored = calibration.get(name)
        if isinstance(stored, Hdf5Dataset):
            return text(stored.value())
    return ""


def _parents(data: Hdf5Dataset) -> Iterator[Hdf5Group]:
    """Yields the groups that hold `data`, from the inside out."""
    name = data.name
    while name:
        name = name.rpartition("/")[0]
        yield Hdf5Group(data.file, name or "/")


def _number(group: Hdf5Group, name: str, default: float = np.nan) -> float:
    """Returns a scalar, NaN for what is no number, and the default for what is missing."""
    stored = group.get(name)
    if stored is None:
        return default
    return _finite(stored.value()) if isinstance(stored, Hdf5Dataset) and not stored.shape else np.nan


def _finite(value: Any) -> float:
    """Returns a number, or the only one of a list; NaN for what is no finite number."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else np.nan


def _positive(value: Any) -> float | None:
    """Returns a positive number; `None` for all else, with which programs say that they do not know it."""
    number = _finite(value)
    return number if number > 0 else None


def _json_object(stored: str) -> dict[str, Any]:
    """Returns a JSON object; an empty one for other text, which another program may store under the same name."""
    try:
        value = parse_json(stored, "provenance")
    except InputError:
        return {}
    return value if isinstance(value, dict) else {}


def _pair(values: Sequence[float]) -> Pair:
    return float(values[0]), float(values[1])
