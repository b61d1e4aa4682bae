"""Images for HTML pages that load nothing: PNGs as data URLs, with colour bars and coordinates."""

import base64
import io
from typing import NamedTuple

import matplotlib
import numpy as np
import numpy.typing as npt
import PIL.Image

from namsa.base.arrays import Array
from namsa.base.markup import Element, element
from namsa.base.pixels import UNITS, PixelGrid
from namsa.figures.interpolation import FINE, interpolated
from namsa.figures.panels import PATTERN, PATTERN_POWER, REAL_SPACE

LEAST_SPAN = 1e-6  # of a scale of colours, in units of its first value


class PageImage(NamedTuple):
    """An image, or a stack of images on one scale, and how its values become colours."""

    title: str
    units: str  # units of the values
    image: Array  # `(..., ny, nx)`
    grid: PixelGrid  # its pixels
    colours: str = REAL_SPACE  # name of the colour map
    low: float | None = None  # value of the first colour; `None` for the least one
    high: float | None = None  # value of the last colour; `None` for the largest one
    power: float = 1.0  # exponent of the scale between them
    # draw it with band-limited interpolation, unless its pixels are fine anyway
    smooth: bool = False


def pattern_image(
    image: Array, grid: PixelGrid, title: str, units: str = UNITS["cbed"]
) -> PageImage:
    """Returns a pattern, or a stack of patterns, on the power scale of all figures."""
    return PageImage(title, units, image, grid, PATTERN, 0.0, None, PATTERN_POWER)


def colour_indices(image: PageImage) -> npt.NDArray[np.uint8]:
    """Returns the values as indices of colours, in the shape of the image.

    NaN has the first colour.
    """
    low, high = limits(image)
    levels = np.round(255 * np.clip((image.image - low) / (high - low), 0, 1) ** image.power)
    return np.nan_to_num(levels).astype(np.uint8)


def png_url(
    indices: npt.NDArray[np.uint8], colours: str, transparent: npt.NDArray[np.bool_] | None = None
) -> str:
    """Returns a data URL of a PNG with a palette.

    Args:
        indices: Indices of colours, `(ny, nx)`.
        transparent: Which pixels are, `(ny, nx)`; the others do without the first colour, for which
            they get the second. `None` for none.
    """
    options = {}
    if transparent is not None:
        indices = np.where(transparent, 0, np.maximum(indices, 1)).astype(np.uint8)
        options = {"transparency": 0}
    image = PIL.Image.fromarray(indices)
    image.putpalette(palette(colours).tobytes())
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=9, **options)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def image_url(image: PageImage) -> str:
    """Returns a data URL of the image `(ny, nx)`, transparent where it is NaN."""
    if image.smooth and max(image.image.shape) <= FINE:
        low, high = limits(image)  # of the pixels, not of what lies between them
        image = image._replace(image=interpolated(image.image), low=low, high=high)
    unknown = np.isnan(image.image)
    return png_url(colour_indices(image), image.colours, unknown if unknown.any() else None)


def view_box(image: PageImage) -> str:
    """Returns the image's left, top, width and height, in its units, as the viewBox of an SVG."""
    left, right, bottom, top = image.grid.extent(image.image.shape[-2:])
    return f"{left:.6g} {top:.6g} {right - left:.6g} {bottom - top:.6g}"


def colour_bar(image: PageImage) -> Element:
    """Returns a colour bar with its limits and units."""
    low, high = limits_text(image)
    stops = ", ".join("#" + bytes(colour).hex() for colour in palette(image.colours)[::17])
    return element(
        "span",
        {"class": "bar"},
        element("span", {}, low),
        element("i", {"style": f"background:linear-gradient(90deg, {stops})"}),
        element("span", {}, high),
        " ",
        element("em", {}, image.units),
    )


def limits_text(image: PageImage) -> tuple[str, str]:
    """Returns the values of the first and of the last colour, as text."""
    low, high = limits(image)
    return _limit_text(low), _limit_text(high)


def _limit_text(value: float) -> str:
    text = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return text.replace("-", "−") if value < 0 else text


def limits(image: PageImage) -> tuple[float, float]:
    """Returns the values of the first and of the last colour; NaN counts for neither."""
    low = image.low
    high = image.high
    if low is None or high is None:
        least, largest = _extremes(image.image)
        low = least if low is None else low
        high = largest if high is None else high
    if not high > low:
        high = low + max(1.0, LEAST_SPAN * abs(low))
    return low, high


def _extremes(values: Array) -> tuple[float, float]:
    """Returns the least and the largest of some values, without NaN; zeros if there are none."""
    known = values[~np.isnan(values)]
    if not known.size:
        return 0.0, 0.0
    return float(known.min()), float(known.max())


def palette(name: str) -> npt.NDArray[np.uint8]:
    """Returns a colour map's 256 colours, `(256, 3)`."""
    return np.asarray(matplotlib.colormaps[name](np.arange(256), bytes=True)[:, :3])
