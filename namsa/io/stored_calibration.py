"""What 4D-STEM files of other programs say of their axes, their calibration and their beam."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from namsa.arrays import Pair
from namsa.errors import InputError
from namsa.io.safe_hdf5 import Hdf5Dataset, Hdf5Group, Value
from namsa.io.units import angstrom_per_unit, as_number, inverse_angstrom_per_unit, mrad_per_unit, positive
from namsa.json_files import parse_json
from namsa.pixels import band_limit
from namsa.text import shorten


class StoredAxis(NamedTuple):
    """An axis with the coordinates origin + i · step."""

    units: str  # as the file spells them; empty if it has none
    step: float  # distance between neighbouring indices; NaN if the file has no number for it
    origin: float  # coordinate of index 0; NaN if the file has no number for it
    name: str = ""  # as the file names it; empty if it does not

    @property
    def role(self) -> str:
        """Whether it is of the scan, "s", or of the detector, "d", by its units; empty if they do not say it."""
        if mrad_per_unit(self.units) or inverse_angstrom_per_unit(self.units):
            return "d"
        return "s" if angstrom_per_unit(self.units) else ""


NO_AXIS = StoredAxis("", np.nan, np.nan)
MAX_ORIGIN_ANGSTROM = 1e10  # of a scan, a metre
EV = {"eV": 1.0, "keV": 1e3, "kV": 1e3, "V": 1.0}


class Beam(NamedTuple):
    """The beam, and the specimen's thickness, as a file describes them."""

    energy_ev: float | None = None  # energy, eV; `None` if the file does not say
    semiangle_mrad: float | None = None  # convergence semiangle, mrad; `None` if the file does not say
    limit_mrad: float = math.inf  # band limit of patterns that namsa simulated, mrad; infinite otherwise
    thickness_angstrom: float | None = None  # thickness of the specimen that namsa simulated, Å


@dataclass(frozen=True)
class Calibration:
    """Scan and detector as a file describes them; `None` is unknown. Pairs are (y, x)."""

    scan_step_angstrom: Pair | None = None  # step of the scan, Å
    pixel_mrad: Pair | None = None  # pixel of the detector, mrad
    pixel_inverse_angstrom: Pair | None = None  # pixel of the detector, 1/Å, if the file has it in place of an angle
    centre_pixels: Pair | None = None  # optic axis in pixels from the centre of the first one
    rotation_deg: float | None = None  # rotation of the detector's frame; see `namsa.io.calibration`
    flip: bool | None = None  # whether the detector's y and x are exchanged
    # Why a number is unknown of which the file says something, by its name.
    reasons: Mapping[str, str] = field(default_factory=dict)


def stored_axes(data: Hdf5Dataset) -> list[StoredAxis]:
    """Returns the axes in the stored order: HyperSpy's, EMD's, those of NXdata or of Nion Swift; or without units."""
    group, count = data.parent, len(data.shape)
    if group.get("axis-0") is not None:
        return [_hyperspy_axis(group, number) for number in range(count)]
    first = 0 if group.get("dim0") is not None else 1
    vectors = [group.get(f"dim{first + number}") for number in range(count)]
    axes = [_vector_axis(vector) for vector in vectors if isinstance(vector, Hdf5Dataset)]
    described = [axis for axis in axes if axis is not None]
    for found in (described, _nexus_axes(data), _swift_axes(data)):
        if len(found) == count:
            return found
    return [StoredAxis("", 1.0, 0.0)] * count


def origin_angstrom(axis: StoredAxis) -> float:
    """Returns the coordinate of an axis' first position, Å; 0 if it is not stored as a length."""
    origin = axis.origin * (angstrom_per_unit(axis.units) or 0.0)
    return origin if np.isfinite(origin) and abs(origin) <= MAX_ORIGIN_ANGSTROM else 0.0


def axis_order(axes: Sequence[StoredAxis]) -> tuple[str, ...] | None:
    """Returns which axis is which (`namsa.io.read_options`), as their units say; `None` if they do not.

    Of two axes of the scan, or of the detector, the first one is y, unless their names say the opposite. py4DSTEM's
    names do not count: it calls the first one x.
    """
    roles = [axis.role for axis in axes]
    scan, detector = (tuple(n for n, role in enumerate(roles) if role == kind) for kind in "sd")
    rest = [n for n in range(len(axes)) if n not in (*scan, *detector)]
    if len(detector) != 2 or len(scan) + len(rest) not in (1, 2, 3):
        return None
    if len(axes) == 3 and len(scan) + len(rest) == 1:
        scan, rest = (), [*scan, *rest]
    elif len(scan) != 2 or len(rest) > 1:
        return None
    names = {n: ("n" if len(axes) == 3 else "t") for n in rest}
    for pair, (y, x) in ((scan, ("sy", "sx")), (detector, ("dy", "dx"))):
        if pair:
            first, second = pair[::-1] if _is_x_first([axes[n].name for n in pair]) else pair
            names |= {first: y, second: x}
    return tuple(names[n] for n in range(len(axes)))


