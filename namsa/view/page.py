"""An interactive HTML page of a scan: maps, the pattern at the position under the pointer, and a
virtual detector.

The page loads nothing. Its images are PNGs in its text, and its patterns are numbers
(`namsa.view.page_tiles`), from which its scripts (`viewer.js`, `by_hand.js`) compute the image of a
virtual detector that the reader draws on a pattern, and the deflection for a rotation that is set
by hand.
"""

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
import numpy.typing as npt

from namsa.base.arrays import Array
from namsa.base.errors import WorkError
from namsa.base.files import write_text_atomic
from namsa.base.markup import Element, Node, Verbatim, element, fill, to_html
from namsa.base.pixels import PixelGrid
from namsa.figures.page_images import PageImage, colour_bar, image_url, limits, palette, view_box
from namsa.figures.panels import PATTERN, PATTERN_POWER, VIRTUAL
from namsa.figures.sample_figure import Signal
from namsa.view.page_by_hand import ByHand, as_json
from namsa.view.page_overlay import Overlay
from namsa.view.page_tiles import Tiles

IFRAME_HEIGHT = 820  # CSS pixels

SCRIPTS = ("viewer.js", "by_hand.js")
ROUNDING = 1e-6  # of an image's values, float32


@dataclass(frozen=True)
class PageUnits:
    """Units of what a page shows."""

    scan: str  # of positions
    angle: str  # of the detector's pixels
    intensity: str  # of the patterns


@dataclass(frozen=True, eq=False)
class PageContent:
    """Content of the page of a scan."""

    title: str
    caption: str  # what the scan is, in a line
    note: str  # what was reduced or assumed
    units: PageUnits
    tiles: Tiles  # patterns
    brightest: float  # value of the last colour of a pattern
    numbers: npt.NDArray[np.intp]  # their numbers in the scan, `(m,)`
    positions: npt.NDArray[np.float64]  # their positions (y, x), `(m, 2)`, in units of the scan
    # Rows and columns that they form, and their pixels; `None` if they form no raster.
    raster: tuple[tuple[int, int], PixelGrid] | None
    period: Sequence[float] | None  # period of the specimen (y, x); `None` if it has none
    mean: PageImage  # mean of all patterns
    # Radius of the aperture, in units of the angle; `None` if it is not known.
    semiangle: float | None
    disk: float  # outer radius of the virtual detector at first
    maps: Sequence[PageImage]  # images of the specimen
    signals: Sequence[Signal]  # values per position, `(m,)` each
    overlays: Sequence[Overlay] = ()  # images to show over the maps
    by_hand: ByHand | None = None  # what the reader may set; `None` for a simulated sample


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
        attributes = {
            "srcdoc": self.text,
            "width": "100%",
            "height": str(IFRAME_HEIGHT),
            "style": "border:0",
            "title": "Patterns of a scan",
        }
        return to_html(element("iframe", attributes))


def render(content: PageContent) -> Page:
    """Returns the page of a scan."""
    resources = files("namsa.view")
    template = resources.joinpath("viewer.html").read_text(encoding="utf-8")
    scripts = [resources.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS]
    data = json.dumps(_page_data(content), ensure_ascii=False, allow_nan=False)
    values: dict[str, Node | Sequence[Node]] = {
        "title": content.title,
        "caption": content.caption,
        "scan_units": content.units.scan,
        "angle_units": content.units.angle,
        "note": content.note,
        "last": str(len(content.numbers) - 1),
        "step": f"{min(content.tiles.grid.step) / 2:.3g}",
        "power": f"{PATTERN_POWER:g}",
        "patterns": content.tiles.packed(),
        "data": Verbatim(data.replace("<", "\\u003c")),  # so that no text ends its element
        "script": Verbatim("".join(scripts)),
        "no_hand": "hidden" if content.by_hand is None else "",
        **_pattern_values(content),
        **_map_values(content),
        **_circle_values(content),
    }
    return Page(fill(template, values))


def _pattern_values(content: PageContent) -> dict[str, Node]:
    """Returns what the template shows of a pattern and of their mean."""
    pattern = PageImage(
        "Pattern",
        content.units.intensity,
        np.zeros(content.tiles.halves.shape[1:]),
        content.tiles.grid,
        PATTERN,
        0.0,
        content.brightest,
        PATTERN_POWER,
    )
    return {
        "pattern_view": view_box(pattern),
        "pattern_bar": colour_bar(pattern),
        "mean": image_url(content.mean),
        "mean_title": content.mean.title,
        "mean_view": view_box(content.mean),
        "mean_bar": colour_bar(content.mean),
    }


