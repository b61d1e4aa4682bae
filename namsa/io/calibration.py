"""The calibrated scan: what a file says of itself, and what the caller knows better.

The detector is turned into the scan's frame as in py4DSTEM: y and x are exchanged if `flip` is set,
then rotated by the angle, y' = y cos − x sin and x' = y sin + x cos. If the bright disk is an
ellipse, it is made a circle of the same area before. Bad pixels and a movement of the disk are
corrected as the patterns are read (`namsa.io.corrections`).
"""

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from namsa.base.arrays import Floats, Pair
from namsa.base.errors import InputError
from namsa.base.text import energy_in_kev, shorten
from namsa.config.bounds import RANGES
from namsa.io.corrections import CorrectedPatterns, Slope
from namsa.io.part import Window
from namsa.io.recording import Opened, PatternArray, PatternScan, Recording
from namsa.physics.optics import wavelength_angstrom

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
UNITS = {
    "energy_ev": "eV",
    "semiangle_mrad": "mrad",
    "scan_step_angstrom": "Å",
    "pixel_mrad": "mrad",
}
FAR_FACTOR = 1.5  # a given number this far from the file's is a likely slip
PAIRS = ("scan_step_angstrom", "pixel_mrad", "centre_pixels")
NOT_OF_RECORDINGS = ("dataset", "centre_slope", "bad_pixels", "serpentine", "flip_scan")
# ratio of the semiaxes; movement of the disk, pixels per step
MOST_ELLIPTIC = 4.0
STEEPEST = 10.0


@dataclass(frozen=True)
class CalibrationOverrides:
    """Values that the caller gives for a file; they precede those of the file. Pairs are (y, x).

    Attributes:
        dataset: Name of the dataset in the file; needed if it holds several of four axes.
        scan_step_angstrom: Step of the scan, Å. One number may stand for a pair.
        pixel_mrad: Pixel of the detector, mrad. One number may stand for a pair.
        energy_ev: Energy of the beam, eV.
        semiangle_mrad: Convergence semiangle of the probe, mrad.
        centre_pixels: Optic axis, in pixels from the centre of the first one.
        rotation_deg: Rotation from the detector's frame to the scan's, degrees.
        flip: Whether the detector's y and x are exchanged before the rotation.
        ellipse: The bright disk's major semiaxis over the minor, and the direction of the major one
            on the detector, degrees from +x towards +y.
        centre_slope: Movement of the disk, detector (y, x) by scan (row, column), pixels per step.
        bad_pixels: Rows and columns of pixels that are replaced by the mean of their neighbours.
        serpentine: Whether every second row of the scan was recorded backwards.
        flip_scan: The scan's axes that run backwards in the file: "y", "x" or "yx".

    Example:
        >>> namsa.CalibrationOverrides(energy_ev=200e3, semiangle_mrad=20).energy_ev
        200000.0
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
    serpentine: bool | None = None
    flip_scan: str | None = None


@dataclass(frozen=True)
class FourDData(PatternScan):
    """A calibrated scan of patterns in an open file. Pairs are (y, x).

    Attributes:
        data: The patterns, `(scan y, scan x, detector y, detector x)`; they are read when they are
            sliced.
        scan_step_angstrom: Step of the scan, Å.
        scan_origin_angstrom: First position of the scan, Å.
        pixel_mrad: Pixel of the detector, mrad.
        energy_ev: Energy of the beam, eV.
        semiangle_mrad: Convergence semiangle of the probe, mrad.
        centre_pixels: Optic axis, in pixels from the centre of the first one; `None` if it is not
            known.
        rotation_deg: Rotation from the detector's frame to the scan's, degrees; see the module.
        flip: Whether the detector's y and x are exchanged before the rotation.
        normalised: Whether intensities are fractions of the incident beam.
        ellipse: Ratio of the bright disk's semiaxes, and the direction of the major one; `None` for
            a circle.
        notes: What was left out or assumed, and what is corrected as patterns are read, one line
            each.
        limit_mrad: Band limit of simulated patterns, mrad; infinite if it is not known.
        thickness_angstrom: Thickness of a simulated specimen, Å; `None` if it is not known.
        aperture_edge: What falls linearly over the edge of a simulated aperture, "intensity" or
            "amplitude"; "" if it is not known.
        rotation_stated: Whether the rotation was known; otherwise it is taken as none.
        window: The part of the stored scan and detector that is read; `None` for all of it.
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
    aperture_edge: str = ""
    rotation_stated: bool = True
    window: Window | None = None
    opened: Opened = field(default_factory=Opened, compare=False)