def _is_x_first(names: Sequence[str]) -> bool:
    """Returns whether the names of two axes end in x and y, in this order."""
    if any(name[:1] in ("R", "Q") for name in names):  # py4DSTEM's
        return False
    return [name.strip().lower()[-1:] for name in names] == ["x", "y"]


def stored_calibration(data: Hdf5Dataset, axes: Sequence[StoredAxis], shape: Sequence[int]) -> Calibration:
    """Returns the calibration: py4DSTEM's numbers if there are any, otherwise that of the axes (sy, sx, dy, dx).

    py4DSTEM's numbers come first because its axes mix pixels and units (0.14.18).
    """
    group = _py4dstem_group(data)
    if group is None:
        return calibration_of_axes(axes, shape)
    centre = [_number(group, f"{name}_mean", _number(group, name)) for name in ("qx0", "qy0")]
    degrees = _number(group, "QR_rotation_degrees", np.rad2deg(_number(group, "QR_rotation")))
    stated = group.get("QR_rotation_degrees") is not None or group.get("QR_rotation") is not None
    flip = abs(_number(group, "QR_flip", 0.0)) > 0
    step, pixel = _number(group, "R_pixel_size"), _number(group, "Q_pixel_size")
    scan_units, pixel_units = _py4dstem_units(group, "R"), _py4dstem_units(group, "Q")
    return replace(
        _calibration_in_units([StoredAxis(scan_units, step, 0)] * 2 + [StoredAxis(pixel_units, pixel, 0)] * 2),
        centre_pixels=None if np.isnan(centre).any() else _pair(centre),
        rotation_deg=degrees if stated else None,
        flip=flip if stated or flip else None,  # py4DSTEM writes False for what nobody has set
    )


def stored_beam(data: Hdf5Dataset) -> Beam:
    """Returns the beam as namsa, HyperSpy or py4DSTEM 0.12 wrote it."""
    for group in _parents(data):
        provenance = group.attribute("provenance")
        if isinstance(provenance, str):
            values = _json_object(provenance)
            energy_ev, semiangle, thickness = (
                positive(values.get(name)) for name in ("energy_ev", "semiangle_mrad", "thickness_angstrom")
            )
            return Beam(energy_ev, semiangle, _band_limit(values), thickness)
        microscope = group.get("metadata/Acquisition_instrument/TEM")
        if microscope is not None:
            energy_kev = positive(microscope.attribute("beam_energy"))
            return Beam(energy_kev and 1e3 * energy_kev, positive(microscope.attribute("convergence_angle")))
        energy = group.get("metadata/microscope/beam_energy")
        if isinstance(energy, Hdf5Dataset):
            return Beam(positive(energy.value()))
        for name in ("instrument/beam/incident_energy", "instrument/source/energy"):  # NeXus
            energy = group.get(name)
            if isinstance(energy, Hdf5Dataset) and (scale := EV.get(text(energy.attribute("units")) or "eV")):
                value = positive(energy.value())
                return Beam(None if value is None else scale * value)
    return swift_beam(_swift_properties(data))


def text(value: Value | None) -> str:
    """Returns an attribute as text of bounded length; empty if it is missing."""
    return "" if value is None else shorten(value)


def calibration_of_axes(axes: Sequence[StoredAxis], shape: Sequence[int]) -> Calibration:
    """Returns the calibration of axes (sy, sx, dy, dx). The optic axis is at the detector's zero if it has one."""
    detector = axes[2:]
    calibration = _calibration_in_units(axes)
    centre = _pair([-axis.origin / axis.step if axis.step else np.nan for axis in detector])
    inside = all(0 < at < size - 1 for at, size in zip(centre, shape[2:], strict=True))
    known = calibration.pixel_mrad is not None or calibration.pixel_inverse_angstrom is not None
    return replace(calibration, centre_pixels=centre if inside and known else None)


def _calibration_in_units(axes: Sequence[StoredAxis]) -> Calibration:
    """Returns the scan's steps and the detector's pixels, each axis in its own units, or why they are not known."""
    reasons = {}
    scan, detector = axes[:2], axes[2:]
    steps, angles, inverse = (
        _in_units(pair, scale)
        for pair, scale in (
            (scan, angstrom_per_unit),
            (detector, mrad_per_unit),
            (detector, inverse_angstrom_per_unit),
        )
    )
    if steps is None:
        reasons["scan_step_angstrom"] = _reason("the scan's step", scan, "s", "not a length")
    if angles is None and inverse is None:
        reasons["pixel_mrad"] = _reason("the detector's pixel", detector, "d", "not an angle")
    return Calibration(scan_step_angstrom=steps, pixel_mrad=angles, pixel_inverse_angstrom=inverse, reasons=reasons)


def _in_units(pair: Sequence[StoredAxis], scale: Callable[[str], float | None]) -> Pair | None:
    """Returns the steps of two axes in other units; `None` if one is not known."""
    scales = [scale(axis.units) for axis in pair]
    if None in scales or any(np.isnan(axis.step) for axis in pair):
        return None
    return _pair([axis.step * float(each or 0) for axis, each in zip(pair, scales, strict=True)])


