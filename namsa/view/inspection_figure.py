"""The figure and the page of an inspected scan: mean pattern, fitted disk and virtual images."""

import base64
import io
import re
from pathlib import Path

import numpy as np
import PIL.Image
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from namsa.base.arrays import Floats
from namsa.base.files import make_folder, open_atomic, write_text_atomic
from namsa.base.pixels import PixelGrid, detector_grid
from namsa.figures.density_figure import MapPanel
from namsa.figures.document import (
    BulletList,
    Document,
    DocumentSection,
    Paragraph,
    Picture,
    Table,
    page_html,
)
from namsa.figures.panels import (
    DIFFERENCE,
    VIRTUAL,
    image_panel,
    large_and_small,
    letter_panels,
    pattern_panel,
    styled,
    write_figure,
)
from namsa.inspection.curl import rotated
from namsa.inspection.inspection import Inspection
from namsa.inspection.virtual_images import VirtualImages
from namsa.io.calibration_file import readable

# share of the pixels that are darker than the first colour, and brighter than the last
CLIPPED = 0.005
REVERSED = -0.3  # correlation of bright and dark field, below which a line explains the contrast


@styled
def draw_inspection(inspection: Inspection, path: Path | str | None = None) -> Figure:
    """Draws an inspected scan.

    Args:
        inspection: What `namsa.inspect` returned.
        path: Where to write the picture; its ending names the format (.png, .pdf, .svg). Default:
            nowhere.

    Returns:
        The figure.

    Raises:
        InputError: If Matplotlib does not know the format.
        WorkError: If the file cannot be written.

    Example:
        >>> found = namsa.inspect(sample.stack, energy_ev=200e3, semiangle_mrad=20)
        >>> figure = namsa.draw_inspection(found)
    """
    figure = _figure(inspection)
    if path is not None:
        write_figure(figure, Path(path))
    return figure


def write_inspection_page(inspection: Inspection, path: Path) -> None:
    """Writes an inspected scan as a page of pictures and numbers that loads nothing.

    Raises:
        WorkError: If the page cannot be written.
    """
    picture = io.BytesIO()
    draw_inspection(inspection).savefig(picture, format="png")
    source = f"data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()}"
    calibration = inspection.calibration
    rows = []
    quantities = calibration.quantities.values()
    for (title, text), quantity in zip(readable(calibration), quantities, strict=True):
        rows.append((title, text, quantity.method))
    line = contrast_line(inspection)
    contrast = (Paragraph(f"{line[0].upper()}{line[1:]}."),) if line else ()
    document = Document(
        title=Path(inspection.recording.name).name,
        blocks=(
            Paragraph(caption(inspection)),
            Picture(source, alt="pictures of the scan"),
            *contrast,
            DocumentSection(
                "Calibration", (Table(("quantity", "value", "method"), rows, text_columns=3),)
            ),
            DocumentSection("Notes", (BulletList(calibration.notes),)),
        ),
    )
    write_text_atomic(path, page_html(document))


def write_scan_images(inspection: Inspection, folder: Path) -> None:
    """Writes the mean pattern and the images of a scan as TIFF of float32, over others.

    Raises:
        WorkError: If one cannot be written.
    """
    images = {"mean pattern": inspection.pattern}
    for panel in scan_images(inspection):
        images[panel.title] = panel.image
    make_folder(folder)
    for title, values in images.items():
        name = re.sub(r"[^a-z]+", "_", title.lower()).strip("_")
        with open_atomic(folder / f"{name}.tif") as file:
            PIL.Image.fromarray(np.asarray(values, np.float32)).save(file, format="TIFF")


def caption(inspection: Inspection) -> str:
    """Returns what the scan is, in one line."""
    sy, sx, dy, dx = inspection.recording.shape
    facts = inspection.facts
    ratio = facts["variance_over_mean"]
    shown = ""
    if ratio is not None and facts["whole_numbers"]:
        shown = f", variance over mean {ratio:.3g}"
    return (
        f"{facts['format']}, {facts['dtype']}: {sy} × {sx} patterns of {dy} × {dx} pixels; "
        f"mean sum {facts['sum_per_pattern']:.4g}{shown}"
    )


def contrast_line(inspection: Inspection) -> str:
    """Returns a line about the contrast of a bright field with shifts corrected: where it is that
    of the dark field reversed, or that of the recorded bright field; nothing where it is neither.
    """
    images = inspection.images
    if images is None or inspection.corrected is None:
        return ""
    correlation = _correlation(inspection.corrected, images.dark)
    if correlation > -REVERSED and _correlation(images.bright, images.dark) < REVERSED:
        return (
            "the bright field with shifts corrected is bright where the dark field is, as at atoms "
            f"(correlation {correlation:.2f}); the bright field that was recorded is dark there"
        )
    if correlation > REVERSED:
        return ""
    return (
        "the bright field with shifts corrected has reversed contrast: it is dark where the dark "
        f"field is bright, as at atoms (correlation \N{MINUS SIGN}{-correlation:.2f})"
    )


def _correlation(first: Floats, second: Floats) -> float:
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(np.corrcoef(first.ravel(), second.ravel())[0, 1])