def override(recording: Recording, overrides: CalibrationOverrides) -> Recording:
    """Returns a recording with the caller's numbers in place of the file's.

    A pixel in 1/Å becomes an angle if the energy is known.

    Raises:
        InputError: If what should be a pair is none, or if the caller's energy is out of range.
    """
    given: dict[str, Any] = {}
    for name, value in vars(overrides).items():
        if name not in NOT_OF_RECORDINGS and value is not None:
            given[name] = _as_pair(value) if name in PAIRS else value
    notes = (*recording.notes, *_differences(recording, given))
    known = _corrected(replace(recording, **given, notes=notes), overrides)
    if (
        known.pixel_mrad is None
        and known.pixel_inverse_angstrom is not None
        and known.energy_ev is not None
    ):
        _check_limit("energy_ev", known.energy_ev, _place(recording))
        mrad = 1e3 * wavelength_angstrom(known.energy_ev)
        y, x = known.pixel_inverse_angstrom
        known = replace(known, pixel_mrad=(mrad * y, mrad * x))
    return known


def _differences(recording: Recording, given: dict[str, object]) -> list[str]:
    """Returns a line for each given number that is far from what the file states."""
    lines = []
    for name, title in REQUIRED.items():
        stated = getattr(recording, name)
        value = given.get(name)
        if stated is None or value is None:
            continue
        ratio = np.max(np.asarray(value, float) / np.asarray(stated, float))
        if not 1 / FAR_FACTOR < ratio < FAR_FACTOR:
            unit = UNITS[name]
            lines.append(
                f"{title} is {_numbers(value)} {unit} as given with {LIMITS[name][2]}, and "
                f"{_numbers(stated)} {unit} in the file: check which is right"
            )
    return lines


def _numbers(value: object) -> str:
    """Returns a number or a pair (y, x) in words, a pair of equal numbers as one."""
    numbers = np.atleast_1d(np.asarray(value, float))
    if np.all(numbers == numbers[0]):
        return f"{numbers[0]:g}"
    return " and ".join(f"{number:g}" for number in numbers)


def _corrected(recording: Recording, overrides: CalibrationOverrides) -> Recording:
    """Returns a recording whose patterns are corrected as they are read."""
    place = _place(recording)
    bad = tuple(overrides.bad_pixels)
    slope = overrides.centre_slope
    if slope is None:
        slope = recording.centre_slope
    if recording.ellipse is not None and not 1 <= recording.ellipse[0] <= MOST_ELLIPTIC:
        raise InputError(
            f"{place}the ellipse's ratio is {recording.ellipse[0]:g}: give one from 1 to "
            f"{MOST_ELLIPTIC:g}"
        )
    lines = []
    if bad:
        height, width = recording.shape[2:]
        for row, column in bad:
            if not (0 <= row < height and 0 <= column < width):
                raise InputError(
                    f"{place}bad pixel {(row, column)} is not on the detector of {height}×{width} "
                    "pixels: use its own calibration"
                )
        lines.append(f"{len(bad)} bad pixels replaced by the mean of their neighbours")
    if slope is not None:
        if not np.abs(slope).max() <= STEEPEST:
            raise InputError(
                f"{place}centre_slope is {shorten(slope)}: give at most {STEEPEST:g} pixels per "
                "step"
            )
        moved = np.hypot(*(np.abs(slope) @ (np.array(recording.shape[:2]) - 1)))
        lines.append(f"patterns shifted back: the disk moves by {moved:.2f} pixels over the scan")
    if not lines:
        return recording
    data = CorrectedPatterns(recording.data, bad, slope)
    return replace(recording, data=data, centre_slope=None, notes=(*recording.notes, *lines))


