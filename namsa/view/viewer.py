"""A sample as one interactive HTML page: a map of the specimen, and the pattern at the position under the pointer.

The page loads nothing: its images are PNGs in its text, and the patterns are tiles of one sheet. Patterns larger than
`MAX_TILE_PIXELS` are binned. If they would fill more than `MAX_SHEET_PIXELS`, only every k-th along the scan is taken.
The page says so.
"""

import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.errors import WorkError
from namsa.files import write_text_atomic
from namsa.physics import virtual_detectors
from namsa.physics.optics import wavelength_angstrom
from namsa.pixels import UNITS, PixelGrid, density_grid, fills_cell, pattern_grid, potential_grid, scan_grid
from namsa.sample import Sample
from namsa.text import plural
from namsa.view.page_images import (
    Image,
    PageImage,
    colour_bar,
    colour_indices,
    image_url,
    pattern_image,
    png_url,
    view_box,
)
from namsa.view.panels import PATTERN, PATTERN_POWER, VIRTUAL
from namsa.view.sample_figure import caption
from namsa.view.signals import Signal, check_drawable, sample_signals

MAX_TILE_PIXELS = 128  # of a pattern, along an axis
MAX_SHEET_PIXELS = 2**25  # of all patterns
DEFLECTION = "RdBu_r"


class PagePatterns(NamedTuple):
    """The patterns that the page shows.

    Attributes:
        tiles: Patterns, perhaps binned, `(m, h, w)`.
        grid: Their pixels, mrad.
        numbers: Their indices in the sample, `(m,)`.
        raster: Rows and columns of the scan that they form; `None` if there is no raster.
        note: What was binned or left out, for the reader.
    """

    tiles: Image
    grid: PixelGrid
    numbers: npt.NDArray[np.intp]
    raster: tuple[int, int] | None
    note: str


def write_page(sample: Sample, path: Path, name: str) -> Path:
    """Writes the page of a sample to `path`, which appears only when it is complete, and returns it.

    Raises:
        InputError: If the provenance does not describe the arrays, or if they hold numbers that are not finite.
        WorkError: If the file cannot be written.
    """
    text = page(sample, name)
    try:
        write_text_atomic(path, text)
    except WorkError as error:
        raise WorkError(f"cannot write the page {path}: {error}") from None
    return path


def page(sample: Sample, name: str) -> str:
    """Returns the page's HTML, with `name` as its title."""
    check_drawable(sample)
    provenance = sample.provenance
    patterns, signals = page_patterns(sample.cbed, provenance), sample_signals(sample)
    title = f"Mean of {plural(len(sample.cbed), 'pattern')}"
    mean = pattern_image(sample.cbed.mean(axis=0, dtype=np.float64), pattern_grid(provenance), title)
    tiles = pattern_image(patterns.tiles, patterns.grid, "Pattern")
    sheet, columns = _sheet(colour_indices(tiles))
    data = _page_data(provenance, patterns, signals, columns)
    parts = {
        "title": html.escape(name),
        "caption": html.escape(caption(provenance)),
        "maps": "\n".join(_thumbnail(image) for image in page_maps(sample, signals)),
        "aperture": f'<circle r="{provenance["semiangle_mrad"]:g}"/>',
        "pattern_view": view_box(tiles),
        "pattern_bar": colour_bar(tiles),
        "mean": image_url(mean),
        "mean_title": mean.title,
        "mean_view": view_box(mean),
        "mean_bar": colour_bar(mean),
        "note": html.escape(patterns.note),
        "last": str(len(patterns.numbers) - 1),
        "sheet": png_url(sheet, PATTERN),
        "data": json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"),
    }
    text = files("namsa.view").joinpath("viewer.html").read_text(encoding="utf-8")
    return re.sub(r"{{(\w+)}}", lambda found: parts[found[1]], text)


def _page_data(
    provenance: Mapping[str, Any], patterns: PagePatterns, signals: Sequence[Signal], columns: int
) -> dict[str, Any]:
    """Returns what the page's script reads, in JSON types; `columns` is the number of tiles in a row of the sheet."""
    positions = np.asarray(provenance["positions_angstrom"], float)[patterns.numbers]
    return {
        "numbers": patterns.numbers.tolist(),
        "positions": np.round(positions, 4).tolist(),
        "raster": patterns.raster,
        "period": provenance["extent_angstrom"],
        "columns": columns,
        "tile": patterns.tiles.shape[1:],
        "values": [
            {"title": title, "units": units, "numbers": [float(f"{v:.4g}") for v in values[patterns.numbers]]}
            for title, units, values in signals
        ],
    }


