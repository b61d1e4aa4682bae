"""Measurements of a scan: its calibration, statistics and images."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from namsa.base.arrays import Floats
from namsa.base.pixels import PixelGrid, detector_grid
from namsa.inspection.bad_pixels import BadPixel
from namsa.inspection.disk import Disk
from namsa.inspection.survey import Survey
from namsa.inspection.virtual_images import VirtualImages
from namsa.io.calibration_file import CalibrationFile, readable, write_calibration
from namsa.io.recording import Recording


@dataclass(frozen=True, repr=False)
class Inspection:
    """Measurements of a scan.

    Attributes:
        facts: What the file holds and how its pixels behave, as JSON values.
        calibration: The numbers, with errors and methods, of the scan as it is stored.
        as_read: The same of the patterns as they are read, which are others for a part of the
            detector and for binned pixels (`namsa.io.window`).
        recording: The scan; its patterns can be read only while its file is open.
        survey: Statistics of its pixels.
        pattern: Mean pattern without bad pixels, `(dy, dx)`.
        bad_pixels: Hot, dead and missing pixels.
        disk: The bright disk; `None` if there is none.
        images: Virtual images; `None` without a disk.
        phase: Integrated deflection, `(sy, sx)`, rad, or in arbitrary units where energy, step or
            pixel are not known; `None` without a disk.
        corrected: Bright field from images shifted back, relative to its mean, `(sy, sx)`; `None`
            if their shifts could not be measured.
    """

    facts: dict[str, Any]
    calibration: CalibrationFile
    as_read: CalibrationFile
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
        quantities = [f"{title} {text}" for title, text in readable(self.calibration)]
        return f"<Inspection of {self.recording.name}: {', '.join(quantities) or 'nothing'}>"

    def _repr_html_(self) -> str:
        """Returns the HTML that a notebook shows: mean pattern, the best image of the scan, and the
        numbers.
        """
        from namsa.figures.notebook import described_html  # Matplotlib is loaded where it is needed
        from namsa.figures.page_images import PageImage, pattern_image

        pixel = self.as_read.value("pixel_mrad")
        middle = [(n - 1) / 2 for n in self.pattern.shape]
        centre = self.as_read.value("centre_pixels") or middle
        pattern_pixels = detector_grid(pixel or (1.0, 1.0), centre)
        mean = pattern_image(self.pattern, pattern_pixels, "Mean pattern", "")
        images = [(mean, "mrad" if pixel else "pixels")]
        title = "Bright field, shifts corrected"
        best = self.corrected
        if best is None:
            title = "Integrated deflection"
            best = self.phase
        if best is not None:
            step = self.as_read.value("scan_step_angstrom")
            positions = PixelGrid(step or (1.0, 1.0), (0.0, 0.0))
            image = PageImage(title, "", best, positions, "gray")
            images.append((image, "Å" if step else "steps"))
        return described_html("Inspection", self.recording.name, images, readable(self.calibration))

    def as_json(self) -> dict[str, Any]:
        """Returns facts and calibration as JSON values."""
        return {**self.calibration.as_json(), **self.facts}

    def save(self, path: Path | str) -> None:
        """Writes the calibration file, which `--calibration` of `namsa-train reconstruct`
        takes.

        Raises:
            WorkError: If the file cannot be written.
        """
        write_calibration(self.calibration, Path(path))
