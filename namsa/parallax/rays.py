"""Points at which the rays of a probe cross the specimen.

A ray at the angle α crosses the specimen at r + ∇W(α), with r the position of the probe and
W = χλ/2π the path length of the aberrations. The intensity of the detector's pixel at α is
therefore the image of that place, for every position of the scan.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from namsa.base.arrays import Booleans, Floats
from namsa.base.pixels import detector_grid
from namsa.inspection.orientation import frame_matrix
from namsa.io.calibration import FourDData, circle_from_ellipse
from namsa.physics.optics import aberration_phase, wavelength_angstrom

STEP_RAD = 1e-6  # of the numerical derivatives


class Rays(NamedTuple):
    """The rays of the pixels that lie in the bright disk."""

    pixels: Booleans  # which pixels of the detector, `(dy, dx)`
    shifts_angstrom: Floats  # from the probe's position to the ray's, (y, x), `(n, 2)`


def rays_of(scan: FourDData, centre_pixels: tuple[float, float], lens: Mapping[str, float]) -> Rays:
    """Returns the rays of the pixels whose whole area lies in the bright disk.

    Args:
        lens: Aberrations from the probe's focus to the middle of the specimen, Å and rad.
    """
    angles = detector_grid(scan.pixel_mrad, centre_pixels)
    detector = scan.shape[2:]
    y_mrad, x_mrad = angles.coordinates(detector)
    on_detector = np.stack(np.meshgrid(y_mrad, x_mrad, indexing="ij"))
    frame = frame_matrix(scan.rotation_deg, scan.flip)
    if scan.ellipse is not None:
        frame = frame @ circle_from_ellipse(scan.ellipse)
    in_scan = np.tensordot(frame, on_detector, 1)
    half_pixel = max(scan.pixel_mrad) / 2
    pixels = np.hypot(*in_scan) <= scan.semiangle_mrad - half_pixel
    angles_rad = 1e-3 * in_scan[:, pixels].T
    wavelength = wavelength_angstrom(scan.energy_ev)
    return Rays(pixels, shifts_angstrom(angles_rad, wavelength, lens))


def shifts_angstrom(angles_rad: Floats, wavelength: float, lens: Mapping[str, float]) -> Floats:
    """Returns the slopes of the path length, ∇W, (y, x), `(n, 2)`, Å.

    Args:
        angles_rad: Angles of the rays (y, x) in the scan's frame, `(n, 2)`, rad.
        wavelength: Å.
        lens: Aberrations, Å and rad.
    """
    slopes = []
    for direction in np.eye(2):
        ahead = _path(angles_rad + STEP_RAD * direction, wavelength, lens)
        behind = _path(angles_rad - STEP_RAD * direction, wavelength, lens)
        slopes.append((ahead - behind) / (2 * STEP_RAD))
    return np.stack(slopes, axis=1)


def _path(angles_rad: Floats, wavelength: float, lens: Mapping[str, float]) -> Floats:
    """Returns the path length W of the aberrations, `(n,)`, Å."""
    y, x = angles_rad.T
    phase = aberration_phase(np.hypot(y, x), np.arctan2(y, x), wavelength, lens)
    return phase * wavelength / (2 * np.pi)
