"""Calibration and beam as 4D-STEM files of other programs store them."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

import numpy as np

from namsa.base.arrays import Pair
from namsa.base.errors import InputError
from namsa.base.pixels import band_limit
from namsa.base.provenance_values import Provenance
from namsa.io.corrections import Slope
from namsa.io.file_axes import FileAxis
from namsa.io.file_beam import FileBeam
from namsa.io.hdf5_items import Hdf5Dataset, Hdf5Group
from namsa.io.nion_swift import swift_beam
from namsa.io.stored_axes import json_object, stored_swift_properties, text
from namsa.io.units import (
    angstrom_per_unit,
    as_number,
    inverse_angstrom_per_unit,
    mrad_per_unit,
    positive,
)
from namsa.physics.optics import ApertureEdge

EV = {"eV": 1.0, "keV": 1e3, "kV": 1e3, "V": 1.0}
NEXUS_ENERGIES = (
    "instrument/beam/incident_energy",
    "instrument/source/energy",
    # NXem
    "em_lab/ebeam_column/electron_source/voltage",
    "em_lab/EBEAM_COLUMN/electron_source/voltage",
    "instrument/ebeam_column/electron_source/voltage",
    "instrument/em_lab/ebeam_column/electron_source/voltage",
    "measurement/instrument/ebeam_column/electron_source/voltage",
    "measurement/em_lab/ebeam_column/electron_source/voltage",
)
NXEM_EVENTS = ("measurement", "measurement/events", "measurement/event_data_em_set")
NXEM_VOLTAGE = "instrument/ebeam_column/electron_source/voltage"  # of an event
MOST_EVENTS = 32  # that are searched
PY4DSTEM_CALIBRATIONS = ("calibration", "metadatabundle/calibration", "metadata/calibration")


@dataclass(frozen=True)
class StoredCalibration:
    """Scan and detector as a file describes them; `None` is unknown. Pairs are (y, x).

    Attributes:
        scan_step_angstrom: Step of the scan, Å.
        pixel_mrad: Pixel of the detector, mrad.
        pixel_inverse_angstrom: Pixel of the detector, 1/Å, if the file has it in place of an angle.
        centre_pixels: Optic axis in pixels from the centre of the first one.
        rotation_deg: Rotation of the detector's frame; see `namsa.io.calibration`.
        flip: Whether the detector's y and x are exchanged.
        ellipse: Ratio of the bright disk's semiaxes, and the direction of the major one, degrees
            from +x towards +y; `None` for a circle.
        centre_slope: Movement of the disk, detector (y, x) by scan (row, column), pixels per step.
        reasons: Why a number is unknown of which the file says something, by its name.
    """

    scan_step_angstrom: Pair | None = None
    pixel_mrad: Pair | None = None
    pixel_inverse_angstrom: Pair | None = None
    centre_pixels: Pair | None = None
    rotation_deg: float | None = None
    flip: bool | None = None
    ellipse: Pair | None = None
    centre_slope: Slope | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)


def stored_calibration(
    data: Hdf5Dataset, axes: Sequence[FileAxis], shape: Sequence[int]
) -> StoredCalibration:
    """Returns the calibration: py4DSTEM's numbers if there are any, otherwise that of the axes (sy,
    sx, dy, dx).

    py4DSTEM's numbers come first because its axes mix pixels and units (0.14.18).
    """
    group = _py4dstem_group(data)
    if group is None:
        return calibration_of_axes(axes, shape)
    scan_axis = FileAxis(_py4dstem_units(group, "R"), _number(group, "R_pixel_size"), 0)
    pixel_axis = FileAxis(_py4dstem_units(group, "Q"), _number(group, "Q_pixel_size"), 0)
    calibration = _calibration_in_units([scan_axis, scan_axis, pixel_axis, pixel_axis])
    calibration = replace(calibration, ellipse=_py4dstem_ellipse(group))
    centre = [_number(group, f"{name}_mean", _number(group, name)) for name in ("qx0", "qy0")]
    if not np.isnan(centre).any():
        calibration = replace(calibration, centre_pixels=_pair(centre))
    planes = [_plane(group.get(name), shape[:2]) for name in ("qx0", "qy0")]
    if planes[0] is not None and planes[1] is not None:
        middle = (planes[0][0], planes[1][0])
        slope = (_pair(planes[0][1:]), _pair(planes[1][1:]))
        calibration = replace(calibration, centre_pixels=middle, centre_slope=slope)
    flip = abs(_number(group, "QR_flip", 0.0)) > 0
    radians = group.get("QR_rotation")
    if group.get("QR_rotation_degrees") is not None or radians is not None:
        from_radians = np.rad2deg(_number(group, "QR_rotation"))
        degrees = _number(group, "QR_rotation_degrees", from_radians)
        return replace(calibration, rotation_deg=degrees, flip=flip)
    # py4DSTEM writes False for what nobody has set.
    return replace(calibration, flip=True if flip else None)


def _py4dstem_ellipse(group: Hdf5Group) -> Pair | None:
    """Returns py4DSTEM's ellipse: semiaxes a and b, and the angle of a from its x, which is the
    first axis, to its y, rad; `None` for none or a circle.
    """
    a = _number(group, "a")
    b = _number(group, "b")
    theta = _number(group, "theta")
    if not (a > 0 and b > 0 and np.isfinite(theta)) or a == b:
        return None
    axis_deg = 90 - np.rad2deg(theta)
    if b > a:
        axis_deg += 90
    return float(max(a, b) / min(a, b)), float((axis_deg + 90) % 180 - 90)


def _plane(
    stored: Hdf5Dataset | Hdf5Group | None, scan_shape: Sequence[int]
) -> tuple[float, float, float] | None:
    """Returns the plane through a map of the disk's centres: its value in the middle of the scan,
    and its slopes along rows and columns; `None` without a map of the scan's shape.
    """
    if not isinstance(stored, Hdf5Dataset) or not stored.is_numeric:
        return None
    if stored.shape != tuple(scan_shape) or min(stored.shape) < 2:
        return None
    values = stored[:, :].astype(np.float64)
    if not np.isfinite(values).all():
        return None
    rows, columns = np.indices(values.shape)
    terms = np.stack([np.ones(values.size), rows.ravel(), columns.ravel()], axis=1)
    terms[:, 1:] -= terms[:, 1:].mean(axis=0)
    middle, along_rows, along_columns = np.linalg.lstsq(terms, values.ravel(), rcond=None)[0]
    return float(middle), float(along_rows), float(along_columns)


def stored_beam(data: Hdf5Dataset) -> FileBeam:
    """Returns the beam as namsa, HyperSpy, py4DSTEM 0.12, NSID, NeXus or Nion Swift has it."""
    for group in _parents(data):
        for beam_in in (_namsa_beam, _hyperspy_beam, _py4dstem_beam, _nsid_beam, _nexus_beam):
            beam = beam_in(group)
            if beam is not None:
                return beam
    return swift_beam(stored_swift_properties(data))


def _namsa_beam(group: Hdf5Group) -> FileBeam | None:
    """Returns the beam of a simulation by namsa."""
    provenance = group.attribute("provenance")
    if not isinstance(provenance, str):
        return None
    values = json_object(provenance)
    return FileBeam(
        energy_ev=positive(values.get("energy_ev")),
        semiangle_mrad=positive(values.get("semiangle_mrad")),
        limit_mrad=_band_limit(values),
        thickness_angstrom=positive(values.get("thickness_angstrom")),
        aperture_edge=_aperture_edge(values),
    )


def _hyperspy_beam(group: Hdf5Group) -> FileBeam | None:
    """Returns the beam of HyperSpy's metadata, whose energy is in keV."""
    microscope = group.get("metadata/Acquisition_instrument/TEM")
    if microscope is None:
        return None
    energy_kev = positive(microscope.attribute("beam_energy"))
    semiangle = positive(microscope.attribute("convergence_angle"))
    return FileBeam(energy_kev and 1e3 * energy_kev, semiangle)


