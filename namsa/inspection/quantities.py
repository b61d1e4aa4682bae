"""Numbers of a calibration, each with its error and its method, from what was fitted to a scan."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Pair
from namsa.inspection.descan import Descan
from namsa.inspection.disk import Disk
from namsa.inspection.orientation import CERTAIN, Focus, Orientation, find_focus
from namsa.inspection.tilted import ShiftFit
from namsa.io.calibration import check_limits
from namsa.io.calibration_file import CalibratedQuantity
from namsa.io.recording import Recording

MOVES = 0.25  # pixels over the scan, from which a movement of the disk is corrected
ELLIPTIC = 1.004  # ratio of the semiaxes, from which an ellipse is corrected
SAME = 2.0  # standard errors within which a stated rotation stands
DISAGREE = 0.02  # of the semiangle, between the disk and the stated one


def stated_quantities(
    recording: Recording, given: Collection[str]
) -> dict[str, CalibratedQuantity]:
    """Returns what the file or the caller states. Raises InputError if a number is out of range.

    Args:
        given: Names of the numbers that the caller gave.
    """
    check_limits(recording, "" if recording.format == "array" else f"{recording.name}: ")
    names = ("energy_ev", "semiangle_mrad", "scan_step_angstrom", "pixel_mrad")
    values = {name: getattr(recording, name) for name in names}
    stated = {}
    for name, value in values.items():
        if value is not None:
            method = "given" if name in given else "from the file"
            stated[name] = CalibratedQuantity(value, None, method)
    return stated


def value_of(known: dict[str, CalibratedQuantity], name: str) -> Any:
    return known[name].value if name in known else None


def disk_quantities(
    disk: Disk, descan: Descan | None, known: dict[str, CalibratedQuantity], notes: list[str]
) -> dict[str, CalibratedQuantity]:
    """Returns the numbers that follow from the disk, and from semiangle or pixel as far as they are
    known.
    """
    pixel = value_of(known, "pixel_mrad")
    semiangle = value_of(known, "semiangle_mrad")
    ellipse = {} if _is_circle(disk, pixel) else _ellipse_quantities(disk)
    quantities = {
        "disk_radius_pixels": CalibratedQuantity(
            disk.radius, float(disk.errors[2]), "ellipse fitted to the disk's edge"
        ),
        **_centre_quantities(disk, descan),
        **ellipse,
    }
    if pixel is not None:
        mean = float(np.sqrt(pixel[0] * pixel[1]))
        _note_shape(disk, pixel, notes)
        if ellipse:  # which holds all of the difference between y and x
            quantities["pixel_mrad"] = replace(known["pixel_mrad"], value=(mean, mean))
        quantities |= _semiangle_of(disk, mean, semiangle, notes)
    elif semiangle is not None:
        quantities["pixel_mrad"] = _pixel_of(disk, semiangle)
    else:
        notes.append(
            "pixel and semiangle: only their ratio is known from the disk: give --semiangle-mrad "
            "or --pixel-mrad"
        )
    return quantities


def _centre_quantities(disk: Disk, descan: Descan | None) -> dict[str, CalibratedQuantity]:
    """Returns the disk's centre, and its movement over the scan where that is significant."""
    in_the_middle = "in the middle of the scan"
    if descan is None or descan.significance <= 4 or descan.range_pixels <= MOVES:
        return {
            "centre_pixels": CalibratedQuantity(
                _tuples(disk.centre),
                _tuples(disk.errors[:2]),
                f"centre of the ellipse, {in_the_middle}",
            )
        }
    method = "plane through the disk's centres over the scan"
    return {
        "centre_slope_pixels": CalibratedQuantity(
            _tuples(descan.slope), _tuples(descan.slope_error), method
        ),
        "centre_pixels": CalibratedQuantity(
            _tuples(descan.centre), _tuples(descan.centre_error), f"{method}, {in_the_middle}"
        ),
    }


def _is_circle(disk: Disk, pixel_mrad: Pair | None) -> bool:
    """Whether the disk is a circle, in pixels or, if these are known and not square, in angles."""
    if disk.ratio <= ELLIPTIC or disk.ratio - 1 <= CERTAIN * disk.ratio_error:
        return True
    if pixel_mrad is None or pixel_mrad[0] == pixel_mrad[1]:
        return False
    return _distortion(disk, pixel_mrad) < _error(disk, ELLIPTIC - 1)


def _ellipse_quantities(disk: Disk) -> dict[str, CalibratedQuantity]:
    """Returns ratio and axis of the disk."""
    method = "ellipse fitted to the disk's edge"
    axis_error = float(np.rad2deg(disk.ratio_error / (2 * (disk.ratio - 1))))
    return {
        "ellipse_ratio": CalibratedQuantity(disk.ratio, disk.ratio_error, method),
        "ellipse_axis_deg": CalibratedQuantity(disk.axis_deg, axis_error, method),
    }