def _map_values(content: PageContent) -> dict[str, Node | Sequence[Node]]:
    """Returns what the template shows of the maps and of the images over them."""
    maps = [_thumbnail(image) for image in content.maps]
    if content.raster is not None:
        maps.insert(0, _virtual_thumbnail(content.units, *content.raster))
    return {
        "maps": maps,
        "overlays": [_overlay_option(overlay) for overlay in content.overlays],
        "no_overlay": "" if content.overlays else "hidden",
    }


def _circle_values(content: PageContent) -> dict[str, Node | Sequence[Node]]:
    """Returns the circles on the patterns, and the sentences that explain them."""
    values: dict[str, Node | Sequence[Node]] = dict.fromkeys(
        ("aperture", "circle", "limit", "dashed"), ""
    )
    if content.semiangle is not None:
        values["aperture"] = element("circle", {"r": f"{content.semiangle:g}"})
        values["circle"] = "The thin circle is the aperture."
    limit = _limit(content)
    if limit is not None:
        values["limit"] = element("circle", {"class": "limit", "r": f"{limit:g}"})
        values["dashed"] = "The dashed circle is the simulation's band limit."
    return values


def _page_data(content: PageContent) -> dict[str, object]:
    """Returns what the page's script reads, in JSON types."""
    tiles = content.tiles
    units = content.units
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
        "units": {"scan": units.scan, "angle": units.angle, "intensity": units.intensity},
        "brightest": content.brightest,
        "power": PATTERN_POWER,
        "detector": {"y": 0, "x": 0, "inner": 0, "outer": float(f"{content.disk:.3g}")},
        "colours": _colour_maps(content),
        "values": _signal_values(content),
        "hand": as_json(content.by_hand),
    }


def _colour_maps(content: PageContent) -> dict[str, str]:
    """Returns the colours of the maps that are used, 256 × 3 bytes in base64, by their name."""
    names = [PATTERN, VIRTUAL, *(image.colours for image in content.maps)]
    colours = {}
    for name in dict.fromkeys(names):
        colours[name] = base64.b64encode(palette(name).tobytes()).decode()
    return colours


def _signal_values(content: PageContent) -> list[dict[str, object]]:
    """Returns the values per position of the signals and of the overlays."""
    signals = [*content.signals, *(overlay.signal for overlay in content.overlays)]
    rows: list[dict[str, object]] = []
    for title, units, values in signals:
        rows.append({"title": title, "units": units, "numbers": four_digits(values)})
    return rows


def four_digits(values: Array) -> list[float | None]:
    """Returns values with four digits, `None` for those that are not finite.

    A value that is 0 but for rounding, beside the largest one, is 0.
    """
    least = ROUNDING * np.abs(values).max(where=np.isfinite(values), initial=0)
    rounded: list[float | None] = []
    for value in values:
        if not np.isfinite(value):
            rounded.append(None)
        elif abs(value) <= least:
            rounded.append(0.0)
        else:
            rounded.append(float(f"{value:.4g}"))
    return rounded


def _limit(content: PageContent) -> float | None:
    """Returns the band limit of simulated patterns, mrad.

    `None` if it is not known, or if the detector ends before it.
    """
    grid = content.tiles.grid
    if grid.emptiness(content.tiles.halves.shape[1:]):
        return float(f"{grid.limit:.4g}")
    return None


def _virtual_thumbnail(units: PageUnits, shape: tuple[int, int], grid: PixelGrid) -> Element:
    """Returns the button of the virtual detector's image, which the script draws."""
    empty = np.zeros(shape, np.uint8)
    return _thumbnail(PageImage("Virtual detector", units.intensity, empty, grid, VIRTUAL))


def _thumbnail(image: PageImage) -> Element:
    """Returns a button that selects a map."""
    low, high = limits(image)
    attributes = {
        "type": "button",
        "data-key": re.sub(r"[^a-z]+", "-", image.title.lower()).strip("-"),
        "data-view": view_box(image),
        "data-colours": image.colours,
        "data-low": f"{low:.6g}",
        "data-high": f"{high:.6g}",
        "data-power": f"{image.power:g}",
        "aria-pressed": "false",
    }
    shape = f"--shape:{1 / image.grid.aspect(image.image.shape):.4f}"
    picture = element("img", {"src": image_url(image), "alt": "", "style": shape})
    return element("button", attributes, picture, element("b", {}, image.title), colour_bar(image))


def _overlay_option(overlay: Overlay) -> Element:
    """Returns a choice of overlay, whose image and colour bar are read by the script."""
    image = overlay.image
    attributes = {
        "value": image.title.lower(),
        "data-view": view_box(image),
        "data-source": image_url(image),
        "data-bar": to_html(colour_bar(image)),
    }
    return element("option", attributes, image.title)