def _py4dstem_beam(group: Hdf5Group) -> FileBeam | None:
    """Returns the beam of py4DSTEM 0.12."""
    energy = group.get("metadata/microscope/beam_energy")
    return FileBeam(positive(energy.value())) if isinstance(energy, Hdf5Dataset) else None


def _nsid_beam(group: Hdf5Group) -> FileBeam | None:
    """Returns the beam of NSID: sidpy's metadata of the experiment, whose voltage is in V."""
    experiment = group.get("metadata/experiment")
    if experiment is None:
        return None
    voltage = positive(experiment.attribute("acceleration_voltage"))
    angle = positive(experiment.attribute("convergence_angle"))
    note = ""
    if angle is not None:
        note = f"convergence_angle is {angle:g} without units, and not used: give --semiangle-mrad"
    return FileBeam(voltage, note=note)


def _nexus_beam(group: Hdf5Group) -> FileBeam | None:
    """Returns the beam of NeXus."""
    for name in (*NEXUS_ENERGIES, *_voltages_of_events(group)):
        energy = group.get(name)
        if not isinstance(energy, Hdf5Dataset):
            continue
        ev_per_unit = EV.get(text(energy.attribute("units")) or "eV")
        if ev_per_unit is not None:
            value = positive(energy.value())
            return FileBeam(None if value is None else ev_per_unit * value)
    return None


