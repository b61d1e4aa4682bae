"""Choice between two rotations that differ by 180°: potentials are positive.

The curl of the deflection and the shifts of tilted images are the same for both, with opposite
signs of the defocus.

Far overfocused, heavy atoms invert the contrast of the integrated deflection: what they scatter
beyond the detector is missing in the disk, where their shadow is. Of 80 carbon and 12 gold atoms in
44 × 42 × 3 Å, 200 kV, 20 mrad, detector to 35 mrad, the cosine of the phase between deflection and
dark field is, below 0.1/Å, −0.6 to −0.8 with C10 = 400 Å, and 0.7 to 1 with −400 Å; of carbon alone
it is positive with 400 Å too. A fit of both contributions has an error as large as the sign with
30 electrons per pattern in the dark field. So the sign is then uncertain, and a note says it.
"""

from dataclasses import replace

import numpy as np

from namsa.base.arrays import Floats
from namsa.inspection.curl import rotated, sharpened, sign_by_dark_field, sign_by_peaks
from namsa.inspection.orientation import CERTAIN, Orientation, find_focus, other_branch
from namsa.inspection.quantities import value_of
from namsa.inspection.spectra import detrended
from namsa.inspection.tilted import ShiftFit
from namsa.inspection.virtual_images import VirtualImages
from namsa.io.calibration_file import CalibratedQuantity
from namsa.io.recording import Recording
from namsa.physics.optics import aberration_phase, wavelength_angstrom
from namsa.physics.virtual_detectors import integrated_centre_of_mass

FOCUS = {"under": 1, "over": -1}
# phase of an overfocus at the aperture's edge, from which crystals look underfocused
REVERSED_RAD = 2.5


def integrated_phase(
    images: VirtualImages, rotation_deg: float, flip: bool, known: dict[str, CalibratedQuantity]
) -> Floats:
    """Returns the integrated deflection, in rad where energy, step and pixel are known."""
    energy = value_of(known, "energy_ev")
    step = value_of(known, "scan_step_angstrom")
    pixel = value_of(known, "pixel_mrad")
    pixel_size = float(np.sqrt(pixel[0] * pixel[1])) if pixel else 1.0
    wavelength = wavelength_angstrom(energy) if energy else 1.0
    turned = rotated(images.deflection, rotation_deg, flip)
    deflection = pixel_size * detrended(np.moveaxis(turned, -1, 0))
    return integrated_centre_of_mass(
        np.moveaxis(deflection, 0, -1), step or (1.0, 1.0), wavelength, periodic=False
    )


def choose_branch(
    orientation: Orientation,
    recording: Recording,
    shifts: ShiftFit | None,
    images: VirtualImages,
    focus: str | None,
    known: dict[str, CalibratedQuantity],
    notes: list[str],
) -> tuple[Orientation, Floats]:
    """Returns the orientation, of the two that differ by 180°, that fits best, and the integrated
    deflection.
    """
    phase = integrated_phase(images, orientation.rotation_deg, orientation.flip, known)
    if focus is not None and shifts is not None:
        defocus = find_focus(shifts, orientation, (1.0, 1.0), 1.0).defocus_angstrom
        sign = 1 if defocus * FOCUS[focus] > 0 else -1
        reason = f"the stated {focus}focus"
    elif recording.rotation_deg is not None and bool(recording.flip) == orientation.flip:
        apart = (recording.rotation_deg - orientation.rotation_deg + 180) % 360 - 180
        sign = 1 if abs(apart) < 90 else -1
        reason = "the rotation that the file or the caller states"
    else:
        sign, certainty, evidence = _sign_by_images(phase, shifts, images, orientation, known)
        reason = f"{evidence} ({min(certainty, 99):.0f} standard errors)"
        notes.extend(_ambiguity(certainty, _focus_phase(shifts, orientation, known)))
    if sign < 0:
        orientation = other_branch(orientation)
        phase = -phase
    notes.extend(orientation.notes)
    return replace(orientation, method=f"{orientation.method}; 180° by {reason}"), phase


def _sign_by_images(
    phase: Floats,
    shifts: ShiftFit | None,
    images: VirtualImages,
    orientation: Orientation,
    known: dict[str, CalibratedQuantity],
) -> tuple[int, float, str]:
    """Returns the sign of the integrated deflection that makes potentials positive, how many
    standard errors it is certain by, and by what.
    """
    field_sign, field_certainty = sign_by_dark_field(phase, images.dark)
    peaks_sign, peaks_certainty = sign_by_peaks(_sharpened(phase, shifts, orientation, known))
    if field_certainty >= peaks_certainty:
        evidence = "the dark field, bright where potentials are high"
        return field_sign, field_certainty, evidence
    return peaks_sign, peaks_certainty, "the potential's peaks"


def _ambiguity(certainty: float, focus_phase_rad: float) -> list[str]:
    """Returns a note if the rotation plus 180° may be right.

    Args:
        certainty: Standard errors by which the sign was chosen.
        focus_phase_rad: Phase of the defocus at the aperture's edge.
    """
    if focus_phase_rad > REVERSED_RAD:
        return [
            "rotation: 180° more may be right, with the opposite sign of the defocus: crystals and "
            f"heavy atoms overfocused by more than {REVERSED_RAD:g} rad at the aperture's edge, "
            f"here {focus_phase_rad:.1f} rad, look underfocused: give --focus under or over where "
            "it is known"
        ]
    if certainty < CERTAIN:
        return [
            "rotation: 180° more fits as well, with the opposite sign of the defocus, and neither "
            f"the dark field nor peaks tell which ({certainty:.1f} standard errors): give --focus "
            "under or over where it is known"
        ]
    return []


def _sharpened(
    phase: Floats,
    shifts: ShiftFit | None,
    orientation: Orientation,
    known: dict[str, CalibratedQuantity],
) -> Floats:
    """Returns the integrated deflection without the probe's blur, as far as the probe is known."""
    defocus = _defocus(shifts, orientation, known)
    if defocus is None:
        return phase
    wavelength = wavelength_angstrom(value_of(known, "energy_ev"))
    semiangle = value_of(known, "semiangle_mrad")
    step = value_of(known, "scan_step_angstrom")
    return sharpened(phase, defocus, semiangle, step, wavelength)


def _focus_phase(
    shifts: ShiftFit | None, orientation: Orientation, known: dict[str, CalibratedQuantity]
) -> float:
    """Returns the phase of the defocus at the aperture's edge, rad; 0 where the probe is not
    known.
    """
    defocus = _defocus(shifts, orientation, known)
    if defocus is None:
        return 0.0
    edge_rad = np.array(1e-3 * value_of(known, "semiangle_mrad"))
    wavelength = wavelength_angstrom(value_of(known, "energy_ev"))
    return float(abs(aberration_phase(edge_rad, np.array(0.0), wavelength, {"C10": -defocus})))


def _defocus(
    shifts: ShiftFit | None, orientation: Orientation, known: dict[str, CalibratedQuantity]
) -> float | None:
    """Returns the defocus by the shifts, Å; `None` where the probe is not known."""
    energy = value_of(known, "energy_ev")
    semiangle = value_of(known, "semiangle_mrad")
    step = value_of(known, "scan_step_angstrom")
    pixel = value_of(known, "pixel_mrad")
    if shifts is None or None in (energy, semiangle, step, pixel):
        return None
    pixel_size = float(np.sqrt(pixel[0] * pixel[1]))
    return find_focus(shifts, orientation, step, pixel_size).defocus_angstrom
