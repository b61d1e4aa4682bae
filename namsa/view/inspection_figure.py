"""The figure and the page of an inspected scan: mean pattern with the fitted disk, and its virtual images."""

import base64
import html
import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from namsa.figures.panels import VIRTUAL, image_panel, panels, pattern_panel, styled, write_figure
from namsa.files import write_text_atomic
from namsa.inspection.curl import rotated
from namsa.inspection.inspect import Inspection
from namsa.pixels import PixelGrid, detector_grid

Image = npt.NDArray[Any]

CLIPPED = 0.005  # share of the pixels that are darker than the first colour, and brighter than the last
DEFLECTION = "RdBu_r"

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
    """Writes an inspected scan as a page that loads nothing: pictures, numbers with errors, and notes.

    Raises:
        WorkError: If the file cannot be written.
    """
    picture = io.BytesIO()
    draw_inspection(inspection).savefig(picture, format="png")
    cells = [
        (name, text, quantity.method)
        for (name, text), quantity in zip(
            quantity_rows(inspection), inspection.calibration.quantities.values(), strict=True
        )
    ]
    page = PAGE.format(
        title=html.escape(inspection.recording.name),
        caption=html.escape(caption(inspection)),
        picture=base64.b64encode(picture.getvalue()).decode(),
        rows="".join("<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in row) + "</tr>" for row in cells),
        notes="".join(f"<li>{html.escape(note)}" for note in inspection.calibration.notes),
    )
    write_text_atomic(path, page)


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


def quantity_rows(inspection: Inspection) -> list[tuple[str, str]]:
    """Returns name and value with error of each quantity, as text."""
    return [
        (name, _with_error(quantity.value, quantity.error))
        for name, quantity in inspection.calibration.quantities.items()
    ]


def _with_error(value: Any, error: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        errors = error or (None,) * len(value)
        return ", ".join(_with_error(*pair) for pair in zip(value, errors, strict=True))
    if not error:
        return f"{value:.6g}"
    digits = int(np.clip(1 - np.floor(np.log10(error)), 0, 8))
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def _figure(inspection: Inspection) -> Figure:
    """Returns the figure: patterns and intensities above, deflection and phase-contrast images below."""
    known, images = inspection.calibration, inspection.images
    pixel, step = known.value("pixel_mrad"), known.value("scan_step_angstrom")
    centre = known.value("centre_pixels") or [(n - 1) / 2 for n in inspection.pattern.shape]
    size = pixel or (1.0, 1.0)
    angles = detector_grid(pixel or (1.0, 1.0), centre)
    scan = PixelGrid(step or (1.0, 1.0), (0.0, 0.0))
    shape = inspection.recording.shape[:2]
    figure, (above, below) = panels(
        max(angles.aspect(inspection.pattern.shape), scan.aspect(shape)), scan.aspect(shape)
    )
    figure.suptitle(
        f"{Path(inspection.recording.name).name}  ·  {caption(inspection)}",
        fontsize=10,
        x=0.008,
        ha="left",
        parse_math=False,
    )
    total = float(inspection.pattern.sum()) or 1.0
    title = f"Mean of {shape[0] * shape[1]:,} patterns"
    pattern_panel(above[0], np.maximum(inspection.pattern, 0) / total, angles, title, unit="fraction of its sum")
    if not pixel:
        above[0].set_xlabel("pixels")
    if inspection.disk is None or images is None:
        return figure
    disk = inspection.disk
    turn, stretch = disk.axis_deg, np.sqrt(disk.ratio)
    above[0].add_patch(
        Ellipse(
            (0, 0),
            2 * disk.radius * stretch * size[1],
            2 * disk.radius / stretch * size[0],
            angle=turn,
            fill=False,
            color="deepskyblue",
            lw=1,
        )
    )
    rotation, flip = known.value("rotation_deg") or 0.0, bool(known.value("mirrored"))
    deflection = rotated(images.deflection, rotation, flip) * np.sqrt(size[0] * size[1])
    deflection = deflection - np.median(deflection, axis=(0, 1))
    unit = "mrad" if pixel else "pixels"
    total_of_pattern = float((images.bright + images.dark).mean()) or 1.0
    _scan_panel(above[1], images.bright / total_of_pattern, scan, "Bright field", "of the mean sum")
    _scan_panel(above[2], images.dark / total_of_pattern, scan, "Dark field", "of the mean sum")
    _text_panel(above[3], inspection)
    for ax, values, along in zip(below, np.moveaxis(deflection, -1, 0), "yx", strict=False):
        widest = float(np.quantile(np.abs(values), 1 - CLIPPED)) or 1.0
        image_panel(ax, values, scan, f"Deflection {along}", unit, cmap=DEFLECTION, norm=Normalize(-widest, widest))
    if inspection.phase is not None:
        calibrated = known.value("energy_ev") and step and pixel
        _scan_panel(below[2], inspection.phase, scan, "Integrated deflection (iCoM)", "rad" if calibrated else "a.u.")
    if inspection.corrected is not None:
        _scan_panel(below[3], inspection.corrected, scan, "Bright field, shifts corrected", "of the mean")
    if not step:
        for ax in (*above[1:3], *below):
            ax.set_xlabel("steps")
    return figure


def _scan_panel(ax: Axes, image: Image, grid: PixelGrid, title: str, unit: str) -> None:
    low, high = np.quantile(image, (CLIPPED, 1 - CLIPPED))
    image_panel(ax, image, grid, title, unit, cmap=VIRTUAL, norm=Normalize(low, high if high > low else low + 1))


def _text_panel(ax: Axes, inspection: Inspection) -> None:
    """Writes the numbers into an empty panel."""
    lines = [f"{name}: {text}" for name, text in quantity_rows(inspection)]
    lines.append(f"hot or dead pixels: {len(inspection.bad_pixels)}")
    ax.text(-0.05, 1, "\n".join(lines), transform=ax.transAxes, va="top", fontsize=6, linespacing=1.5, parse_math=False)