def scan_images(inspection: Inspection) -> list[MapPanel]:
    """Returns the images of the scan, the one that shows the specimen best first.

    There are none without a disk.
    """
    known = inspection.as_read
    images = inspection.images
    if images is None:
        return []
    pixel = known.value("pixel_mrad")
    step = known.value("scan_step_angstrom")
    grid = PixelGrid(step or (1.0, 1.0), (0.0, 0.0))
    mean = float((images.bright + images.dark).mean()) or 1.0
    panels = []
    if inspection.corrected is not None:
        title = "Bright field, shifts corrected"
        panels.append(MapPanel(title, inspection.corrected, grid, "of the mean", VIRTUAL))
    if inspection.phase is not None:
        unit = "rad" if known.value("energy_ev") and step and pixel else "a.u."
        title = "Integrated deflection (iCoM)"
        panels.append(MapPanel(title, inspection.phase, grid, unit, VIRTUAL))
    for title, image in (("Bright field", images.bright), ("Dark field", images.dark)):
        panels.append(MapPanel(title, image / mean, grid, "of the mean sum", VIRTUAL))
    deflection = _deflection(inspection, images)
    unit = "mrad" if pixel else "pixels"
    for axis, name in enumerate("yx"):
        title = f"Deflection {name}"
        panels.append(MapPanel(title, deflection[..., axis], grid, unit, DIFFERENCE))
    return panels


def _deflection(inspection: Inspection, images: VirtualImages) -> Floats:
    """Returns the deflection about its median along y and x of the scan, `(sy, sx, 2)`.

    It is in mrad or, if the detector's pixel is not known, in pixels.
    """
    known = inspection.as_read
    pixel = known.value("pixel_mrad")
    rotation = known.value("rotation_deg") or 0.0
    deflection = rotated(images.deflection, rotation, bool(known.value("mirrored")))
    if pixel:
        deflection = deflection * np.sqrt(pixel[0] * pixel[1])
    return np.asarray(deflection - np.median(deflection, axis=(0, 1)))


def _figure(inspection: Inspection) -> Figure:
    """Returns the figure of an inspected scan.

    The best image is large, the others and the mean pattern are beside it, numbers below.
    """
    known = inspection.as_read
    pixel = known.value("pixel_mrad")
    size = pixel or (1.0, 1.0)
    ny, nx = inspection.pattern.shape
    centre = known.value("centre_pixels") or [(ny - 1) / 2, (nx - 1) / 2]
    angles = detector_grid(size, centre)
    panels = scan_images(inspection)
    aspect = angles.aspect(inspection.pattern.shape)
    if panels:
        aspect = panels[0].pixels.aspect(inspection.recording.shape[:2])
    figure, large, beside = large_and_small(aspect, len(panels))
    name = Path(inspection.recording.name).name
    title = f"{name}  ·  {caption(inspection)}"
    figure.suptitle(title, fontsize=11, x=0.008, ha="left", parse_math=False)
    length_unit = "Å" if known.value("scan_step_angstrom") else "steps"
    for ax, panel in zip([large, *beside], panels, strict=False):
        _draw_panel(ax, panel, length_unit)
    mean = beside[len(panels) - 1] if panels else large
    _draw_mean(mean, inspection, angles)
    if not pixel:
        mean.set_xlabel("pixels")
    letter_panels([large, *beside])
    lines = [f"{title}: {text}" for title, text in readable(inspection.calibration)]
    lines.append(f"hot or dead pixels: {len(inspection.bad_pixels)}")
    contrast = contrast_line(inspection)
    if contrast:
        lines.append(contrast)
    text = "  ·  ".join(lines)
    figure.supxlabel(text, fontsize=10, x=0.008, ha="left", wrap=True, parse_math=False)
    return figure


def _draw_panel(ax: Axes, panel: MapPanel, length_unit: str) -> None:
    """Draws an image of the scan; one of differences on a scale about zero."""
    low, high = np.quantile(panel.image, (CLIPPED, 1 - CLIPPED))
    if panel.colours == DIFFERENCE:
        high = max(abs(low), abs(high))
        low = -high
    norm = Normalize(low, high if high > low else low + 1)
    image_panel(
        ax,
        panel.image,
        panel.pixels,
        panel.title,
        panel.unit,
        cmap=panel.colours,
        norm=norm,
        smooth=True,
        length_unit=length_unit,
    )


def _draw_mean(ax: Axes, inspection: Inspection, angles: PixelGrid) -> None:
    """Draws the mean pattern with the edge of the fitted disk."""
    total = float(inspection.pattern.sum()) or 1.0
    sy, sx = inspection.recording.shape[:2]
    title = f"Mean of {sy * sx:,} patterns"
    pattern = np.maximum(inspection.pattern, 0) / total
    pattern_panel(ax, pattern, angles, title, unit="fraction of its sum")
    disk = inspection.disk
    if disk is None:
        return
    stretch = np.sqrt(disk.ratio)
    step_y, step_x = angles.step
    width = 2 * disk.radius * stretch * step_x
    height = 2 * disk.radius / stretch * step_y
    style: dict[str, object] = {"fill": False, "color": "deepskyblue", "lw": 1}
    ax.add_patch(Ellipse((0, 0), width, height, angle=disk.axis_deg, **style))