def _reason(quantity: str, pair: Sequence[StoredAxis], role: str, kind: str) -> str:
    """Returns why a quantity of two axes is not known."""
    if all(axis.role == role for axis in pair):
        if any(np.isnan(axis.step) for axis in pair):
            return f"{quantity} is no number"
        return f"{quantity} is in {pair[0].units} and {pair[1].units}, an angle and a reciprocal length"
    other = next(axis for axis in pair if axis.role != role)
    return f"{quantity} is in {other.units or 'no units'}, {kind}"


def _hyperspy_axis(group: Hdf5Group, number: int) -> StoredAxis:
    """Returns an axis from the attributes of HyperSpy."""
    axis = group.get(f"axis-{number}")
    if axis is None:
        return StoredAxis("", np.nan, np.nan)
    step, origin = (as_number(axis.attribute(name)) for name in ("scale", "offset"))
    return StoredAxis(text(axis.attribute("units")), step, origin, text(axis.attribute("name")))


def _vector_axis(vector: Hdf5Dataset) -> StoredAxis | None:
    """Returns an axis from the first two of its coordinates; `None` if they are not two numbers."""
    if len(vector.shape) != 1 or vector.shape[0] < 2 or not vector.is_numeric:
        return None
    first, second = (as_number(value) for value in vector[0:2].tolist())
    name = text(vector.attribute("name")) or text(vector.attribute("long_name"))
    return StoredAxis(text(vector.attribute("units")), second - first, first, name)


def _nexus_axes(data: Hdf5Dataset) -> list[StoredAxis]:
    """Returns the axes of NXdata: the attribute `axes` of the group, or of the signal, names one dataset per axis.

    A name "." stands for none. Of a dataset of one coordinate the step is not known.
    """
    group = data.parent
    listed = group.attribute("axes") or data.attribute("axes")
    names = re.split("[:,]", listed.strip("[]")) if isinstance(listed, str) else listed
    if not isinstance(names, list) or len(names) != len(data.shape):
        return []
    found = [group.get(str(name)) if str(name) not in ("", ".") else None for name in names]
    axes = [_vector_axis(axis) if isinstance(axis, Hdf5Dataset) else None for axis in found]
    if not any(axes):
        return []
    return [NO_AXIS if axis is None else axis._replace(name=str(name)) for axis, name in zip(axes, names, strict=True)]


def _swift_properties(data: Hdf5Dataset) -> dict[str, Any]:
    """Returns Nion Swift's properties of a data item; empty without them."""
    stored = data.attribute("properties")
    return swift_properties(_json_object(stored)) if isinstance(stored, str) else {}


def _swift_axes(data: Hdf5Dataset) -> list[StoredAxis]:
    """Returns the axes of Nion Swift's calibrations."""
    properties = _swift_properties(data)
    listed = properties.get("dimensional_calibrations", properties.get("spatial_calibrations"))
    return swift_axes(listed) if isinstance(listed, list) else []


def swift_properties(stored: Any) -> dict[str, Any]:
    """Returns Nion Swift's properties, with those of the data source that they may hold."""
    properties = stored if isinstance(stored, dict) else {}
    sources = properties.get("data_sources")
    inner = properties.get("data_source", sources[0] if isinstance(sources, list) and sources else {})
    return {**(inner if isinstance(inner, dict) else {}), **properties}


def swift_beam(properties: Mapping[str, Any]) -> Beam:
    """Returns the beam as Nion Swift describes its instrument: the high tension in V."""
    for outer in (properties.get("metadata"), properties.get("properties"), properties):
        instrument = outer.get("instrument") if isinstance(outer, dict) else None
        if isinstance(instrument, dict):
            inner = instrument.get("ImageScanned", instrument.get("autostem", {}))
            inner = inner if isinstance(inner, dict) else {}
            return Beam(positive(instrument.get("high_tension", inner.get("EHT", inner.get("high_tension_v")))))
    return Beam()


def swift_axes(calibrations: Sequence[Any]) -> list[StoredAxis]:
    """Returns the axes of a list of Nion Swift's calibrations: offset + i · scale."""
    described = [each if isinstance(each, dict) else {} for each in calibrations]
    return [
        StoredAxis(
            shorten(str(each.get("units") or ""), 40), as_number(each.get("scale")), as_number(each.get("offset"))
        )
        for each in described
    ]


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
    return as_number(stored.value()) if isinstance(stored, Hdf5Dataset) and not stored.shape else np.nan


def _band_limit(provenance: Mapping[str, Any]) -> float:
    """Returns the band limit of a simulation, mrad; infinite if the text under that name is not what namsa writes."""
    try:
        return band_limit(provenance)
    except InputError:
        return math.inf


def _json_object(stored: str) -> dict[str, Any]:
    """Returns a JSON object; an empty one for other text, which another program may store under the same name."""
    try:
        value = parse_json(stored, "provenance")
    except InputError:
        return {}
    return value if isinstance(value, dict) else {}


def _pair(values: Sequence[float]) -> Pair:
    return float(values[0]), float(values[1])
