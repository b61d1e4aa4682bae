"""The calibrated scan: what a file says of itself, and what the caller knows better.

The detector is turned into the scan's frame as in py4DSTEM: y and x are exchanged if `flip` is set, then rotated by the
angle, y' = y cos − x sin and x' = y sin + x cos. If the bright disk is an ellipse, it is made a circle of the same area
before. Bad pixels and a movement of the disk are corrected as the patterns are read (`namsa.io.corrections`).
"""

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from namsa.arrays import Floats, Pair
from namsa.config.bounds import RANGES
from namsa.errors import InputError
from namsa.io.corrections import CorrectedPatterns, Slope
from namsa.io.recording import Opened, PatternArray, PatternScan, Recording
from namsa.physics.optics import wavelength_angstrom
from namsa.text import shorten

# The smallest and largest number of each quantity, and the option that gives it.
LIMITS = {
    "energy_ev": (*RANGES["energy_ev"], "--energy-ev"),
    "semiangle_mrad": (*RANGES["semiangle_mrad"], "--semiangle-mrad"),
    "scan_step_angstrom": (1e-4, 1e5, "--scan-step-angstrom"),
    "pixel_mrad": (1e-5, 1e3, "--pixel-mrad"),
    "centre_pixels": (-1e5, 1e5, "--centre-pixels"),
    "rotation_deg": (-720.0, 720.0, "--rotation-deg"),
}
# What every calibrated scan has, as messages name it.
REQUIRED = {
    "energy_ev": "the beam's energy",
    "semiangle_mrad": "the probe's semiangle",
    "scan_step_angstrom": "the scan's step",
    "pixel_mrad": "the detector's pixel",
}
NOT_OF_RECORDINGS = ("dataset", "centre_slope", "bad_pixels")
MOST_ELLIPTIC, STEEPEST = 4.0, 10.0  # ratio of the semiaxes; movement of the disk, pixels per step


@dataclass(frozen=True)
class CalibrationOverrides:
    """What the caller knows of a file; it takes precedence over what the file says. Pairs are (y, x).

    Attributes:
        dataset: Name of the dataset in the file; needed if it holds several of four axes.
        scan_step_angstrom: Step of the scan, Å. One number may stand for a pair.
        pixel_mrad: Pixel of the detector, mrad. One number may stand for a pair.
        energy_ev: Energy of the beam, eV.
        semiangle_mrad: Convergence semiangle of the probe, mrad.
        centre_pixels: Optic axis, in pixels from the centre of the first one.
        rotation_deg: Rotation from the detector's frame to the scan's, degrees.
        flip: Whether the detector's y and x are exchanged before the rotation.
        ellipse: The bright disk's major semiaxis over the minor, and the direction of the major one on the detector,
            degrees from +x towards +y.
        centre_slope: Movement of the disk, detector (y, x) by scan (row, column), pixels per step.
        bad_pixels: Rows and columns of pixels that are replaced by the mean of their neighbours.
    """

    dataset: str | None = None
    scan_step_angstrom: Pair | float | None = None
    pixel_mrad: Pair | float | None = None
    energy_ev: float | None = None
    semiangle_mrad: float | None = None
    centre_pixels: Pair | None = None
    rotation_deg: float | None = None
    flip: bool | None = None
    ellipse: Pair | None = None
    centre_slope: Slope | None = None
    bad_pixels: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class FourDData(PatternScan):
    """A calibrated scan of patterns in an open file. Pairs are (y, x).

    Attributes:
        data: The patterns, `(scan y, scan x, detector y, detector x)`; they are read when they are sliced.
        scan_step_angstrom: Step of the scan, Å.
        scan_origin_angstrom: First position of the scan, Å.
        pixel_mrad: Pixel of the detector, mrad.
        energy_ev: Energy of the beam, eV.
        semiangle_mrad: Convergence semiangle of the probe, mrad.
        centre_pixels: Optic axis, in pixels from the centre of the first one; `None` if it is not known.
        rotation_deg: Rotation from the detector's frame to the scan's, degrees; see the module.
        flip: Whether the detector's y and x are exchanged before the rotation.
        normalised: Whether intensities are fractions of the incident beam.
        ellipse: Ratio of the bright disk's semiaxes, and the direction of the major one; `None` for a circle.
        notes: What was left out or assumed, and what is corrected as patterns are read, one line each.
        limit_mrad: Band limit of simulated patterns, mrad; infinite if it is not known.
        thickness_angstrom: Thickness of a simulated specimen, Å; `None` if it is not known.
        rotation_stated: Whether the rotation was known; otherwise it is taken as none.
        opened: What is closed with the scan.
    """

    data: PatternArray
    scan_step_angstrom: Pair
    scan_origin_angstrom: Pair
    pixel_mrad: Pair
    energy_ev: float
    semiangle_mrad: float
    centre_pixels: Pair | None
    rotation_deg: float
    flip: bool
    normalised: bool
    ellipse: Pair | None = None
    notes: tuple[str, ...] = ()
    limit_mrad: float = math.inf
    thickness_angstrom: float | None = None
    rotation_stated: bool = True
    opened: Opened = field(default_factory=Opened, compare=False)


