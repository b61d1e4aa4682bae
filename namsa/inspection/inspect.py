"""`inspect`: measures the calibration of a scan from its own patterns, top to bottom.

The scan is read twice: once for the statistics of its pixels and the disk, once for its virtual
images. What cannot be determined is noted. Conventions are those of `namsa.io.calibration` and
`namsa.physics.optics`: defocus = −C10, positive for underfocus.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import ase
import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Floats
from namsa.base.errors import InputError
from namsa.base.names import portable_path
from namsa.base.notebook_progress import notebook_bar
from namsa.base.text import plural
from namsa.crystals.symmetry import ZoneAxis
from namsa.inspection.bad_pixels import (
    BadPixel,
    bad_mask,
    clipped_pixels,
    describe,
    find_bad_pixels,
    flyback_columns,
)
from namsa.inspection.branch import FOCUS, choose_branch, integrated_phase
from namsa.inspection.curl import least_curl
from namsa.inspection.descan import Descan, fit_descan
from namsa.inspection.disk import Disk, distances, fit_disk
from namsa.inspection.inspection import Inspection
from namsa.inspection.lens import lens_quantities
from namsa.inspection.orientation import (
    find_orientation,
)
from namsa.inspection.quantities import (
    disk_quantities,
    focus_quantities,
    orientation_quantities,
    stated_quantities,
    value_of,
)
from namsa.inspection.scan_step import Lattice, step_quantity
from namsa.inspection.survey import Survey, read_pieces, survey
from namsa.inspection.tilted import corrected_bright_field, fit_shifts
from namsa.inspection.virtual_images import VirtualImages, vacuum_intensity, virtual_images
from namsa.io.calibration_file import (
    CalibratedQuantity,
    CalibrationFile,
)
from namsa.io.corrections import DETECTOR_REACH, CorrectedPatterns, repair, repair_matrix
from namsa.io.dead_regions import dead_regions, described, pixels_of, range_of
from namsa.io.lost import RepairedPatterns
from namsa.io.reading import read
from namsa.io.recording import Recording
from namsa.io.window_calibration import of_stored_scan

CLIPPED_ERROR = 0.2  # of the radius, where only clipped pixels show the disk
OnProgress = Callable[[str, int, int], None]  # stage, scan rows done, all rows


def inspect(
    data: str | Path | npt.ArrayLike | Recording,
    *,
    crystal: ase.Atoms | None = None,
    zone_axis: ZoneAxis | None = None,
    lattice_angstrom: float | None = None,
    focus: Literal["under", "over"] | None = None,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> Inspection:
    """Measures the calibration of a scan from its own patterns.

    Args:
        data: Path of a file, patterns `(sy, sx, dy, dx)`, or a recording.
        crystal: The crystal whose lattice shows in the scan; from it the scan's step follows.
        zone_axis: Its zone axis along the beam; by default the simplest ones are tried.
        lattice_angstrom: In place of a crystal, one spacing of the lattice, Å.
        focus: "under" or "over", if the probe is known to be underfocused or overfocused: it tells
            a rotation from the same rotation plus 180°.
        on_progress: Called as `on_progress(stage, rows done, rows)`. Default: a bar in a notebook,
            if the call takes long, and else nothing.
        options: What the caller knows better than the file, and how the patterns lie in it; see
            `namsa.read`.

    Returns:
        Facts, the calibration with errors, and images.

    Raises:
        InputError: If the data are no scan of patterns, or an argument is not valid.
        WorkError: If the file is damaged.

    Example:
        >>> found = namsa.inspect(sample.stack, energy_ev=200e3, semiangle_mrad=20)
        >>> pitch, _ = sample.provenance["detector_sampling_mrad"]
        >>> bool(abs(found.calibration.value("pixel_mrad")[0] / pitch - 1) < 0.05)
        True
    """
    if focus is not None and focus not in FOCUS:
        raise InputError(f"focus is {focus!r}: give under or over")
    if lattice_angstrom is not None and not 0.1 <= lattice_angstrom <= 1e6:
        raise InputError(
            f"lattice_angstrom is {lattice_angstrom:g}: give a spacing from 0.1 to 1e6 Å"
        )
    lattice = Lattice(crystal, zone_axis, lattice_angstrom)
    with read(data, **options) as recording, notebook_bar(on_progress) as report:
        return _inspect(recording, lattice, focus, _given_names(options), report)


def _given_names(options: Mapping[str, object]) -> set[str]:
    """Returns the names of the numbers that the options of `namsa.read` give."""
    calibration = options.get("calibration")
    values = dict(options) if calibration is None else {**vars(calibration), **options}
    return {name for name, value in values.items() if value is not None}


def _inspect(
    recording: Recording,
    lattice: Lattice,
    focus: str | None,
    given: Collection[str],
    on_progress: OnProgress,
) -> Inspection:
    """Measures the calibration of a scan that is open."""
    notes: list[str] = list(recording.notes)
    known = stated_quantities(recording, given)
    first_pass = _first_pass(recording, notes, on_progress)
    disk = first_pass.disk
    if disk is None:
        return _inspection(recording, first_pass, known, notes)
    known |= disk_quantities(disk, first_pass.descan, known, notes)

    # Second pass: virtual images of the corrected patterns.
    rows = recording.shape[0]
    slope = known["centre_slope_pixels"].value if "centre_slope_pixels" in known else None
    repaired = RepairedPatterns(recording.data, first_pass.statistics.lost)
    places = _places(first_pass.bad_pixels)
    corrected = replace(recording, data=CorrectedPatterns(repaired, places, slope))
    pieces = read_pieces(corrected, lambda row: on_progress("virtual images", row, rows))
    images = virtual_images(pieces, recording.shape, disk)
    first_pass.facts["flyback_columns"] = flyback_columns(images)

    # The scan's step, the detector's rotation and mirror, the focus.
    step = value_of(known, "scan_step_angstrom")
    measured_step = step_quantity(images, step, lattice, notes)
    if measured_step is not None:
        known["scan_step_angstrom"] = measured_step
        step = measured_step.value
    shifts = fit_shifts(images)
    orientation = find_orientation(least_curl(images.deflection), shifts, step or (1.0, 1.0))
    if orientation is None:
        notes.append(
            "rotation and mirror: not determined, since the deflection and tilted images show too "
            "little"
        )
        phase = integrated_phase(images, 0.0, False, known)
    else:
        orientation, phase = choose_branch(
            orientation, recording, shifts, images, focus, known, notes
        )
        known |= orientation_quantities(orientation, recording)
    known |= focus_quantities(shifts, orientation, known) | lens_quantities(corrected, known)
    if "defocus_angstrom" not in known:
        notes.append(
            "defocus: it takes the detector's rotation, the scan's step and the detector's pixel"
        )
    if not recording.normalised:
        known |= _beam_quantity(images, notes)
    image = None if shifts is None else corrected_bright_field(images, shifts.matrix)
    return _inspection(recording, first_pass, known, notes, images, phase, image)


class FirstPass(NamedTuple):
    """The results of reading a scan once: statistics of its pixels, and the bright disk."""

    statistics: Survey
    pattern: Floats  # mean pattern, repaired
    bad_pixels: list[BadPixel]
    disk: Disk | None  # `None` if there is none
    descan: Descan | None
    facts: dict[str, Any]  # of the inspection


def _first_pass(recording: Recording, notes: list[str], on_progress: OnProgress) -> FirstPass:
    """Reads a scan once, and adds to the notes."""
    sy, sx, *detector = recording.shape
    pieces = read_pieces(recording, lambda row: on_progress("statistics", row, sy))
    statistics = survey(pieces, recording.shape)
    notes += statistics.losses.lines("not counted")
    bad_pixels = find_bad_pixels(statistics, statistics.recorded)
    excluded = _excluded(recording)
    values = range_of(
        statistics.mean, statistics.extremes, statistics.recorded, statistics.whole, excluded
    )
    dead = dead_regions(values)
    is_simulated = recording.normalised or bool(np.isfinite(recording.limit_mrad))
    if dead.any() and not is_simulated:
        notes.append(described(dead))
        bad_pixels += _dead_pixels(pixels_of(dead), bad_pixels)
    bad = bad_mask(bad_pixels, tuple(detector))
    pattern = repair(statistics.mean.copy(), bad, repair_matrix(bad, DETECTOR_REACH))
    disk, descan = _disk(
        statistics, pattern, bad | excluded, (sy, sx), notes, is_simulated=is_simulated
    )
    inside = ~bad
    if disk is not None:
        inside &= distances(bad.shape, disk.parameters) < disk.radius - 1
    facts = describe(recording, statistics, bad_pixels, inside)
    return FirstPass(statistics, pattern, bad_pixels, disk, descan, facts)


def _dead_pixels(
    places: Iterable[tuple[int, int]], bad_pixels: Sequence[BadPixel]
) -> list[BadPixel]:
    """Returns the pixels at some places that are not known to be bad, as dead ones."""
    known = {(pixel.row, pixel.column) for pixel in bad_pixels}
    dead = []
    for row, column in places:
        if (row, column) not in known:
            dead.append(BadPixel(row, column, "dead", np.inf))
    return dead


def _inspection(
    recording: Recording,
    first_pass: FirstPass,
    known: dict[str, CalibratedQuantity],
    notes: list[str],
    images: VirtualImages | None = None,
    phase: Floats | None = None,
    corrected: Floats | None = None,
) -> Inspection:
    """Returns the inspection of a scan; without a disk there are no images."""
    as_read = _calibration_file(recording, known, first_pass.bad_pixels, notes)
    return Inspection(
        facts=first_pass.facts,
        calibration=_of_stored_scan(recording, as_read),
        as_read=as_read,
        recording=recording,
        survey=first_pass.statistics,
        pattern=first_pass.pattern,
        bad_pixels=first_pass.bad_pixels,
        disk=first_pass.disk,
        images=images,
        phase=phase,
        corrected=corrected,
    )


def _beam_quantity(images: VirtualImages, notes: list[str]) -> dict[str, CalibratedQuantity]:
    """Returns the beam's intensity by patterns in vacuum, or notes that there are none."""
    beam = vacuum_intensity(images.bright + images.dark, images.bright, images.dark)
    if beam is None:
        notes.append("beam's intensity: no vacuum was found in the scan")
        return {}
    intensity, error = beam
    method = "mean sum of the patterns in vacuum"
    return {"beam_intensity": CalibratedQuantity(intensity, error, method)}


