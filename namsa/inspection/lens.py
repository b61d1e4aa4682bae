"""Focus, astigmatism and coma of a scan, from the overlaps of its disks (`namsa.inspection.aberrations`).

Shifts of tilted images (`namsa.inspection.tilted`) are those of rays. Near focus, tilted images of a crystal differ by
more than a shift, and the overlaps are more exact. Far from focus the shifts hold.
"""

import itertools

import numpy as np

from namsa.arrays import Array, Floats
from namsa.inspection.aberrations import MeasuredAberrations, measure_aberrations, phase_units
from namsa.inspection.disk_overlaps import DiskOverlaps
from namsa.inspection.orientation import frame_matrix
from namsa.inspection.quantities import value_of
from namsa.io.calibration import circle_from_ellipse
from namsa.io.calibration_file import Quantity
from namsa.io.recording import Recording
from namsa.pixels import binned, binned_grid, detector_grid

NEAR_RAD = 10.0  # phase of C10 at the aperture's edge, up to which the overlaps are better
MODEL_ERROR_RAD = (0.7, 0.3, 0.3)  # of C10, C12 and C21, at the aperture's edge: crystals are no weak phase objects
PARTS, SIDE = 4, 32  # parts of the scan along each axis, and positions of a part, at most
LARGEST_RADIUS = 12  # of the disk, pixels, above which pixels are added up
NEEDED = ("energy_ev", "semiangle_mrad", "scan_step_angstrom", "pixel_mrad", "centre_pixels")


def lens_quantities(recording: Recording, known: dict[str, Quantity]) -> dict[str, Quantity]:
    """Returns defocus, astigmatism and coma near focus.

    Args:
        recording: The scan, whose disk stays in one place.
        known: What is known of the scan. Without `NEEDED`, and without the detector's rotation, be it measured or
            stated, nothing is measured.

    Returns:
        The quantities; none far from focus, or if the patterns do not show them.
    """
    frame = _frame(recording, known)
    if frame is None or any(name not in known for name in NEEDED):
        return {}
    energy, semiangle = float(value_of(known, "energy_ev")), float(value_of(known, "semiangle_mrad"))
    sy, sx, dy, dx = recording.shape
    binning = max(1, int(value_of(known, "disk_radius_pixels") / LARGEST_RADIUS))
    shape, detector = (min(sy, SIDE), min(sx, SIDE)), (dy // binning, dx // binning)
    pixels = binned_grid(detector_grid(value_of(known, "pixel_mrad"), value_of(known, "centre_pixels")), binning)
    step = value_of(known, "scan_step_angstrom")
    overlaps = DiskOverlaps.of(shape, step, detector, pixels, energy, semiangle, frame)
    rows, columns = (
        np.unique(np.linspace(0, n - side, PARTS).round().astype(int)) for n, side in zip((sy, sx), shape, strict=True)
    )
    parts = itertools.product(rows.tolist(), columns.tolist())
    transforms = np.stack([overlaps.transform(_read(recording, place, shape, binning)) for place in parts])
    found = measure_aberrations(overlaps, transforms)
    units = phase_units(overlaps)
    if found is None or abs(found.coefficients["C10"]) > NEAR_RAD * units[0]:
        return {}
    halves = [measure_aberrations(overlaps, transforms[first::2]) for first in range(min(2, len(transforms)))]
    return _quantities(found, halves, units)


def _quantities(
    found: MeasuredAberrations, halves: list[MeasuredAberrations | None], units: Floats
) -> dict[str, Quantity]:
    """Returns the quantities. Their errors are those of the model, and half of the difference between two halves.

    Args:
        halves: Those of each half of its parts.
    """
    told = [each.coefficients for each in halves if each is not None]
    c = found.coefficients
    errors = [
        float(np.hypot(model * unit, np.ptp([half[name] for half in told]) / 2 if told else 0.0))
        for name, model, unit in zip(("C10", "C12", "C21"), MODEL_ERROR_RAD, units[[0, 1, 3]], strict=True)
    ]
    axes = [
        float(min(np.rad2deg(error / (m * max(c[name], 1e-9))), 180.0 / m))
        for m, name, error in ((2, "C12", errors[1]), (1, "C21", errors[2]))
    ]
    share = f"{100 * found.explained:.0f} % of the variation explained"
    method = f"overlaps of the disks, {share}, of the specimen's middle; positive is underfocus"
    return {
        "defocus_angstrom": Quantity(0.0 - c["C10"], errors[0], method),
        "astigmatism_angstrom": Quantity(c["C12"], errors[1], "C12, by the same"),
        "astigmatism_axis_deg": Quantity(float(np.rad2deg(c["phi12"])), axes[0], "φ12, by the same"),
        "coma_angstrom": Quantity(c["C21"], errors[2], "C21, by the same"),
        "coma_axis_deg": Quantity(float(np.rad2deg(c["phi21"])), axes[1], "φ21, by the same"),
    }


def _read(recording: Recording, place: tuple[int, int], shape: tuple[int, int], binning: int) -> Array:
    """Returns the patterns of a part of a scan with their pixels added up, `(sy, sx, dy, dx)`, row by row."""
    (y, x), (sy, sx) = place, shape
    rows = (recording.read(slice(row, row + 1), slice(x, x + sx)) for row in range(y, y + sy))
    return np.concatenate([binned(row, binning) for row in rows])


def _frame(recording: Recording, known: dict[str, Quantity]) -> Floats | None:
    """Returns the matrix from the angles on the detector to those in the scan's frame, (y, x); `None` if not known."""
    if "rotation_deg" in known:
        frame = frame_matrix(value_of(known, "rotation_deg"), bool(value_of(known, "mirrored")))
    elif recording.rotation_deg is not None:
        frame = frame_matrix(recording.rotation_deg, bool(recording.flip))
    else:
        return None
    if "ellipse_ratio" not in known:
        return frame
    ellipse = float(value_of(known, "ellipse_ratio")), float(value_of(known, "ellipse_axis_deg"))
    return np.asarray(frame @ circle_from_ellipse(ellipse))