def override(recording: Recording, overrides: CalibrationOverrides) -> Recording:
    """Returns a recording with the caller's numbers in place of the file's.

    A pixel in 1/Å becomes an angle if the energy is known.

    Raises:
        InputError: If what should be a pair is none, or if the caller's energy is out of range.
    """
    given = {
        each.name: getattr(overrides, each.name)
        for each in fields(overrides)
        if each.name not in NOT_OF_RECORDINGS and getattr(overrides, each.name) is not None
    }
    for name in ("scan_step_angstrom", "pixel_mrad", "centre_pixels"):
        if name in given:
            given[name] = _as_pair(given[name])
    known = _corrected(replace(recording, **given), overrides)
    if known.pixel_mrad is None and known.pixel_inverse_angstrom is not None and known.energy_ev is not None:
        _check_limit("energy_ev", known.energy_ev, _place(recording))
        y, x = (1e3 * wavelength_angstrom(known.energy_ev) * pixel for pixel in known.pixel_inverse_angstrom)
        known = replace(known, pixel_mrad=(y, x))
    return known


def _corrected(recording: Recording, overrides: CalibrationOverrides) -> Recording:
    """Returns a recording whose patterns are corrected as they are read."""
    place, bad, slope = _place(recording), tuple(overrides.bad_pixels), overrides.centre_slope
    if recording.ellipse is not None and not 1 <= recording.ellipse[0] <= MOST_ELLIPTIC:
        raise InputError(
            f"{place}the ellipse's ratio is {recording.ellipse[0]:g}: give one from 1 to {MOST_ELLIPTIC:g}"
        )
    lines = []
    if bad:
        outside = [
            pixel for pixel in bad if not all(0 <= at < n for at, n in zip(pixel, recording.shape[2:], strict=True))
        ]
        if outside:
            size = "×".join(map(str, recording.shape[2:]))
            raise InputError(
                f"{place}bad pixel {outside[0]} is not on the detector of {size} pixels: use its own calibration"
            )
        lines.append(f"{len(bad)} bad pixels replaced by the mean of their neighbours")
    if slope is not None:
        if not np.abs(slope).max() <= STEEPEST:
            raise InputError(f"{place}centre_slope is {shorten(slope)}: give at most {STEEPEST:g} pixels per step")
        moved = np.hypot(*(np.abs(slope) @ (np.array(recording.shape[:2]) - 1)))
        lines.append(f"patterns shifted back: the disk moves by {moved:.2f} pixels over the scan")
    if not lines:
        return recording
    data = CorrectedPatterns(recording.data, bad, slope)
    return replace(recording, data=data, notes=(*recording.notes, *lines))


def calibrate(recording: Recording, overrides: CalibrationOverrides = CalibrationOverrides()) -> FourDData:
    """Returns a recording as a calibrated scan, of which every number is known.

    Raises:
        InputError: If a number is neither in the file nor in `overrides`, or if one is out of range. The message names
            all missing numbers with the options that give them.
    """
    known = override(recording, overrides)
    energy, semiangle = known.energy_ev, known.semiangle_mrad
    if energy is None or semiangle is None or known.scan_step_angstrom is None or known.pixel_mrad is None:
        raise InputError(_missing(known))
    names = {each.name for each in fields(FourDData)}
    patterns = FourDData(
        **{name: value for name, value in vars(known).items() if name in names}
        | {"energy_ev": float(energy), "semiangle_mrad": float(semiangle), "flip": bool(known.flip)}
        | {"rotation_deg": known.rotation_deg or 0.0, "rotation_stated": known.rotation_deg is not None}
    )
    check_limits(patterns, _place(recording))
    return patterns


def circle_from_ellipse(ellipse: Pair) -> Floats:
    """Returns the matrix, (y, x), that makes an ellipse a circle of the same area.

    Args:
        ellipse: Major semiaxis over the minor, and the direction of the major one, degrees from +x towards +y.
    """
    ratio, axis_deg = ellipse
    angle = np.deg2rad(axis_deg)
    major, minor = np.array([np.sin(angle), np.cos(angle)]), np.array([np.cos(angle), -np.sin(angle)])
    return np.asarray(np.outer(major, major) / np.sqrt(ratio) + np.outer(minor, minor) * np.sqrt(ratio))


def check_limits(patterns: FourDData | Recording, place: str = "") -> None:
    """Checks that every number of the calibration that is known is finite and in its range.

    Args:
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


def _missing(known: Recording) -> str:
    """Returns the message about all numbers that are not known."""
    missing = [name for name in REQUIRED if getattr(known, name) is None]
    if known.pixel_inverse_angstrom is not None:  # an angle as soon as the energy is known
        missing = [name for name in missing if name != "pixel_mrad"]
    unsaid = " and ".join(REQUIRED[name] for name in missing if name not in known.reasons)
    said = [known.reasons[name] for name in missing if name in known.reasons]
    options = ", ".join(name if known.format == "array" else LIMITS[name][2] for name in missing)
    if not unsaid:
        return f"{known.name}: {'; '.join(said)}: give {options}"
    return f"{known.name} {'; '.join([f'does not state {unsaid}', *said])}: give {options}"


def _place(recording: Recording) -> str:
    """Returns the beginning of a message about a number of a file; nothing for an array."""
    return "" if recording.format == "array" else f"{recording.name}: "


def _as_pair(value: Any) -> Pair:
    """Returns a pair (y, x), which one number may stand for."""
    try:
        y, x = np.broadcast_to(np.asarray(value, float), 2).tolist()
    except (TypeError, ValueError):
        raise InputError(f"{shorten(value)} is neither a number nor a pair (y, x)") from None
    return y, x