def _semiangle_of(
    disk: Disk, pixel_mrad: float, stated_mrad: float | None, notes: list[str]
) -> dict[str, CalibratedQuantity]:
    """Returns the semiangle that a known pixel gives; nothing if it is stated.

    Notes that the stated one differs.
    """
    relative = float(disk.errors[2]) / disk.radius
    measured = pixel_mrad * disk.radius
    if stated_mrad is None:
        method = "disk's radius times the pixel"
        return {"semiangle_mrad": CalibratedQuantity(measured, measured * relative, method)}
    if abs(measured / stated_mrad - 1) > max(DISAGREE, CERTAIN * relative):
        notes.append(
            f"the disk's radius is {measured:.4g} ± {measured * relative:.2g} mrad by the "
            f"stated pixel, the stated semiangle {stated_mrad:.4g} mrad: one of the two is wrong"
        )
    return {}


def _pixel_of(disk: Disk, semiangle_mrad: float) -> CalibratedQuantity:
    """Returns the pixel that a known semiangle gives."""
    size = semiangle_mrad / disk.radius
    error = size * (float(disk.errors[2]) / disk.radius)
    return CalibratedQuantity((size, size), (error, error), "semiangle over the disk's radius")


def _note_shape(disk: Disk, pixel_mrad: tuple[float, float], notes: list[str]) -> None:
    """Notes that pixels which are not square do not make the disk a circle, as they would without
    distortion.
    """
    apart = _distortion(disk, pixel_mrad)
    if pixel_mrad[0] != pixel_mrad[1] and apart > _error(disk, DISAGREE):
        notes.append(
            f"by the stated pixels of {pixel_mrad[0]:.4g} × {pixel_mrad[1]:.4g} mrad (y, x) the "
            f"disk is an ellipse of ratio {np.exp(apart):.3f}: they or the lens distort, and the "
            "semiangle is by their geometric mean"
        )


def _distortion(disk: Disk, pixel_mrad: tuple[float, float]) -> float:
    """Returns the logarithm of the disk's ratio in angles, by the stated pixels."""
    a, b = disk.parameters[3:5]
    return 2 * float(np.hypot(a - np.log(pixel_mrad[1] / pixel_mrad[0]) / 2, b))


def _error(disk: Disk, least: float) -> float:
    """Returns what the logarithm of the disk's ratio may be off by, and `least` at least."""
    return max(least, CERTAIN * disk.ratio_error / disk.ratio)


def orientation_quantities(
    orientation: Orientation, recording: Recording
) -> dict[str, CalibratedQuantity]:
    """Returns rotation and mirror; what the file states stands where the measurement agrees with
    it.
    """
    rotation = orientation.rotation_deg
    method = orientation.method
    stated = recording.rotation_deg or 0.0
    apart = (rotation - stated + 180) % 360 - 180
    if bool(recording.flip) == orientation.flip and abs(apart) < SAME * orientation.error_deg:
        kept = "none" if recording.rotation_deg is None else "as stated"
        measured = f"{rotation:.2f}".replace("-", "−")
        rotation, method = stated, f"{kept}, as {measured}° was measured: {method}"
    significance = min(orientation.significance, 99)
    return {
        "rotation_deg": CalibratedQuantity(rotation, orientation.error_deg, method),
        "mirrored": CalibratedQuantity(
            orientation.flip, None, f"as the rotation; {significance:.0f} standard errors"
        ),
    }


def focus_quantities(
    shifts: ShiftFit | None, orientation: Orientation | None, known: dict[str, CalibratedQuantity]
) -> dict[str, CalibratedQuantity]:
    """Returns defocus and astigmatism; none where what they take is not known."""
    step = value_of(known, "scan_step_angstrom")
    pixel = value_of(known, "pixel_mrad")
    if shifts is None or orientation is None or step is None or pixel is None:
        return {}
    focus: Focus = find_focus(shifts, orientation, step, float(np.sqrt(pixel[0] * pixel[1])))
    method = (
        "shifts of tilted bright-field images, of the specimen's middle; positive is underfocus"
    )
    axis_error = np.rad2deg(focus.astigmatism_error / max(2 * focus.astigmatism_angstrom, 1e-9))
    size_error = max(known["pixel_mrad"].error or (0.0,)) / pixel[0]  # if it was measured, too
    defocus_error = float(np.hypot(focus.defocus_error, size_error * focus.defocus_angstrom))
    return {
        "defocus_angstrom": CalibratedQuantity(focus.defocus_angstrom, defocus_error, method),
        "astigmatism_angstrom": CalibratedQuantity(
            focus.astigmatism_angstrom, focus.astigmatism_error, "C12, by the same"
        ),
        "astigmatism_axis_deg": CalibratedQuantity(
            focus.axis_deg, float(min(axis_error, 90.0)), "φ12, by the same"
        ),
    }


def _tuples(values: npt.ArrayLike) -> Any:
    """Returns an array as nested tuples of floats."""
    array = np.asarray(values, float)
    if array.ndim > 1:
        return tuple(_tuples(row) for row in array)
    return tuple(array.tolist())
