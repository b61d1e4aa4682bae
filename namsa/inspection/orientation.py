"""Rotation, mirror, defocus and astigmatism from the curl of the deflection and the shifts of
tilted images.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Floats
from namsa.inspection.curl import CurlFit
from namsa.inspection.tilted import ShiftFit

EXCHANGE = np.array([[0.0, 1.0], [1.0, 0.0]])
MODEL_ERROR_DEG = 0.5  # of each of the two methods
DIFFER = 4.0  # standard errors, from which the two methods contradict each other
CERTAIN = 3.0  # standard errors, from which a sign counts as known


@dataclass(frozen=True)
class Orientation:
    """Orientation of the detector in the frame of the scan; see `namsa.io.calibration`."""

    rotation_deg: float  # rotation, from −180 to 180 degrees
    error_deg: float  # its standard error
    flip: bool  # whether y and x are exchanged before
    significance: float  # of the handedness, in standard errors
    method: str  # how it was found
    notes: tuple[str, ...] = ()  # what contradicts it


@dataclass(frozen=True)
class Focus:
    """Defocus and twofold astigmatism at the middle of the specimen."""

    defocus_angstrom: float  # −C10, Å; positive for underfocus
    defocus_error: float  # its standard error
    astigmatism_angstrom: float  # C12, Å
    astigmatism_error: float  # its standard error
    axis_deg: float  # φ12, degrees from +x towards +y


def frame_matrix(rotation_deg: float, flip: bool) -> Floats:
    """Returns O, (y, x), from the detector's frame to the scan's."""
    angle = np.deg2rad(rotation_deg)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return turn @ EXCHANGE if flip else turn


def find_orientation(
    curl: CurlFit | None, shifts: ShiftFit | None, step: tuple[float, float]
) -> Orientation | None:
    """Combines what the two methods say of the rotation, up to 180 degrees.

    Args:
        step: Steps of the scan, (y, x), in any unit.

    Returns:
        The orientation, or `None` if neither method says anything.
    """
    evidence = []
    if curl is not None:
        evidence.append(_evidence_of_curl(curl))
    if shifts is not None:
        evidence.append(_evidence_of_shifts(shifts, step))
    evidence = [single for single in evidence if single.significance > CERTAIN]
    if not evidence:
        return None
    evidence.sort(key=lambda single: single.error_deg)
    best = evidence[0]
    if len(evidence) == 1:
        return best.as_orientation()
    other = evidence[1]
    apart = (other.rotation_deg - best.rotation_deg + 90) % 180 - 90
    limit = DIFFER * np.hypot(best.error_deg, other.error_deg)
    if best.flip == other.flip and abs(apart) < limit:
        return _combined(best, other, apart).as_orientation()
    mirror = "with" if other.flip else "without"
    return best.as_orientation(
        f"rotation by the {other.method}: {other.rotation_deg:.1f} ± {other.error_deg:.1f}° (or "
        f"180° more) {mirror} y and x exchanged, which contradicts the {best.method}"
    )


class _Evidence(NamedTuple):
    """What one method says of the orientation; see `Orientation`."""

    rotation_deg: float  # up to 180 degrees
    error_deg: float
    flip: bool
    significance: float
    method: str

    def as_orientation(self, *notes: str) -> Orientation:
        """Returns the orientation that follows from it alone."""
        return Orientation(
            _wrapped(self.rotation_deg),
            float(self.error_deg),
            self.flip,
            self.significance,
            self.method,
            notes,
        )


def _combined(best: _Evidence, other: _Evidence, apart: float) -> _Evidence:
    """Returns the weighted mean of two methods that agree.

    Args:
        apart: Degrees from the rotation of the best to that of the other.
    """
    weight = best.error_deg**2 / (best.error_deg**2 + other.error_deg**2)
    return _Evidence(
        best.rotation_deg + weight * apart,
        best.error_deg * other.error_deg / np.hypot(best.error_deg, other.error_deg),
        best.flip,
        float(np.hypot(best.significance, other.significance)),
        f"{best.method}, and {other.method}",
    )


def other_branch(orientation: Orientation) -> Orientation:
    """Returns the orientation turned by 180 degrees."""
    values = vars(orientation) | {"rotation_deg": _wrapped(orientation.rotation_deg + 180)}
    return Orientation(**values)


def find_focus(
    shifts: ShiftFit,
    orientation: Orientation,
    step_angstrom: tuple[float, float],
    pixel_mrad: float,
) -> Focus:
    """Returns the defocus from the shifts of tilted images.

    Args:
        step_angstrom: Steps of the scan, (y, x), Å.
        pixel_mrad: Detector pixel after its ellipse is made a circle, mrad.
    """
    frame = frame_matrix(orientation.rotation_deg, orientation.flip)
    units = 1e3 * np.asarray(step_angstrom) / pixel_mrad

    def coefficients(matrix: Floats) -> Floats:
        c = -(units[:, None] * matrix) @ frame.T
        # Second derivatives of the path length: C_yy = C10 − C12 cos 2φ, C_xx = C10 + C12 cos 2φ,
        # C_yx = C12 sin 2φ.
        return np.array([(c[0, 0] + c[1, 1]) / 2, (c[1, 1] - c[0, 0]) / 2, (c[0, 1] + c[1, 0]) / 2])

    values = coefficients(shifts.matrix)
    jacobian = np.stack([coefficients(unit.reshape(2, 2)) for unit in np.eye(4)], axis=1)
    errors = np.sqrt(np.diag(jacobian @ shifts.covariance @ jacobian.T))
    return Focus(
        defocus_angstrom=float(-values[0]),
        defocus_error=float(errors[0]),
        astigmatism_angstrom=float(np.hypot(*values[1:])),
        astigmatism_error=float(np.hypot(*errors[1:]) / np.sqrt(2)),
        axis_deg=float(np.rad2deg(np.arctan2(values[2], values[1])) / 2),
    )


def _evidence_of_curl(curl: CurlFit) -> _Evidence:
    return _Evidence(
        curl.rotation_deg,
        np.hypot(curl.error_deg, MODEL_ERROR_DEG),
        curl.flip,
        curl.significance,
        "curl of the centre of mass",
    )


def _evidence_of_shifts(shifts: ShiftFit, step: tuple[float, float]) -> _Evidence:
    """Returns rotation and flip from M = −C O, with C symmetric."""
    scale = np.asarray(step)[:, None] / np.mean(step)

    def determinant(m: Floats) -> float:
        return float(np.linalg.det(scale * m.reshape(2, 2)))

    def rotation(m: Floats, flip: bool) -> float:
        # M O⁻¹ is symmetric: with N = M X for a flip, tan θ = (N_xy − N_yx)/(N_yy + N_xx) in the
        # order (y, x).
        n = scale * m.reshape(2, 2) @ (EXCHANGE if flip else np.eye(2))
        return float(np.arctan2(n[1, 0] - n[0, 1], n[0, 0] + n[1, 1]))

    m = shifts.matrix.ravel()
    size = 1e-4 * np.abs(m).max()
    flip = determinant(m) < 0
    determinant_slopes = []
    rotation_slopes = []
    for unit in np.eye(4):
        determinant_change = determinant(m + size * unit) - determinant(m - size * unit)
        determinant_slopes.append(determinant_change / (2 * size))
        turned_by = rotation(m + size * unit, flip) - rotation(m, flip)
        rotation_slopes.append(np.sin(turned_by) / size)
    determinant_error = _propagated_error(np.array(determinant_slopes), shifts.covariance)
    significance = np.inf
    if determinant_error > 0:
        significance = abs(determinant(m)) / determinant_error
    angle = np.rad2deg(rotation(-m, flip))
    error_deg = float(np.rad2deg(_propagated_error(np.array(rotation_slopes), shifts.covariance)))
    return _Evidence(
        float((angle + 90) % 180 - 90),
        np.hypot(error_deg, MODEL_ERROR_DEG),
        flip,
        significance,
        "shifts of tilted bright-field images",
    )


def _propagated_error(slopes: Floats, covariance: Floats) -> float:
    """Returns the standard error of a function of numbers with a covariance."""
    return float(np.sqrt(slopes @ covariance @ slopes))


def _wrapped(degrees: float) -> float:
    """Returns an angle from −180 to 180 degrees."""
    return float((degrees + 180) % 360 - 180)