def _of_stored_scan(recording: Recording, as_read: CalibrationFile) -> CalibrationFile:
    """Returns the calibration of the scan as it is stored, of which a part may have been read."""
    if recording.window is None:
        return as_read
    return of_stored_scan(as_read, recording.window)


def _calibration_file(
    recording: Recording,
    known: Mapping[str, CalibratedQuantity],
    bad_pixels: list[BadPixel],
    notes: list[str],
) -> CalibrationFile:
    """Returns the contents of the calibration file."""
    excluded = {*recording.bad_pixels, *_places(bad_pixels)}  # by a mask, and found
    return CalibrationFile(
        quantities=known,
        bad_pixels=tuple(sorted(excluded)),
        data=portable_path(recording.name),
        notes=tuple(notes),
        serpentine=recording.serpentine,
        flip_scan=recording.flip_scan,
    )


def _excluded(recording: Recording) -> npt.NDArray[np.bool_]:
    """Returns the pixels that are replaced as the scan is read, `(dy, dx)`."""
    excluded = np.zeros(recording.shape[2:], bool)
    if recording.bad_pixels:
        excluded[tuple(np.transpose(recording.bad_pixels))] = True
    return excluded


def _places(bad_pixels: list[BadPixel]) -> tuple[tuple[int, int], ...]:
    return tuple((pixel.row, pixel.column) for pixel in bad_pixels)


