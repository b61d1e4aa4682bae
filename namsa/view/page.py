"""An interactive HTML page of a scan: maps, the pattern at the position under the pointer, and a virtual detector.

The page loads nothing. Its images are PNGs in its text, and its patterns are numbers (`namsa.view.page_tiles`), from
which its script (`viewer.js`) computes the image of a virtual detector that the reader draws on a pattern.
"""

import base64
import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.errors import WorkError
from namsa.figures.page_images import PageImage, colour_bar, image_url, limits, palette, view_box
from namsa.figures.panels import PATTERN, PATTERN_POWER, VIRTUAL
from namsa.figures.sample_figure import Signal
from namsa.files import write_text_atomic
from namsa.pixels import PixelGrid
from namsa.view.page_overlay import Overlay
from namsa.view.page_tiles import Tiles

IFRAME_HEIGHT = 820  # CSS pixels

ROUNDING = 1e-6  # of an image's values, float32


@dataclass(frozen=True)
class PageUnits:
    """Units of what a page shows."""

    scan: str  # of positions
    angle: str  # of the detector's pixels
    intensity: str  # of the patterns


@dataclass(frozen=True, eq=False)
class PageContent:
    """What a page shows of a scan."""

    title: str  # title
    caption: str  # what the scan is, in a line
    note: str  # what was reduced or assumed
    units: PageUnits  # units
    tiles: Tiles  # patterns
    brightest: float  # value of the last colour of a pattern
    numbers: npt.NDArray[np.intp]  # their numbers in the scan, `(m,)`
    positions: npt.NDArray[np.float64]  # their positions (y, x), `(m, 2)`, in units of the scan
    # Rows and columns that they form, and their pixels; `None` if they form no raster.
    raster: tuple[tuple[int, int], PixelGrid] | None
    period: Sequence[float] | None  # period of the specimen (y, x); `None` if it has none
    mean: PageImage  # mean of all patterns
    semiangle: float | None  # radius of the aperture, in units of the angle; `None` if it is not known
    disk: float  # outer radius of the virtual detector at first
    maps: Sequence[PageImage]  # images of the specimen
    signals: Sequence[Signal]  # values per position, `(m,)` each
    overlays: Sequence[Overlay] = ()  # images to show over the maps


@dataclass(frozen=True)
class Page:
    """An interactive page: write it to a file, or let a notebook show it.

    Attributes:
        text: Its HTML.
    """

    text: str

    @property
    def bytes(self) -> int:
        """Size of the page as a file."""
        return len(self.text.encode())

    def save(self, path: Path | str) -> Path:
        """Writes the page to `path`, which appears only when it is complete, and returns it.

        Raises:
            WorkError: If the file cannot be written.
        """
        path = Path(path)
        try:
            write_text_atomic(path, self.text)
        except WorkError as error:
            raise WorkError(f"cannot write the page {path}: {error}") from None
        return path

    def __repr__(self) -> str:
        """Returns the size of the page, not its text."""
        return f"<Page: {self.bytes / 1e6:.1f} MB>"

    def _repr_html_(self) -> str:
        """Returns the page in a frame, which a notebook shows without a server."""
        return (
            f'<iframe srcdoc="{html.escape(self.text)}" width="100%" height="{IFRAME_HEIGHT}" '
            'style="border:0" title="Patterns of a scan"></iframe>'
        )


