"""The figure and the page of an inspected scan: mean pattern with the fitted disk, and its virtual images."""

import base64
import html
import io
import re
from pathlib import Path

import numpy as np
import PIL.Image
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from namsa.figures.density_figure import MapPanel
from namsa.figures.panels import (
    DIFFERENCE,
    VIRTUAL,
    image_panel,
    large_and_small,
    pattern_panel,
    styled,
    write_figure,
)
from namsa.files import make_folder, open_atomic, write_text_atomic
from namsa.inspection.curl import rotated
from namsa.inspection.inspect import Inspection
from namsa.io.calibration_file import readable
from namsa.pixels import PixelGrid, detector_grid

CLIPPED = 0.005  # share of the pixels that are darker than the first colour, and brighter than the last

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body{{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1200px;padding:0 1em}}img{{max-width:100%}}
table{{border-collapse:collapse}}td,th{{padding:.2em .8em .2em 0;text-align:left;vertical-align:top}}
td:nth-child(2){{white-space:nowrap}}h1{{font-size:1.5em;overflow-wrap:anywhere}}</style>
<h1>{title}</h1><p>{caption}</p><img alt="pictures of the scan" src="data:image/png;base64,{picture}">
<h2>Calibration</h2><table><tr><th>quantity<th>value<th>how it was found</tr>{rows}</table>
<h2>Notes</h2><ul>{notes}</ul></html>
"""


@styled
def draw_inspection(inspection: Inspection, path: Path | str | None = None) -> Figure:
    """Draws an inspected scan.

    Args:
        inspection: What `namsa.inspect` returned.
        path: Where to write the picture; its ending names the format (.png, .pdf, .svg). Default: nowhere.

    Returns:
        The figure.

    Raises:
        InputError: If Matplotlib does not know the format.
        WorkError: If the file cannot be written.
    """
    figure = _figure(inspection)
    if path is not None:
        write_figure(figure, Path(path))
    return figure


def write_inspection_page(inspection: Inspection, path: Path) -> None:
    """Writes an inspected scan as a page of pictures and numbers that loads nothing. Raises WorkError if it cannot."""
    picture = io.BytesIO()
    draw_inspection(inspection).savefig(picture, format="png")
    quantities = inspection.calibration.quantities.values()
    rows = zip(readable(inspection.calibration), (quantity.method for quantity in quantities), strict=True)
    page = PAGE.format(
        title=html.escape(inspection.recording.name),
        caption=html.escape(caption(inspection)),
        picture=base64.b64encode(picture.getvalue()).decode(),
        rows="".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in (*row, method)) + "</tr>" for row, method in rows
        ),
        notes="".join(f"<li>{html.escape(note)}" for note in inspection.calibration.notes),
    )
    write_text_atomic(path, page)


def write_scan_images(inspection: Inspection, folder: Path) -> None:
    """Writes mean pattern and images of the scan as TIFF of float32, over others. Raises WorkError if it cannot."""
    images = {"mean pattern": inspection.pattern} | {panel.title: panel.image for panel in scan_images(inspection)}
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
    shown = f", variance over mean {ratio:.3g}" if ratio is not None and facts["whole_numbers"] else ""
    return (
        f"{facts['format']}, {facts['dtype']}: {sy} × {sx} patterns of {dy} × {dx} pixels; "
        f"mean sum {facts['sum_per_pattern']:.4g}{shown}"
    )


def scan_images(inspection: Inspection) -> list[MapPanel]:
    """Returns the images of the scan, the one that shows the specimen best first; none without a disk."""
    known, images = inspection.calibration, inspection.images
    if images is None:
        return []
    pixel, step = known.value("pixel_mrad"), known.value("scan_step_angstrom")
    grid, mean = PixelGrid(step or (1.0, 1.0), (0.0, 0.0)), float((images.bright + images.dark).mean()) or 1.0
    rotation, flip = known.value("rotation_deg") or 0.0, bool(known.value("mirrored"))
    deflection = rotated(images.deflection, rotation, flip) * (np.sqrt(pixel[0] * pixel[1]) if pixel else 1.0)
    deflection = deflection - np.median(deflection, axis=(0, 1))
    angle = "mrad" if pixel else "pixels"
    phase_unit = "rad" if known.value("energy_ev") and step and pixel else "a.u."
    found = [
        ("Bright field, shifts corrected", inspection.corrected, "of the mean"),
        ("Integrated deflection (iCoM)", inspection.phase, phase_unit),
        ("Bright field", images.bright / mean, "of the mean sum"),
        ("Dark field", images.dark / mean, "of the mean sum"),
        *((f"Deflection {along}", deflection[..., axis], angle) for axis, along in enumerate("yx")),
    ]
    return [
        MapPanel(title, image, grid, unit, DIFFERENCE if title.startswith("Deflection") else VIRTUAL)
        for title, image, unit in found
        if image is not None
    ]


def _figure(inspection: Inspection) -> Figure:
    """Returns the figure: the best image large, the others and the mean pattern beside it, numbers below."""
    known = inspection.calibration
    pixel, step = known.value("pixel_mrad"), known.value("scan_step_angstrom")
    centre = known.value("centre_pixels") or [(n - 1) / 2 for n in inspection.pattern.shape]
    size = pixel or (1.0, 1.0)
    angles, panels = detector_grid(size, centre), scan_images(inspection)
    shape = inspection.recording.shape[:2]
    aspect = panels[0].pixels.aspect(shape) if panels else angles.aspect(inspection.pattern.shape)
    figure, large, beside = large_and_small(aspect, len(panels))
    mean = beside[len(panels) - 1] if panels else large
    name = Path(inspection.recording.name).name
    figure.suptitle(f"{name}  ·  {caption(inspection)}", fontsize=11, x=0.008, ha="left", parse_math=False)
    for ax, panel in zip([large, *beside], panels, strict=False):
        low, high = np.quantile(panel.image, (CLIPPED, 1 - CLIPPED))
        if panel.colours == DIFFERENCE:
            low, high = -max(abs(low), abs(high)), max(abs(low), abs(high))
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
            length_unit="Å" if step else "steps",
        )
    total = float(inspection.pattern.sum()) or 1.0
    title = f"Mean of {shape[0] * shape[1]:,} patterns"
    pattern_panel(mean, np.maximum(inspection.pattern, 0) / total, angles, title, unit="fraction of its sum")
    if not pixel:
        mean.set_xlabel("pixels")
    if inspection.disk is not None:
        disk, stretch = inspection.disk, np.sqrt(inspection.disk.ratio)
        axes = 2 * disk.radius * stretch * size[1], 2 * disk.radius / stretch * size[0]
        mean.add_patch(Ellipse((0, 0), *axes, angle=disk.axis_deg, fill=False, color="deepskyblue", lw=1))
    lines = [f"{title}: {text}" for title, text in readable(known)]
    lines.append(f"hot or dead pixels: {len(inspection.bad_pixels)}")
    figure.supxlabel("  ·  ".join(lines), fontsize=10, x=0.008, ha="left", wrap=True, parse_math=False)
    return figure
