"""A sample as one HTML page to look through: a map of the specimen, and the pattern of the position that is pointed at.

The page loads nothing: images are PNGs with a palette, in it as text, patterns tiles of one sheet. Patterns larger than
`LARGEST_TILE` are binned, and of more than fill `LARGEST_SHEET` every k-th along the scan is taken; the page says so.
"""

import base64
import html
import json
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import numpy.typing as npt

from namsa.errors import WorkError
from namsa.physics import virtual_detectors as virtual
from namsa.physics.optics import wavelength_angstrom
from namsa.pixels import UNITS, PixelGrid, density_grid, fills_cell, pattern_grid, potential_grid, scan_grid
from namsa.text import plural
from namsa.view.panels import (
    DARK_FIELD_FROM,
    PATTERN,
    PATTERN_POWER,
    REAL_SPACE,
    VIRTUAL,
    SampleLike,
    caption,
    dark_field,
)

LARGEST_TILE = 128  # pixels of a pattern along an axis
LARGEST_SHEET = 2**25  # pixels of all patterns
DEFLECTION = "RdBu_r"

Image = npt.NDArray[Any]


class Panel(NamedTuple):
    """An image (H, W), its values from `low` to `high` in colours after `power`; without them, from least to most."""

    title: str
    units: str
    image: Image
    frame: PixelGrid
    colours: str = REAL_SPACE
    low: float | None = None
    high: float | None = None
    power: float = 1.0


class Shown(NamedTuple):
    """The patterns that the page has: tiles (m, h, w), their numbers in the sample, the raster they make, if any."""

    tiles: Image
    frame: PixelGrid
    numbers: npt.NDArray[np.intp]
    raster: tuple[int, int] | None
    note: str


def write(sample: SampleLike, path: Path, name: str) -> Path:
    """Write the page of `sample` to `path`. Raises WorkError where the file cannot be written."""
    text = page(sample, name)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WorkError(f"cannot write the page {path}: {error}") from None
    return path


def page(sample: SampleLike, name: str) -> str:
    """The page's HTML, for the sample called `name`."""
    p = sample.provenance
    shown, values = patterns_shown(sample.cbed, p), signals(sample)
    mean = _pattern(
        sample.cbed.mean(axis=0, dtype=np.float64), pattern_grid(p), f"Mean of {plural(len(sample.cbed), 'pattern')}"
    )
    here = _pattern(shown.tiles, shown.frame, "Pattern")
    sheet, columns = _sheet(_indices(here))
    data = {
        "numbers": shown.numbers.tolist(),
        "positions": np.round(np.asarray(p["positions_angstrom"], float)[shown.numbers], 4).tolist(),
        "raster": shown.raster,
        "period": p["extent_angstrom"],
        "columns": columns,
        "tile": shown.tiles.shape[1:],
        "values": [
            {"title": title, "units": units, "numbers": [float(f"{v:.4g}") for v in numbers[shown.numbers]]}
            for title, units, numbers in values
        ],
    }
    parts = {
        "title": html.escape(name),
        "caption": html.escape(caption(p)),
        "maps": "\n".join(_thumbnail(panel) for panel in maps(sample, values)),
        "aperture": f'<circle r="{p["semiangle_mrad"]:g}"/>',
        "here_view": _view(here),
        "here_bar": _bar(here),
        "mean": _png(_indices(mean), PATTERN),
        "mean_title": mean.title,
        "mean_view": _view(mean),
        "mean_bar": _bar(mean),
        "note": html.escape(shown.note),
        "last": str(len(shown.numbers) - 1),
        "sheet": _png(sheet, PATTERN),
        "data": json.dumps(data, ensure_ascii=False).replace("</", "<\\/"),
    }
    text = files("namsa.view").joinpath("viewer.html").read_text(encoding="utf-8")
    return re.sub(r"{{(\w+)}}", lambda found: parts[found[1]], text)


def signals(sample: SampleLike) -> list[tuple[str, str, npt.NDArray[np.float64]]]:
    """What virtual detectors see: (title, units, (n,) values)."""
    p, cbed = sample.provenance, sample.cbed
    angles, semiangle = pattern_grid(p), p["semiangle_mrad"]
    dark, deflection = dark_field(cbed, angles, semiangle), virtual.centre_of_mass(cbed, angles)
    return [
        *([(f"Dark field > {DARK_FIELD_FROM * semiangle:g} mrad", UNITS["cbed"], dark)] if dark is not None else []),
        (f"Bright field < {semiangle:g} mrad", UNITS["cbed"], virtual.bright_field(cbed, angles, semiangle)),
        ("Deflection y", "mrad", deflection[:, 0]),
        ("Deflection x", "mrad", deflection[:, 1]),
    ]


def maps(sample: SampleLike, values: Sequence[tuple[str, str, npt.NDArray[np.float64]]]) -> list[Panel]:
    """Images of the specimen: of the `signals` where the scan is a grid, and of what was simulated."""
    p = sample.provenance
    potential = Panel(
        "Projected potential", UNITS["projected_potential"], sample.projected_potential, potential_grid(p)
    )
    found = [potential._replace(low=0, power=0.5)]  # heavy columns are sharp peaks
    if min(density_grid(p).step) > 0:
        found.append(Panel("Electron density", UNITS["density"], sample.density, density_grid(p)))
    if (scan := scan_grid(p)) is None:
        return found
    shape, wavelength = p["scan_shape"], wavelength_angstrom(p["energy_ev"])
    deflection = np.stack([numbers for _, units, numbers in values if units == "mrad"], axis=-1)
    widest = float(np.abs(deflection).max())
    phase = virtual.integrated_centre_of_mass(
        deflection.reshape(*shape, 2), (scan.step[0], scan.step[1]), wavelength, periodic=fills_cell(scan, p)
    )
    scanned = [
        Panel(title, units, numbers.reshape(shape), scan, VIRTUAL)
        if units != "mrad"
        else Panel(title, units, numbers.reshape(shape), scan, DEFLECTION, -widest, widest)
        for title, units, numbers in values
    ]
    return [*scanned, Panel("Integrated deflection (iCoM)", "rad", phase, scan, VIRTUAL), *found]