def _disk_beside_clipped(
    disk: Disk,
    pattern: Floats,
    bad: npt.NDArray[np.bool_],
    clipped: npt.NDArray[np.bool_],
    top: float,
    notes: list[str],
) -> Disk:
    """Returns the disk by pixels whose values are not cut off, or with a larger error if these do
    not tell it.

    Args:
        disk: The disk by all pixels, which clipping makes too large.
    """
    count = plural(int(clipped.sum()), "pixel")
    line = f"values are cut off at {top:g} in {count}"
    try:
        beside = fit_disk(pattern, ~bad & ~clipped)
    except (InputError, np.linalg.LinAlgError):
        beside = None
    if beside is not None and beside.radius <= disk.radius + disk.errors[2]:
        notes.append(f"{line}: the bright disk's edge is fitted without them")
        return beside
    covariance = disk.covariance.copy()
    covariance[2, 2] += (CLIPPED_ERROR * disk.radius) ** 2
    notes.append(
        f"{line}: the bright disk looks larger than it is, which its error, {CLIPPED_ERROR:.0%} of "
        "the radius, allows for: record with less exposure"
    )
    return replace(disk, covariance=covariance)


def _disk(
    statistics: Survey,
    pattern: Floats,
    bad: npt.NDArray[np.bool_],
    scan_shape: tuple[int, int],
    notes: list[str],
    is_simulated: bool,
) -> tuple[Disk | None, Descan | None]:
    """Returns the bright disk and its movement over the scan."""
    try:
        disk = fit_disk(pattern, ~bad)
    except InputError as error:
        notes.append(f"bright disk: {error}")
        return None, None
    clipped = clipped_pixels(statistics)
    if clipped.any() and not is_simulated:
        disk = _disk_beside_clipped(disk, pattern, bad, clipped, statistics.top, notes)
    regions = repair(statistics.regions.copy(), bad).astype(np.float64)
    descan = fit_descan(statistics, regions, disk, scan_shape)
    if descan is None:
        notes.append(
            "centre by position: the scan has too few positions, or the disk is not found in all "
            "its regions"
        )
    return disk, descan
