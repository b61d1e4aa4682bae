"""`inspect`: measures the calibration of a scan from its own patterns, top to bottom.

The scan is read twice: once for the statistics of its pixels and the disk, once for its virtual images. What cannot be
told is noted. Conventions are those of `namsa.io.calibration` and `namsa.physics.optics`: defocus = −C10, positive for
underfocus.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import ase
import numpy as np
import numpy.typing as npt

from namsa.arrays import Floats
from namsa.crystals.symmetry import ZoneAxis
from namsa.errors import InputError
from namsa.inspection.bad_pixels import BadPixel, bad_mask, describe, find_bad_pixels, flyback_columns
from namsa.inspection.curl import least_curl, rotated, sharpened, sign_by_dark_field, sign_by_peaks
from namsa.inspection.descan import Descan, fit_descan
from namsa.inspection.disk import Disk, distances, fit_disk
from namsa.inspection.lattice import StepFit, find_peaks, step_from_crystal, step_from_spacing
from namsa.inspection.lens import lens_quantities
from namsa.inspection.orientation import CERTAIN, Orientation, find_focus, find_orientation, other_branch
from namsa.inspection.quantities import (
    disk_quantities,
    focus_quantities,
    orientation_quantities,
    stated_quantities,
    value_of,
)
from namsa.inspection.spectra import detrended
from namsa.inspection.survey import Survey, read_pieces, survey
from namsa.inspection.tilted import ShiftFit, corrected_bright_field, fit_shifts
from namsa.inspection.virtual_images import VirtualImages, vacuum_intensity, virtual_images
from namsa.io.calibration_file import CalibrationFile, Quantity, readable, write_calibration
from namsa.io.corrections import CorrectedPatterns, repair
from namsa.io.lost import MendedPatterns
from namsa.io.reading import read
from namsa.io.recording import Recording
from namsa.physics.optics import aberration_phase, wavelength_angstrom
from namsa.physics.virtual_detectors import integrated_centre_of_mass
from namsa.pixels import PixelGrid, detector_grid

OnProgress = Callable[[str, int, int], object]  # stage, scan rows done, all rows

FOCUS = {"under": 1, "over": -1}
REVERSED_RAD = 2.5  # phase of an overfocus at the aperture's edge, from which crystals look underfocused


@dataclass(frozen=True, repr=False)
class Inspection:
    """What was measured of a scan.

    Attributes:
        facts: What the file holds and how its pixels behave, as JSON values.
        calibration: The numbers, with errors and methods.
        recording: The scan; its patterns can be read only while its file is open.
        survey: Statistics of its pixels.
        pattern: Mean pattern without bad pixels, `(dy, dx)`.
        bad_pixels: Hot, dead and missing pixels.
        disk: The bright disk; `None` if there is none.
        images: Virtual images; `None` without a disk.
        phase: Integrated deflection, `(sy, sx)`, rad, or in arbitrary units where energy, step or pixel are not known;
            `None` without a disk.
        corrected: Bright field from images shifted back, relative to its mean, `(sy, sx)`; `None` if their shifts
            could not be measured.
    """

    facts: dict[str, Any]
    calibration: CalibrationFile
    recording: Recording
    survey: Survey
    pattern: Floats
    bad_pixels: list[BadPixel]
    disk: Disk | None
    images: VirtualImages | None
    phase: Floats | None
    corrected: Floats | None

    def __repr__(self) -> str:
        """Returns the scan and the quantities that are known, in a line."""
        known = ", ".join(f"{title} {text}" for title, text in readable(self.calibration)) or "nothing"
        return f"<Inspection of {self.recording.name}: {known}>"

    def _repr_html_(self) -> str:
        """Returns the HTML that a notebook shows: mean pattern, the best image of the scan, and the numbers."""
        from namsa.figures.notebook import described_html  # Matplotlib is loaded where it is needed
        from namsa.figures.page_images import PageImage, pattern_image

        step, pixel = self.calibration.value("scan_step_angstrom"), self.calibration.value("pixel_mrad")
        centre = self.calibration.value("centre_pixels") or [(n - 1) / 2 for n in self.pattern.shape]
        mean = pattern_image(self.pattern, detector_grid(pixel or (1.0, 1.0), centre), "Mean pattern", "")
        images = [(mean, "mrad" if pixel else "pixels")]
        for title, image in (("Bright field, shifts corrected", self.corrected), ("Integrated deflection", self.phase)):
            if image is not None:
                grid = PixelGrid(step or (1.0, 1.0), (0.0, 0.0))
                images.append((PageImage(title, "", image, grid, "gray"), "Å" if step else "steps"))
                break
        return described_html("Inspection", self.recording.name, images, readable(self.calibration))

    def as_json(self) -> dict[str, Any]:
        """Returns facts and calibration as JSON values."""
        return {**self.calibration.as_json(), **self.facts}

    def save(self, path: Path | str) -> None:
        """Writes the calibration file, which `--calibration` of `python -m train reconstruct` takes.

        Raises:
            WorkError: If the file cannot be written.
        """
        write_calibration(self.calibration, Path(path))


def inspect(
    data: str | Path | npt.ArrayLike | Recording,
    *,
    crystal: ase.Atoms | None = None,
    zone_axis: ZoneAxis | None = None,
    lattice_angstrom: float | None = None,
    focus: Literal["under", "over"] | None = None,
    on_progress: OnProgress = lambda stage, done, total: None,
    **options: Any,
) -> Inspection:
    """Measures the calibration of a scan from its own patterns.

    Args:
        data: Path of a file, patterns `(sy, sx, dy, dx)`, or a recording.
        crystal: The crystal whose lattice shows in the scan; from it the scan's step follows.
        zone_axis: Its zone axis along the beam; by default the simplest ones are tried.
        lattice_angstrom: In place of a crystal, one spacing of the lattice, Å.
        focus: "under" or "over", if the probe is known to be underfocused or overfocused: it tells a rotation from the
            same rotation plus 180°.
        on_progress: Called as `on_progress(stage, rows done, rows)`.
        options: What the caller knows better than the file, and how the patterns lie in it; see `namsa.read`.

    Returns:
        Facts, the calibration with errors, and images.

    Raises:
        InputError: If the data are no scan of patterns, or an argument is not valid.
        WorkError: If the file is damaged.
    """
    if focus is not None and focus not in FOCUS:
        raise InputError(f"focus is {focus!r}: give under or over")
    if lattice_angstrom is not None and not 0.1 <= lattice_angstrom <= 1e6:
        raise InputError(f"lattice_angstrom is {lattice_angstrom:g}: give a spacing from 0.1 to 1e6 Å")
    lattice = Lattice(crystal, zone_axis, lattice_angstrom)
    with read(data, **options) as recording:
        return _inspect(recording, lattice, focus, on_progress)


class Lattice(NamedTuple):
    """The lattice that shows in a scan: of a crystal, along a zone axis if that is known, or one spacing."""

    crystal: ase.Atoms | None
    zone_axis: ZoneAxis | None
    spacing_angstrom: float | None


def _inspect(recording: Recording, lattice: Lattice, focus: str | None, on_progress: OnProgress) -> Inspection:
    sy, sx, *detector = recording.shape
    notes: list[str] = list(recording.notes)
    known = stated_quantities(recording)

    # ---- First pass: statistics of the pixels, bad pixels, the bright disk ------------------------------------------
    parts = read_pieces(recording, lambda row: on_progress("statistics", row, sy))
    statistics = survey(parts, recording.shape)
    notes += statistics.losses.lines("not counted")
    bad_pixels = find_bad_pixels(statistics, statistics.recorded)
    bad = bad_mask(bad_pixels, tuple(detector))
    pattern = repair(statistics.mean.copy(), bad)
    disk, descan = _disk(statistics, pattern, bad, (sy, sx), notes)
    inside = ~bad if disk is None else ~bad & (distances(bad.shape, disk.parameters) < disk.radius - 1)
    described = describe(recording, statistics, bad_pixels, inside)
    if disk is None:
        file = CalibrationFile(known, _excluded(recording, bad_pixels), recording.name, tuple(notes))
        return Inspection(described, file, recording, statistics, pattern, bad_pixels, None, None, None, None)
    known |= disk_quantities(disk, descan, known, notes)

    # ---- Second pass: virtual images of the corrected patterns ------------------------------------------------------
    slope = known["centre_slope_pixels"].value if "centre_slope_pixels" in known else None
    corrected = replace(
        recording, data=CorrectedPatterns(MendedPatterns(recording.data, statistics.lost), _places(bad_pixels), slope)
    )
    parts = read_pieces(corrected, lambda row: on_progress("virtual images", row, sy))
    images = virtual_images(parts, recording.shape, disk)
    described["flyback_columns"] = flyback_columns(images)

    # ---- Scan: its step, the detector's rotation and mirror, the focus ----------------------------------------------
    step = value_of(known, "scan_step_angstrom")
    if lattice.crystal is not None or lattice.spacing_angstrom is not None:
        fit = _step_fit(images, step, lattice, notes)
        if fit is not None and step is not None:
            step = (step[0] * float(fit.factors[0]), step[1] * float(fit.factors[1]))
            errors = tuple(float(s * e / f) for s, e, f in zip(step, fit.errors, fit.factors, strict=True))
            known["scan_step_angstrom"] = Quantity(
                step, errors, f"{fit.described}: {fit.peaks} of {fit.found} peaks in the images"
            )
    shifts, curl = fit_shifts(images), least_curl(images.deflection)
    orientation = find_orientation(curl, shifts, step or (1.0, 1.0))
    if orientation is None:
        notes.append("rotation and mirror: not determined, since the deflection and tilted images show too little")
        phase = _phase(images, 0.0, False, known)
    else:
        orientation, phase = _choose_branch(orientation, recording, shifts, images, focus, known, notes)
        known |= orientation_quantities(orientation, recording)
    focused = focus_quantities(shifts, orientation, known)
    known |= focused | lens_quantities(corrected, known)
    if "defocus_angstrom" not in known:
        notes.append("defocus: it takes the detector's rotation, the scan's step and the detector's pixel")

    beam = (
        vacuum_intensity(images.bright + images.dark, images.bright, images.dark) if not recording.normalised else None
    )
    if beam is not None:
        known["beam_intensity"] = Quantity(beam[0], beam[1], "mean sum of the patterns in vacuum")
    elif not recording.normalised:
        notes.append("beam's intensity: no vacuum was found in the scan")
    file = CalibrationFile(known, _excluded(recording, bad_pixels), recording.name, tuple(notes))
    sharp = None if shifts is None else corrected_bright_field(images, shifts.matrix)
    return Inspection(described, file, recording, statistics, pattern, bad_pixels, disk, images, phase, sharp)


def _places(bad_pixels: list[BadPixel]) -> tuple[tuple[int, int], ...]:
    return tuple((pixel.row, pixel.column) for pixel in bad_pixels)


def _excluded(recording: Recording, bad_pixels: list[BadPixel]) -> tuple[tuple[int, int], ...]:
    """Returns the pixels that a mask excludes, and those that were found."""
    return tuple(sorted({*recording.bad_pixels, *_places(bad_pixels)}))


def _disk(
    statistics: Survey, pattern: Floats, bad: npt.NDArray[np.bool_], scan_shape: tuple[int, int], notes: list[str]
) -> tuple[Disk | None, Descan | None]:
    """Returns the bright disk and its movement over the scan."""
    try:
        disk = fit_disk(pattern, ~bad)
    except InputError as error:
        notes.append(f"bright disk: {error}")
        return None, None
    descan = fit_descan(statistics, repair(statistics.regions.copy(), bad).astype(np.float64), disk, scan_shape)
    if descan is None:
        notes.append("centre by position: the scan has too few positions, or the disk is not found in all its regions")
    return disk, descan


def _step_fit(
    images: VirtualImages, step: tuple[float, float] | None, lattice: Lattice, notes: list[str]
) -> StepFit | None:
    """Returns the step of the scan from a lattice, or notes why there is none."""
    if step is None:
        notes.append("scan step: a lattice needs a first guess to 10 %: give --scan-step-angstrom")
        return None
    peaks = find_peaks(np.stack([images.bright, images.dark, *np.moveaxis(images.deflection, -1, 0)]))
    if lattice.crystal is not None:
        fit = step_from_crystal(peaks, step, lattice.crystal, lattice.zone_axis)
    else:
        fit = step_from_spacing(peaks, step, float(lattice.spacing_angstrom or 0))
    if fit is None:
        notes.append(f"scan step: none of {len(peaks)} peaks in the images' transforms fits the lattice within 12 %")
    return fit


def _phase(images: VirtualImages, rotation_deg: float, flip: bool, known: dict[str, Quantity]) -> Floats:
    """Returns the integrated deflection, in rad where energy, step and pixel are known."""
    energy, step, pixel = (value_of(known, name) for name in ("energy_ev", "scan_step_angstrom", "pixel_mrad"))
    size = float(np.sqrt(pixel[0] * pixel[1])) if pixel else 1.0
    deflection = size * detrended(np.moveaxis(rotated(images.deflection, rotation_deg, flip), -1, 0))
    wavelength = wavelength_angstrom(energy) if energy else 1.0
    return integrated_centre_of_mass(np.moveaxis(deflection, 0, -1), step or (1.0, 1.0), wavelength, periodic=False)


def _choose_branch(
    orientation: Orientation,
    recording: Recording,
    shifts: ShiftFit | None,
    images: VirtualImages,
    focus: str | None,
    known: dict[str, Quantity],
    notes: list[str],
) -> tuple[Orientation, Floats]:
    """Returns the orientation, of the two that differ by 180°, that fits best, and the integrated deflection."""
    phase = _phase(images, orientation.rotation_deg, orientation.flip, known)
    signs = (
        (*sign_by_dark_field(phase, images.dark), "the dark field, bright where potentials are high"),
        (*sign_by_peaks(_sharpened(phase, shifts, orientation, known)), "the potential's peaks"),
    )
    sign, certainty, reason = max(signs, key=lambda each: each[1])
    if focus is not None and shifts is not None:
        defocus = find_focus(shifts, orientation, (1.0, 1.0), 1.0).defocus_angstrom
        sign, reason = (1 if defocus * FOCUS[focus] > 0 else -1), f"the stated {focus}focus"
    elif recording.rotation_deg is not None and bool(recording.flip) == orientation.flip:
        apart = (recording.rotation_deg - orientation.rotation_deg + 180) % 360 - 180
        sign, reason = (1 if abs(apart) < 90 else -1), "the rotation that the file or the caller states"
    else:
        reason = f"{reason} ({min(certainty, 99):.0f} standard errors)"
        phase_rad = _focus_phase(shifts, orientation, known)
        if phase_rad > REVERSED_RAD:
            notes.append(
                "rotation: 180° more may be right, with the opposite sign of the defocus: crystals overfocused by more "
                f"than {REVERSED_RAD:g} rad at the aperture's edge, here {phase_rad:.1f} rad, look underfocused: give "
                "--focus under or over where it is known"
            )
        elif certainty < CERTAIN:
            notes.append(
                "rotation: 180° more fits as well, with the opposite sign of the defocus, and neither the dark field "
                f"nor peaks tell which ({certainty:.1f} standard errors): give --focus under or over where it is known"
            )
    if sign < 0:
        orientation, phase = other_branch(orientation), -phase
    notes.extend(orientation.notes)
    return replace(orientation, method=f"{orientation.method}; 180° by {reason}"), phase


def _sharpened(phase: Floats, shifts: ShiftFit | None, orientation: Orientation, known: dict[str, Quantity]) -> Floats:
    """Returns the integrated deflection without the probe's blur, as far as the probe is known."""
    defocus = _defocus(shifts, orientation, known)
    if defocus is None:
        return phase
    energy, semiangle, step = (value_of(known, name) for name in ("energy_ev", "semiangle_mrad", "scan_step_angstrom"))
    return sharpened(phase, defocus, semiangle, step, wavelength_angstrom(energy))


def _focus_phase(shifts: ShiftFit | None, orientation: Orientation, known: dict[str, Quantity]) -> float:
    """Returns the phase of the defocus at the aperture's edge, rad; 0 where the probe is not known."""
    defocus = _defocus(shifts, orientation, known)
    if defocus is None:
        return 0.0
    edge_rad = np.array(1e-3 * value_of(known, "semiangle_mrad"))
    wavelength = wavelength_angstrom(value_of(known, "energy_ev"))
    return float(abs(aberration_phase(edge_rad, np.array(0.0), wavelength, {"C10": -defocus})))


def _defocus(shifts: ShiftFit | None, orientation: Orientation, known: dict[str, Quantity]) -> float | None:
    """Returns the defocus by the shifts, Å; `None` where the probe is not known."""
    energy, semiangle = value_of(known, "energy_ev"), value_of(known, "semiangle_mrad")
    step, pixel = value_of(known, "scan_step_angstrom"), value_of(known, "pixel_mrad")
    if shifts is None or None in (energy, semiangle, step, pixel):
        return None
    return find_focus(shifts, orientation, step, float(np.sqrt(pixel[0] * pixel[1]))).defocus_angstrom