def patterns_shown(cbed: Image, provenance: Mapping[str, Any]) -> Shown:
    """The patterns (n, dy, dx) as the page has them; what is left out is said in the note."""
    n, dy, dx = cbed.shape
    binning = -(-max(dy, dx) // LARGEST_TILE)
    h, w = dy // binning, dx // binning
    numbers, raster, every = np.arange(n), provenance.get("scan_shape"), 1
    while len(numbers) * h * w > LARGEST_SHEET:
        every += 1
        numbers = np.arange(n).reshape(raster)[::every, ::every].ravel() if raster else np.arange(n)[::every]
    if raster:
        raster = (-(-raster[0] // every), -(-raster[1] // every))
    tiles = np.stack([_binned(cbed[number], binning) for number in numbers])
    angles = pattern_grid(provenance)
    frame = PixelGrid(
        [step * binning for step in angles.step],
        [origin + step * (binning - 1) / 2 for origin, step in zip(angles.origin, angles.step, strict=True)],
    )
    notes = [f"Patterns are shown in 8 bits, as intensity to the power {PATTERN_POWER:g}, all on one scale."]
    if binning > 1:
        notes.append(f"Here {binning} × {binning} of their {dy} × {dx} pixels are one.")
    if every > 1:
        notes.append(
            f"Of {n} positions {len(numbers)} are here, one in {every}" + (" along y and x." if raster else ".")
        )
    return Shown(tiles, frame, numbers, raster, " ".join(notes))


def _binned(pattern: Image, binning: int) -> Image:
    h, w = (length // binning for length in pattern.shape)
    whole = pattern[: h * binning, : w * binning].reshape(h, binning, w, binning)
    return np.asarray(whole.sum(axis=(1, 3), dtype=np.float32))


def _pattern(image: Image, frame: PixelGrid, title: str) -> Panel:
    return Panel(title, UNITS["cbed"], image, frame, PATTERN, 0.0, None, PATTERN_POWER)


def _ends(panel: Panel) -> tuple[float, float]:
    low = float(panel.image.min()) if panel.low is None else panel.low
    high = float(panel.image.max()) if panel.high is None else panel.high
    return low, high if high > low else low + 1.0


def _indices(panel: Panel) -> npt.NDArray[np.uint8]:
    """The image as numbers of colours."""
    low, high = _ends(panel)
    return np.round(255 * np.clip((panel.image - low) / (high - low), 0, 1) ** panel.power).astype(np.uint8)


def _sheet(tiles: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.uint8], int]:
    """Tiles (m, h, w) side by side, and how many in a row."""
    m, h, w = tiles.shape
    columns = int(np.ceil(np.sqrt(m * h / w)))
    rows = -(-m // columns)
    full = np.zeros((rows * columns, h, w), np.uint8)
    full[:m] = tiles
    return full.reshape(rows, columns, h, w).swapaxes(1, 2).reshape(rows * h, columns * w), columns


def _colours(name: str) -> npt.NDArray[np.uint8]:
    return np.asarray(matplotlib.colormaps[name](np.arange(256), bytes=True)[:, :3])


def _png(indices: npt.NDArray[np.uint8], colours: str) -> str:
    """A data URL of the image (H, W) with a palette (PNG, colour type 3; rows begin with their filter, none)."""
    height, width = indices.shape
    rows = np.zeros((height, width + 1), np.uint8)
    rows[:, 1:] = indices
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", _colours(colours).tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    )
    chunks = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    ]
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode()


def _view(panel: Panel) -> str:
    """The picture's edges as an SVG's viewBox: left, top, width and height, in its units."""
    left, right, bottom, top = panel.frame.extent(panel.image.shape[-2:])
    return f"{left:.6g} {top:.6g} {right - left:.6g} {bottom - top:.6g}"


def _bar(panel: Panel) -> str:
    low, high = (f"{end:.3g}" if abs(end) < 1000 else f"{end:,.0f}" for end in _ends(panel))
    stops = ", ".join("#" + bytes(colour).hex() for colour in _colours(panel.colours)[::17])
    return (
        f'<span class="bar"><span>{low}</span><i style="background:linear-gradient(90deg, {stops})"></i>'
        f"<span>{high}</span> <em>{html.escape(panel.units)}</em></span>"
    )


def _thumbnail(panel: Panel) -> str:
    title, source = html.escape(panel.title), _png(_indices(panel), panel.colours)
    key = re.sub(r"[^a-z]+", "-", panel.title.lower()).strip("-")
    shape = f"--shape:{1 / panel.frame.aspect(panel.image.shape):.4f}"
    return (
        f'<button type="button" data-key="{key}" data-view="{_view(panel)}" aria-pressed="false">'
        f'<img src="{source}" alt="" style="{shape}"><b>{title}</b>{_bar(panel)}</button>'
    )