def calibrate(
    recording: Recording, overrides: CalibrationOverrides = CalibrationOverrides()
) -> FourDData:
    """Returns a recording as a calibrated scan, of which every number is known.

    Raises:
        InputError: If a number is neither in the file nor in `overrides`, or if one is out of
            range. The message names all missing numbers with the options that give them.
    """
    known = override(recording, overrides)
    energy = known.energy_ev
    semiangle = known.semiangle_mrad
    if (
        energy is None
        or semiangle is None
        or known.scan_step_angstrom is None
        or known.pixel_mrad is None
    ):
        raise InputError(_missing(known))
    names = {attribute.name for attribute in fields(FourDData)}
    patterns = FourDData(
        **{name: value for name, value in vars(known).items() if name in names}
        | {"energy_ev": float(energy), "semiangle_mrad": float(semiangle), "flip": bool(known.flip)}
        | {
            "rotation_deg": known.rotation_deg or 0.0,
            "rotation_stated": known.rotation_deg is not None,
        }
    )
    check_limits(patterns, _place(recording))
    return patterns


def circle_from_ellipse(ellipse: Pair) -> Floats:
    """Returns the matrix, (y, x), that makes an ellipse a circle of the same area.

    Args:
        ellipse: Major semiaxis over the minor, and the direction of the major one, degrees from +x
            towards +y.
    """
    ratio, axis_deg = ellipse
    angle = np.deg2rad(axis_deg)
    major = np.array([np.sin(angle), np.cos(angle)])
    minor = np.array([np.cos(angle), -np.sin(angle)])
    return np.asarray(
        np.outer(major, major) / np.sqrt(ratio) + np.outer(minor, minor) * np.sqrt(ratio)
    )


def check_limits(patterns: FourDData | Recording, place: str = "") -> None:
    """Checks that every number of the calibration that is known is finite and in its range.

    Args:
        place: Where the numbers come from, before the name of the number in the message.

    Raises:
        InputError: If a number is not.
    """
    for name in LIMITS:
        value = getattr(patterns, name)
        if value is None:
            continue
        for component in value if isinstance(value, tuple) else (value,):
            _check_limit(name, component, place)


def _check_limit(name: str, value: float, place: str) -> None:
    low, high, option = LIMITS[name]
    if not low <= value <= high:
        kind = "a positive number" if low > 0 else "a number"
        slip = energy_in_kev(value) if name == "energy_ev" else ""
        raise InputError(
            f"{place}{name} is {value:g}: give {kind} from {low:g} to {high:g} with {option}{slip}"
        )


def _missing(known: Recording) -> str:
    """Returns the message about all numbers that are not known."""
    options = []
    not_stated = []
    reasons = []
    for name, title in REQUIRED.items():
        becomes_angle = name == "pixel_mrad" and known.pixel_inverse_angstrom is not None
        if getattr(known, name) is not None or becomes_angle:
            continue
        options.append(name if known.format == "array" else LIMITS[name][2])
        if name in known.reasons:
            reasons.append(known.reasons[name])
        else:
            not_stated.append(title)
    remedy = f"give {', '.join(options)}"
    if not not_stated:
        return f"{known.name}: {'; '.join(reasons)}: {remedy}"
    problems = [f"does not state {' and '.join(not_stated)}", *reasons]
    return f"{known.name} {'; '.join(problems)}: {remedy}"


def _place(recording: Recording) -> str:
    """Returns the beginning of a message about a number of a file; nothing for an array."""
    return "" if recording.format == "array" else f"{recording.name}: "


def _as_pair(value: object) -> Pair:
    """Returns a pair (y, x), which one number may stand for."""
    try:
        y, x = np.broadcast_to(np.asarray(value, float), 2).tolist()
    except (TypeError, ValueError):
        raise InputError(f"{shorten(value)} is neither a number nor a pair (y, x)") from None
    return y, x
