"""Images for HTML pages that load nothing: PNGs as data URLs, with colour bars and coordinates."""

import base64
import html
import io
from typing import NamedTuple

import matplotlib
import numpy as np
import numpy.typing as npt
import PIL.Image

from namsa.arrays import Array
from namsa.figures.interpolation import FINE, interpolated
from namsa.figures.panels import PATTERN, PATTERN_POWER, REAL_SPACE
from namsa.pixels import UNITS, PixelGrid


class PageImage(NamedTuple):
    """An image, or a stack of images on one scale, and how its values become colours."""

    title: str  # title
    units: str  # units of the values
    image: Array  # `(..., ny, nx)`
    grid: PixelGrid  # its pixels
    colours: str = REAL_SPACE  # name of the colour map
    low: float | None = None  # value of the first colour; `None` for the least one
    high: float | None = None  # value of the last colour; `None` for the largest one
    power: float = 1.0  # exponent of the scale between them
    smooth: bool = False  # draw it with band-limited interpolation, unless its pixels are fine anyway


def pattern_image(image: Array, grid: PixelGrid, title: str, units: str = UNITS["cbed"]) -> PageImage:
    """Returns a pattern, or a stack of patterns, on the power scale of all figures."""
    return PageImage(title, units, image, grid, PATTERN, 0.0, None, PATTERN_POWER)


def colour_indices(image: PageImage) -> npt.NDArray[np.uint8]:
    """Returns the values as indices of colours, in the shape of the image; NaN has the first colour."""
    low, high = limits(image)
    levels = np.round(255 * np.clip((image.image - low) / (high - low), 0, 1) ** image.power)
    return np.nan_to_num(levels).astype(np.uint8)


def png_url(indices: npt.NDArray[np.uint8], colours: str, transparent: npt.NDArray[np.bool_] | None = None) -> str:
    """Returns a data URL of a PNG with a palette.

    Args:
        indices: Indices of colours, `(ny, nx)`.
        transparent: Which pixels are, `(ny, nx)`; the others do without the first colour, for which they get the
            second. `None` for none.
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
    """Returns the image's edges as the viewBox of an SVG: left, top, width and height, in its units."""
    left, right, bottom, top = image.grid.extent(image.image.shape[-2:])
    return f"{left:.6g} {top:.6g} {right - left:.6g} {bottom - top:.6g}"


def colour_bar(image: PageImage) -> str:
    """Returns the HTML of a colour bar with its limits and units."""
    low, high = limits_text(image)
    stops = ", ".join("#" + bytes(colour).hex() for colour in palette(image.colours)[::17])
    return (
        f'<span class="bar"><span>{low}</span><i style="background:linear-gradient(90deg, {stops})"></i>'
        f"<span>{high}</span> <em>{html.escape(image.units)}</em></span>"
    )


def limits_text(image: PageImage) -> tuple[str, str]:
    """Returns the values of the first and of the last colour, as text."""
    low, high = (f"{end:.3g}" if abs(end) < 1000 else f"{end:,.0f}" for end in limits(image))
    return low, high


def limits(image: PageImage) -> tuple[float, float]:
    """Returns the values of the first and of the last colour; NaN counts for neither."""
    known = image.image[~np.isnan(image.image)] if image.low is None or image.high is None else image.image
    low = (float(known.min()) if known.size else 0.0) if image.low is None else image.low
    high = (float(known.max()) if known.size else 0.0) if image.high is None else image.high
    return low, high if high > low else low + 1.0


def palette(name: str) -> npt.NDArray[np.uint8]:
    """Returns a colour map's 256 colours, `(256, 3)`."""
    return np.asarray(matplotlib.colormaps[name](np.arange(256), bytes=True)[:, :3])