def _voltages_of_events(group: Hdf5Group) -> list[str]:
    """Returns where NXem may have the voltage of the events of a measurement."""
    names = []
    for events in NXEM_EVENTS:
        parent = group.get(events)
        if isinstance(parent, Hdf5Group):
            children = parent.children()[:MOST_EVENTS]
            names += [f"{events}/{child}/{NXEM_VOLTAGE}" for child in children]
    return names


def calibration_of_axes(axes: Sequence[FileAxis], shape: Sequence[int]) -> StoredCalibration:
    """Returns the calibration of axes (sy, sx, dy, dx). The optic axis is at the detector's zero if
    it has one.
    """
    calibration = _calibration_in_units(axes)
    if calibration.pixel_mrad is None and calibration.pixel_inverse_angstrom is None:
        return calibration
    centre = []
    for axis, size in zip(axes[2:], shape[2:], strict=True):
        zero = -axis.origin / axis.step if axis.step else np.nan
        if not 0 < zero < size - 1:
            return calibration
        centre.append(zero)
    return replace(calibration, centre_pixels=_pair(centre))


def _calibration_in_units(axes: Sequence[FileAxis]) -> StoredCalibration:
    """Returns the scan's steps and the detector's pixels, each axis in its own units, or why they
    are not known.
    """
    scan = axes[:2]
    detector = axes[2:]
    steps = _in_units(scan, angstrom_per_unit)
    angles = _in_units(detector, mrad_per_unit)
    inverse = _in_units(detector, inverse_angstrom_per_unit)
    reasons = {}
    if steps is None:
        reasons["scan_step_angstrom"] = _reason("the scan's step", scan, "s", "not a length")
    if angles is None and inverse is None:
        reasons["pixel_mrad"] = _reason("the detector's pixel", detector, "d", "not an angle")
    return StoredCalibration(
        scan_step_angstrom=steps, pixel_mrad=angles, pixel_inverse_angstrom=inverse, reasons=reasons
    )


def _in_units(pair: Sequence[FileAxis], scale: Callable[[str], float | None]) -> Pair | None:
    """Returns the steps of two axes in other units; `None` if one is not known."""
    steps = []
    for axis in pair:
        factor = scale(axis.units)
        if factor is None or np.isnan(axis.step):
            return None
        steps.append(axis.step * factor)
    return _pair(steps)


def _reason(quantity: str, pair: Sequence[FileAxis], role: str, kind: str) -> str:
    """Returns why a quantity of two axes is not known."""
    for axis in pair:
        if axis.role != role:
            return f"{quantity} is in {axis.units or 'no units'}, {kind}"
    if any(np.isnan(axis.step) for axis in pair):
        return f"{quantity} is no number"
    y, x = pair
    return f"{quantity} is in {y.units} and {x.units}, an angle and a reciprocal length"


def _py4dstem_group(data: Hdf5Dataset) -> Hdf5Group | None:
    """Returns py4DSTEM's calibration: beside the patterns (0.13), or in the metadata of a parent
    (0.14, 0.12).
    """
    for parent in _parents(data):
        for name in PY4DSTEM_CALIBRATIONS:
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
    if isinstance(stored, Hdf5Dataset) and not stored.shape:
        return as_number(stored.value())
    return np.nan


def _band_limit(provenance: Provenance) -> float:
    """Returns the band limit of a simulation, mrad; infinite if the text under that name is not
    what namsa writes.
    """
    try:
        return band_limit(provenance)
    except InputError:
        return math.inf


def _aperture_edge(provenance: Provenance) -> str:
    """Returns the edge of a simulation's aperture: that of the amplitude if it is not stated, as
    in files of versions that had no other.
    """
    edge = provenance.get("aperture_edge", "amplitude")
    return edge if edge in get_args(ApertureEdge) else ""


def _pair(values: Sequence[float]) -> Pair:
    return float(values[0]), float(values[1])