def render(content: PageContent) -> Page:
    """Returns the page of a scan."""
    step = content.tiles.grid.step[0], content.tiles.grid.step[1]
    tile = PageImage(
        "Pattern",
        content.units.intensity,
        np.zeros(content.tiles.halves.shape[1:]),
        content.tiles.grid,
        PATTERN,
        0.0,
        content.brightest,
        PATTERN_POWER,
    )
    resources, limit = files("namsa.view"), _limit(content)
    parts = {
        "title": html.escape(content.title),
        "caption": html.escape(content.caption),
        "maps": "\n".join([*_virtual_thumbnail(content), *(_thumbnail(image) for image in content.maps)]),
        "overlays": "\n".join(_overlay_option(overlay) for overlay in content.overlays),
        "no_overlay": "" if content.overlays else "hidden",
        "scan_units": html.escape(content.units.scan),
        "angle_units": html.escape(content.units.angle),
        "aperture": "" if content.semiangle is None else f'<circle r="{content.semiangle:g}"/>',
        "circle": "" if content.semiangle is None else "The thin circle is the aperture.",
        "limit": "" if limit is None else f'<circle class="limit" r="{limit:g}"/>',
        "dashed": "" if limit is None else "The dashed circle is the simulation's band limit.",
        "step": f"{min(step) / 2:.3g}",
        "power": f"{PATTERN_POWER:g}",
        "pattern_view": view_box(tile),
        "pattern_bar": colour_bar(tile),
        "mean": image_url(content.mean),
        "mean_title": html.escape(content.mean.title),
        "mean_view": view_box(content.mean),
        "mean_bar": colour_bar(content.mean),
        "note": html.escape(content.note),
        "last": str(len(content.numbers) - 1),
        "patterns": content.tiles.packed(),
        "data": json.dumps(_page_data(content), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"),
        "script": resources.joinpath("viewer.js").read_text(encoding="utf-8"),
    }
    text = resources.joinpath("viewer.html").read_text(encoding="utf-8")
    return Page(re.sub(r"{{(\w+)}}", lambda found: parts[found[1]], text))


def _page_data(content: PageContent) -> dict[str, Any]:
    """Returns what the page's script reads, in JSON types."""
    tiles = content.tiles
    readings = [*content.signals, *(overlay.signal for overlay in content.overlays)]
    return {
        "numbers": content.numbers.tolist(),
        "positions": np.round(content.positions, 4).tolist(),
        "raster": content.raster and content.raster[0],
        "period": content.period,
        "tile": tiles.halves.shape[1:],
        "exponents": tiles.exponents.tolist(),
        "step": [float(step) for step in tiles.grid.step],
        "origin": [float(origin) for origin in tiles.grid.origin],
        "limit": _limit(content),
        "units": {"scan": content.units.scan, "angle": content.units.angle, "intensity": content.units.intensity},
        "brightest": content.brightest,
        "power": PATTERN_POWER,
        "detector": {"y": 0, "x": 0, "inner": 0, "outer": float(f"{content.disk:.3g}")},
        "colours": {
            name: base64.b64encode(palette(name).tobytes()).decode()
            for name in dict.fromkeys((PATTERN, VIRTUAL, *(image.colours for image in content.maps)))
        },
        "values": [{"title": title, "units": units, "numbers": _readings(values)} for title, units, values in readings],
    }


def _readings(values: npt.NDArray[Any]) -> list[float | None]:
    """Returns values with four digits; what is 0 but for rounding beside the largest of its image is 0."""
    least = ROUNDING * np.abs(values).max(where=np.isfinite(values), initial=0)
    return [float(f"{v:.4g}") * (abs(v) > least) if np.isfinite(v) else None for v in values]


def _limit(content: PageContent) -> float | None:
    """Returns the band limit of simulated patterns, mrad; `None` if it is not known, or the detector ends before it."""
    grid = content.tiles.grid
    return float(f"{grid.limit:.4g}") if grid.emptiness(content.tiles.halves.shape[1:]) else None


def _virtual_thumbnail(content: PageContent) -> list[str]:
    """Returns the button of the virtual detector's image, which the script draws; none without a raster."""
    if content.raster is None:
        return []
    shape, grid = content.raster
    empty = PageImage("Virtual detector", content.units.intensity, np.zeros(shape, np.uint8), grid, VIRTUAL)
    return [_thumbnail(empty)]


def _thumbnail(image: PageImage) -> str:
    """Returns the HTML of a button that selects a map."""
    title, source = html.escape(image.title), image_url(image)
    key = re.sub(r"[^a-z]+", "-", image.title.lower()).strip("-")
    shape, (low, high) = f"--shape:{1 / image.grid.aspect(image.image.shape):.4f}", limits(image)
    return (
        f'<button type="button" data-key="{key}" data-view="{view_box(image)}" data-colours="{image.colours}" '
        f'data-low="{low:.6g}" data-high="{high:.6g}" data-power="{image.power:g}" aria-pressed="false">'
        f'<img src="{source}" alt="" style="{shape}"><b>{title}</b>{colour_bar(image)}</button>'
    )


def _overlay_option(overlay: Overlay) -> str:
    """Returns the HTML of a choice of overlay; its image and its colour bar are read by the script."""
    image = overlay.image
    return (
        f'<option value="{html.escape(image.title.lower())}" data-view="{view_box(image)}" '
        f'data-source="{image_url(image)}" data-bar="{html.escape(colour_bar(image))}">'
        f"{html.escape(image.title)}</option>"
    )
