"""`parallax_image`: the bright-field image of a defocused scan on pixels finer than its steps, top
to bottom.

Each pixel of the bright disk has its own image of the specimen, seen along its ray and shifted by
the aberrations (`namsa.parallax.rays`). Shifted back, all images are one of low noise; as the
shifts are no whole steps, they fill finer pixels than the scan has (tilt-corrected bright field,
tcBF; Spoth et al., Microsc. Microanal. 23 (2017) 388; Varnavides et al., arXiv:2309.05250).

The specimen is thin: it scatters at one height, that of the given focus. Within a pixel of the
detector the shift is one. Reversals of the contrast are undone for a weak phase object
(`namsa.parallax.contrast`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Floats, Pair
from namsa.base.errors import InputError
from namsa.base.notebook_progress import notebook_bar
from namsa.base.pixels import PixelGrid
from namsa.inspection.inspect import inspect
from namsa.inspection.survey import pieces
from namsa.io.calibration import FourDData
from namsa.io.calibration_file import CalibrationFile, read_calibration
from namsa.io.reading import open_patterns
from namsa.io.recording import Recording
from namsa.parallax.accumulation import LEAST_SHARE, FineImage, expected, has_gaps
from namsa.parallax.contrast import phase_flipped
from namsa.parallax.rays import Rays, rays_of
from namsa.physics.optics import check_aberrations, wavelength_angstrom
from namsa.samples.image import Description, Image

MOST_UPSAMPLING = 16
MOST_PIXELS = 2**27  # of the image
BAND_BYTES = 2**27  # of the images of a band of rows
FEWEST_POSITIONS = 4  # of the scan, along each axis
FEWEST_RAYS = 9
OnProgress = Callable[[str, int, int], None]  # stage, scan rows done, all rows


@dataclass(frozen=True, eq=False)
class Parallax:
    """Aligned bright-field images of a scan, on fine pixels.

    Attributes:
        bright_field: Sum of the shifted images over that of a specimen without contrast; 1 where
            too few rays cross.
        phase_flipped: The same with reversals of contrast undone, about 1: bright where the
            potential of a thin specimen is high.
        coverage: Share of the disk's intensity that reaches each pixel, 1 in the middle.
        lens: The aberrations that shift the images, Å and rad.
        rays: Number of pixels of the detector whose images are added.
        largest_shift_steps: Of their images, steps of the scan, (y, x).
        blur_angstrom: Difference of the shifts of neighbouring pixels of the detector, Å, which
            limits the resolution.
        notes: What was assumed or left out, one line each.
    """

    bright_field: Image
    phase_flipped: Image
    coverage: Image
    lens: Mapping[str, float]
    rays: int
    largest_shift_steps: Pair
    blur_angstrom: float
    notes: tuple[str, ...]

    def save(self, path: Path | str) -> None:
        """Writes bright field and phase-flipped image as one stack: `.tif` with the pixels' size,
        `.npy`, or a picture.

        Raises:
            InputError: If the ending is unknown.
            WorkError: If the file cannot be written.
        """
        images = np.stack([self.bright_field.array, self.phase_flipped.array])
        names = (self.bright_field.name, self.phase_flipped.name)
        pixels = self.bright_field.pixels
        stack = Image(images.astype(np.float32), Description("parallax", "", pixels, "Å", names))
        stack.save(path)


def parallax_image(
    data: str | Path | npt.ArrayLike | Recording,
    *,
    upsampling: int = 2,
    calibration: CalibrationFile | str | Path | None = None,
    aberrations: Mapping[str, float] | None = None,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> Parallax:
    """Returns the bright-field image of a defocused scan on pixels finer than its steps.

    Args:
        data: Path of a file, patterns `(sy, sx, dy, dx)`, or a recording.
        upsampling: Fine pixels per step of the scan.
        calibration: What `namsa.inspect` measured, or its file. By default the scan is inspected.
        aberrations: Aberrations from the probe's focus to the specimen in Krivanek's notation, Å
            and rad, in place of those of the calibration; C10 is −defocus.
        on_progress: Called as `on_progress(stage, rows done, rows)`. Default: a bar in a notebook,
            if the call takes long, and else nothing.
        options: What the caller knows better than the file, and how the patterns lie in it; see
            `namsa.read`.

    Raises:
        InputError: If numbers are missing that the image takes, or the rays cross the specimen at
            too few places for the upsampling.
        WorkError: If the file is damaged.

    Example:
        >>> optics = {"energy_ev": 200e3, "semiangle_mrad": 20, "aberrations": {"C10": -300.0}}
        >>> scan = namsa.simulate(
        ...     bulk("Si", cubic=True) * (4, 4, 1),
        ...     scan=(12, 12),  # 1.81 Å apart
        ...     sampling=0.2,
        ...     detector=namsa.Detector(pixel_mrad=2, max_angle_mrad=24),
        ...     **optics,
        ... )
        >>> image = namsa.parallax_image(
        ...     scan.stack, scan_step_angstrom=1.81, pixel_mrad=2, rotation_deg=0, **optics
        ... )
        >>> image.phase_flipped.array.shape
        (23, 23)
    """
    if not isinstance(upsampling, int) or not 1 <= upsampling <= MOST_UPSAMPLING:
        raise InputError(
            f"upsampling is {upsampling}: give a whole number from 1 to {MOST_UPSAMPLING}"
        )
    if isinstance(calibration, str | Path):
        calibration = read_calibration(Path(calibration))
    check_aberrations(aberrations or {})
    with notebook_bar(on_progress) as report:
        if calibration is None:
            focus = _focus_of(aberrations)
            inspection = inspect(data, focus=focus, on_progress=report, **options)
            calibration = inspection.calibration
        lens = aberrations if aberrations is not None else lens_of(calibration)
        overrides = calibration.overrides()
        with open_patterns(data, overrides, **options) as scan:
            return _parallax(scan, lens, upsampling, report)


def _focus_of(aberrations: Mapping[str, float] | None) -> Literal["under", "over"] | None:
    """Returns the sign of a focus that is given, which tells a rotation from 180° more."""
    c10 = (aberrations or {}).get("C10", 0.0)
    if c10 == 0:
        return None
    return "under" if c10 < 0 else "over"


def lens_of(calibration: CalibrationFile) -> dict[str, float]:
    """Returns the aberrations of a calibration, Å and rad.

    Raises:
        InputError: If it has no defocus.
    """
    defocus = calibration.value("defocus_angstrom")
    if defocus is None:
        raise InputError(
            "the calibration has no defocus, which shifts the images: give --defocus-angstrom, "
            "or what `namsa inspect` needs to measure it"
        )
    lens = {"C10": -float(defocus)}
    for name, coefficient, azimuth in (("astigmatism", "C12", "phi12"), ("coma", "C21", "phi21")):
        value = calibration.value(f"{name}_angstrom")
        axis_deg = calibration.value(f"{name}_axis_deg")
        if value is not None and axis_deg is not None:
            lens[coefficient] = float(value)
            lens[azimuth] = float(np.deg2rad(axis_deg))
    return lens


def _parallax(
    scan: FourDData, lens: Mapping[str, float], upsampling: int, on_progress: OnProgress
) -> Parallax:
    """Aligns the images of a scan that is open."""
    sy, sx = scan.shape[:2]
    if scan.centre_pixels is None:
        raise InputError("the optic axis is not known: give --centre-pixels")
    if min(sy, sx) < FEWEST_POSITIONS:
        raise InputError(
            f"the scan has {sy} × {sx} positions: an image takes {FEWEST_POSITIONS} along each axis"
        )
    if sy * sx * upsampling**2 > MOST_PIXELS:
        raise InputError(
            f"upsampling {upsampling} of {sy} × {sx} positions gives more than {MOST_PIXELS:,} "
            "pixels: give a smaller one"
        )
    rays = rays_of(scan, scan.centre_pixels, lens)
    shifts_steps = rays.shifts_angstrom / scan.scan_step_angstrom
    _check_rays(shifts_steps, upsampling)

    total, means, recorded = _sum_images(scan, rays, shifts_steps, upsampling, on_progress)
    reference = expected(recorded, means, shifts_steps, upsampling).values
    coverage = reference / np.median(reference)
    is_covered = coverage >= LEAST_SHARE
    relative = np.ones_like(reference)
    relative[is_covered] = total[is_covered] / reference[is_covered]

    step = np.asarray(scan.scan_step_angstrom) / upsampling
    wavelength = wavelength_angstrom(scan.energy_ev)
    about_mean = relative - relative[is_covered].mean()
    flipped = 1 + phase_flipped(about_mean, step, wavelength, lens)
    pixels = PixelGrid(tuple(step.tolist()), scan.scan_origin_angstrom)
    notes = list(scan.notes)
    if not scan.rotation_stated:
        notes.append("the detector's rotation is not known and taken as none")
    if not recorded.all():
        notes.append(f"{int((~recorded).sum())} patterns without counts are left out")
    largest = np.abs(shifts_steps).max(axis=0)
    return Parallax(
        bright_field=Image(relative, Description("bright field", "", pixels)),
        phase_flipped=Image(flipped, Description("phase-flipped bright field", "", pixels)),
        coverage=Image(coverage, Description("coverage", "", pixels)),
        lens=lens,
        rays=len(shifts_steps),
        largest_shift_steps=(float(largest[0]), float(largest[1])),
        blur_angstrom=_blur(rays),
        notes=tuple(notes),
    )


def _check_rays(shifts_steps: Floats, upsampling: int) -> None:
    """Raises InputError if the rays do not fill the fine pixels."""
    if len(shifts_steps) < FEWEST_RAYS:
        raise InputError(
            f"{len(shifts_steps)} pixels of the detector lie in the bright disk: {FEWEST_RAYS} are "
            "the fewest; check the pixel, the semiangle and the optic axis"
        )
    if not has_gaps(shifts_steps, upsampling):
        return
    largest = " × ".join(f"{value:.2g}" for value in np.abs(shifts_steps).max(axis=0))
    most = max(times for times in range(1, upsampling) if not has_gaps(shifts_steps, times))
    raise InputError(
        f"upsampling {upsampling}: the rays shift the images by at most {largest} steps of the "
        f"scan, which leaves fine pixels empty: give at most {most}; more defocus or more pixels "
        "in the disk fill more"
    )


def _sum_images(
    scan: FourDData, rays: Rays, shifts_steps: Floats, upsampling: int, on_progress: OnProgress
) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """Reads a scan once.

    Returns:
        The sum of its shifted images, the mean intensity of each pixel in the disk, and which
        positions have counts, `(sy, sx)`.
    """
    sy, sx = scan.shape[:2]
    total = FineImage((sy, sx), upsampling)
    sums = np.zeros(len(shifts_steps))
    recorded = np.zeros((sy, sx), bool)
    for first_row, images in _bands(scan, rays.pixels):
        last_row = first_row + images.shape[1]
        recorded[first_row:last_row] = images.any(axis=0)
        sums += images.sum(axis=(1, 2), dtype=np.float64)
        for image, shift in zip(images, shifts_steps, strict=True):
            total.add(image, (first_row, 0), shift)
        on_progress("images", last_row, sy)
    if not sums.any():
        raise InputError("the bright disk has no counts: check the optic axis and the semiangle")
    return total.values, sums / recorded.sum(), recorded


def _bands(
    scan: FourDData, pixels: npt.NDArray[np.bool_]
) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
    """Yields the first row of each band of whole rows of a scan, and the images of the chosen
    pixels there, `(n, rows, sx)`.
    """
    sy, sx = scan.shape[:2]
    first_row = 0
    of_row: list[npt.NDArray[np.float32]] = []  # from the first column on
    band: list[npt.NDArray[np.float32]] = []
    for rows, columns in pieces(scan):
        patterns = scan.read(rows, columns)
        of_row.append(np.nan_to_num(patterns[:, :, pixels].astype(np.float32)))
        if columns.stop < sx:
            continue
        band.append(np.concatenate(of_row, axis=1))
        of_row = []
        if rows.stop < sy and sum(block.nbytes for block in band) < BAND_BYTES:
            continue
        yield first_row, np.ascontiguousarray(np.moveaxis(np.concatenate(band), -1, 0))
        first_row = rows.stop
        band = []


def _blur(rays: Rays) -> float:
    """Returns the largest difference of the shifts of neighbouring pixels, Å."""
    places = np.full((*rays.pixels.shape, 2), np.nan)
    places[rays.pixels] = rays.shifts_angstrom
    steps = [np.hypot(*np.moveaxis(np.diff(places, axis=axis), -1, 0)) for axis in (0, 1)]
    return float(max(np.nanmax(step) for step in steps))
