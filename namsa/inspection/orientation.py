"""Rotation, mirror, defocus and astigmatism from the curl of the deflection and the shifts of
tilted images.
"""

from dataclasses import dataclass

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
    if curl is not None and curl.significance > CERTAIN:
        evidence.append(
            (
                curl.rotation_deg,
                np.hypot(curl.error_deg, MODEL_ERROR_DEG),
                curl.flip,
                curl.significance,
                "curl of the centre of mass",
            )
        )
    if shifts is not None:
        rotation, error, flip, significance = _orientation_of_shifts(shifts, step)
        if significance > CERTAIN:
            evidence.append(
                (
                    rotation,
                    np.hypot(error, MODEL_ERROR_DEG),
                    flip,
                    significance,
                    "shifts of tilted bright-field images",
                )
            )
    if not evidence:
        return None
    evidence.sort(key=lambda item: item[1])
    rotation, error, flip, significance, method = evidence[0]
    notes: tuple[str, ...] = ()
    if len(evidence) == 2:
        other, other_error, other_flip, other_significance, other_method = evidence[1]
        apart = (other - rotation + 90) % 180 - 90
        agree = flip == other_flip and abs(apart) < DIFFER * np.hypot(error, other_error)
        if agree:
            weight = error**2 / (error**2 + other_error**2)
            rotation = rotation + weight * apart
            error = error * other_error / np.hypot(error, other_error)
            significance = float(np.hypot(significance, other_significance))
            method = f"{method}, and {other_method}"
        else:
            mirror = "with" if other_flip else "without"
            other_result = (
                f"{other:.1f} ± {other_error:.1f}° (or 180° more) {mirror} y and x exchanged"
            )
            notes = (
                f"rotation by the {other_method}: {other_result}, which contradicts the {method}",
            )
    return Orientation(_wrapped(rotation), float(error), flip, significance, method, notes)


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


def _orientation_of_shifts(
    shifts: ShiftFit, step: tuple[float, float]
) -> tuple[float, float, bool, float]:
    """Returns rotation, its error, flip and the significance of the flip from M = −C O, with C
    symmetric.
    """
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
    bends = np.array(
        [
            (determinant(m + size * unit) - determinant(m - size * unit)) / (2 * size)
            for unit in np.eye(4)
        ]
    )
    turns = np.array(
        [np.sin(rotation(m + size * unit, flip) - rotation(m, flip)) / size for unit in np.eye(4)]
    )
    spread = float(np.sqrt(bends @ shifts.covariance @ bends))
    error = float(np.rad2deg(np.sqrt(turns @ shifts.covariance @ turns)))
    angle = np.rad2deg(rotation(-m, flip))
    return (
        float((angle + 90) % 180 - 90),
        error,
        flip,
        abs(determinant(m)) / spread if spread > 0 else np.inf,
    )


def _wrapped(degrees: float) -> float:
    """Returns an angle from −180 to 180 degrees."""
    return float((degrees + 180) % 360 - 180)
