"""Focus, astigmatism and coma of a scan, from the overlaps of its disks
(`namsa.inspection.aberrations`).

Shifts of tilted images (`namsa.inspection.tilted`) are those of rays. Near focus, tilted images of
a crystal differ by more than a shift, and the overlaps are more exact. Far from focus the shifts
hold.
"""

import itertools

import numpy as np

from namsa.base.arrays import Array, Floats
from namsa.base.pixels import binned, binned_grid, detector_grid
from namsa.inspection.aberrations import MeasuredAberrations, measure_aberrations, phase_units
from namsa.inspection.disk_overlaps import DiskOverlaps
from namsa.inspection.orientation import frame_matrix
from namsa.inspection.quantities import value_of
from namsa.io.calibration import circle_from_ellipse
from namsa.io.calibration_file import CalibratedQuantity
from namsa.io.recording import Recording

NEAR_RAD = 10.0  # phase of C10 at the aperture's edge, up to which the overlaps are better
# of C10, C12 and C21, at the aperture's edge: crystals are no weak phase objects
MODEL_ERROR_RAD = (0.7, 0.3, 0.3)
# parts of the scan along each axis, and positions of a part, at most
PARTS = 4
SIDE = 32
LARGEST_RADIUS = 12  # of the disk, pixels, above which pixels are added up
NEEDED = ("energy_ev", "semiangle_mrad", "scan_step_angstrom", "pixel_mrad", "centre_pixels")


def lens_quantities(
    recording: Recording, known: dict[str, CalibratedQuantity]
) -> dict[str, CalibratedQuantity]:
    """Returns defocus, astigmatism and coma near focus.

    Args:
        recording: The scan, whose disk stays in one place.
        known: What is known of the scan. Without `NEEDED`, and without the detector's rotation, be
            it measured or stated, nothing is measured.

    Returns:
        The quantities; none far from focus, or if the patterns do not show them.
    """
    frame = _frame(recording, known)
    if frame is None or any(name not in known for name in NEEDED):
        return {}
    energy = float(value_of(known, "energy_ev"))
    semiangle = float(value_of(known, "semiangle_mrad"))
    sy, sx, dy, dx = recording.shape
    binning = max(1, int(value_of(known, "disk_radius_pixels") / LARGEST_RADIUS))
    shape = (min(sy, SIDE), min(sx, SIDE))
    detector = (dy // binning, dx // binning)
    pixels = binned_grid(
        detector_grid(value_of(known, "pixel_mrad"), value_of(known, "centre_pixels")), binning
    )
    step = value_of(known, "scan_step_angstrom")
    overlaps = DiskOverlaps.of(shape, step, detector, pixels, energy, semiangle, frame)
    transforms_of_parts = []
    for place in itertools.product(_starts(sy, shape[0]), _starts(sx, shape[1])):
        patterns = _read(recording, place, shape, binning)
        transforms_of_parts.append(overlaps.transform(patterns))
    transforms = np.stack(transforms_of_parts)
    measured = measure_aberrations(overlaps, transforms)
    units = phase_units(overlaps)
    if measured is None or abs(measured.coefficients["C10"]) > NEAR_RAD * units[0]:
        return {}
    halves = [measure_aberrations(overlaps, transforms[::2])]
    if len(transforms) > 1:
        halves.append(measure_aberrations(overlaps, transforms[1::2]))
    return _quantities(measured, halves, units)


def _starts(length: int, side: int) -> list[int]:
    """Returns where parts of a side of the scan begin, evenly spread."""
    return np.unique(np.linspace(0, length - side, PARTS).round().astype(int)).tolist()


def _quantities(
    measured: MeasuredAberrations, halves: list[MeasuredAberrations | None], units: Floats
) -> dict[str, CalibratedQuantity]:
    """Returns the quantities. Their errors are those of the model, and half of the difference
    between two halves.

    Args:
        halves: Those of each half of its parts.
    """
    coefficients = measured.coefficients
    measured_halves = [half.coefficients for half in halves if half is not None]

    def error_of(name: str, model_error: float) -> float:
        """Returns the error of a coefficient, Å."""
        if not measured_halves:
            return float(model_error)
        difference = np.ptp([half[name] for half in measured_halves])
        return float(np.hypot(model_error, difference / 2))

    model_errors = np.asarray(MODEL_ERROR_RAD) * units[[0, 1, 3]]
    defocus_error = error_of("C10", model_errors[0])
    astigmatism = coefficients["C12"]
    astigmatism_error = error_of("C12", model_errors[1])
    coma = coefficients["C21"]
    coma_error = error_of("C21", model_errors[2])
    share = f"{100 * measured.explained:.0f} % of the variation explained"
    method = f"overlaps of the disks, {share}, of the specimen's middle; positive is underfocus"
    return {
        "defocus_angstrom": CalibratedQuantity(0.0 - coefficients["C10"], defocus_error, method),
        "astigmatism_angstrom": CalibratedQuantity(
            astigmatism, astigmatism_error, "C12, by the same"
        ),
        "astigmatism_axis_deg": CalibratedQuantity(
            float(np.rad2deg(coefficients["phi12"])),
            _axis_error_deg(astigmatism_error, astigmatism, 2),
            "φ12, by the same",
        ),
        "coma_angstrom": CalibratedQuantity(coma, coma_error, "C21, by the same"),
        "coma_axis_deg": CalibratedQuantity(
            float(np.rad2deg(coefficients["phi21"])),
            _axis_error_deg(coma_error, coma, 1),
            "φ21, by the same",
        ),
    }


def _axis_error_deg(error: float, coefficient: float, multiplicity: int) -> float:
    """Returns the error of an aberration's direction, at most that of any direction, degrees."""
    direction = np.rad2deg(error / (multiplicity * max(coefficient, 1e-9)))
    return float(min(direction, 180.0 / multiplicity))


def _read(
    recording: Recording, place: tuple[int, int], shape: tuple[int, int], binning: int
) -> Array:
    """Returns the patterns of a part of a scan with their pixels added up, `(sy, sx, dy, dx)`, row
    by row.
    """
    y, x = place
    sy, sx = shape
    rows = (recording.read(slice(row, row + 1), slice(x, x + sx)) for row in range(y, y + sy))
    return np.concatenate([binned(row, binning) for row in rows])


def _frame(recording: Recording, known: dict[str, CalibratedQuantity]) -> Floats | None:
    """Returns the matrix from the angles on the detector to those in the scan's frame, (y, x);
    `None` if not known.
    """
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