def page_maps(sample: Sample, signals: Sequence[Signal]) -> list[PageImage]:
    """Returns images of the specimen: of the signals if the scan is a raster, and of what was simulated."""
    provenance = sample.provenance
    # Heavy columns are sharp peaks: on a linear scale nothing else would be visible.
    images = [
        PageImage(
            "Projected potential",
            UNITS["projected_potential"],
            sample.projected_potential,
            potential_grid(provenance),
            low=0,
            power=0.5,
        )
    ]
    if min(density_grid(provenance).step) > 0:
        images.append(PageImage("Electron density", UNITS["density"], sample.density, density_grid(provenance)))
    scan = scan_grid(provenance)
    return images if scan is None else [*_scan_maps(provenance, scan, signals), *images]


def _scan_maps(provenance: Mapping[str, Any], scan: PixelGrid, signals: Sequence[Signal]) -> list[PageImage]:
    """Returns the signals as images of the scan, and the phase from the deflection."""
    shape, wavelength = provenance["scan_shape"], wavelength_angstrom(provenance["energy_ev"])
    deflection = np.stack([signal.values for signal in signals if signal.units == "mrad"], axis=-1)
    widest = float(np.abs(deflection).max())
    phase = virtual_detectors.integrated_centre_of_mass(
        deflection.reshape(*shape, 2), (scan.step[0], scan.step[1]), wavelength, periodic=fills_cell(scan, provenance)
    )
    images = [
        PageImage(title, units, values.reshape(shape), scan, VIRTUAL)
        if units != "mrad"
        else PageImage(title, units, values.reshape(shape), scan, DEFLECTION, -widest, widest)
        for title, units, values in signals
    ]
    return [*images, PageImage("Integrated deflection (iCoM)", "rad", phase, scan, VIRTUAL)]


def page_patterns(cbed: Image, provenance: Mapping[str, Any]) -> PagePatterns:
    """Returns the patterns `(n, dy, dx)` as the page shows them."""
    n, dy, dx = cbed.shape
    binning = min(-(-max(dy, dx) // MAX_TILE_PIXELS), dy, dx)
    h, w = dy // binning, dx // binning
    numbers, raster, every = np.arange(n), provenance.get("scan_shape"), 1
    while len(numbers) * h * w > MAX_SHEET_PIXELS and len(numbers) > 1:
        every += 1
        numbers = np.arange(n).reshape(raster)[::every, ::every].ravel() if raster else np.arange(n)[::every]
    if raster:
        raster = (-(-raster[0] // every), -(-raster[1] // every))
    tiles = np.stack([_binned(cbed[number], binning) for number in numbers])
    angles = pattern_grid(provenance)
    grid = PixelGrid(
        [step * binning for step in angles.step],
        [origin + step * (binning - 1) / 2 for origin, step in zip(angles.origin, angles.step, strict=True)],
    )
    notes = [f"Patterns are shown in 8 bits, as intensity to the power {PATTERN_POWER:g}, all on one scale."]
    if binning > 1:
        notes.append(f"{binning} × {binning} of their {dy} × {dx} pixels are shown as one.")
    if every > 1:
        along = " along y and x." if raster else "."
        notes.append(f"{len(numbers)} of {n} positions are shown, one in {every}{along}")
    return PagePatterns(tiles, grid, numbers, raster, " ".join(notes))


def _binned(pattern: Image, binning: int) -> Image:
    """Returns sums of `binning` × `binning` pixels; rows and columns that do not fill one are left out."""
    h, w = (length // binning for length in pattern.shape)
    whole = pattern[: h * binning, : w * binning].reshape(h, binning, w, binning)
    return np.asarray(whole.sum(axis=(1, 3), dtype=np.float32))


def _sheet(tiles: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.uint8], int]:
    """Returns tiles `(m, h, w)` side by side in one image, and their number per row."""
    m, h, w = tiles.shape
    columns = int(np.ceil(np.sqrt(m * h / w)))
    rows = -(-m // columns)
    full = np.zeros((rows * columns, h, w), np.uint8)
    full[:m] = tiles
    return full.reshape(rows, columns, h, w).swapaxes(1, 2).reshape(rows * h, columns * w), columns


def _thumbnail(image: PageImage) -> str:
    """Returns the HTML of a button that selects a map."""
    title, source = html.escape(image.title), image_url(image)
    key = re.sub(r"[^a-z]+", "-", image.title.lower()).strip("-")
    shape = f"--shape:{1 / image.grid.aspect(image.image.shape):.4f}"
    return (
        f'<button type="button" data-key="{key}" data-view="{view_box(image)}" aria-pressed="false">'
        f'<img src="{source}" alt="" style="{shape}"><b>{title}</b>{colour_bar(image)}</button>'
    )
