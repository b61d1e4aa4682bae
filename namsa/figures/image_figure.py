"""The figure of an image, or of a stack of images on the same pixels."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from namsa.base.pixels import PixelGrid
from namsa.base.text import plural
from namsa.figures.panels import (
    DIFFERENCE,
    REAL_SPACE,
    VIRTUAL,
    image_panel,
    panels,
    pattern_panel,
    styled,
)

MOST_PANELS = 12
_ROW = 4


@styled
def draw(
    stack: npt.NDArray[np.floating],
    pixels: PixelGrid,
    name: str,
    units: tuple[str, str],
    channels: Sequence[str] = (),
) -> Figure:
    """Draws each image of a stack in a panel, all with one scale of values.

    Args:
        stack: `(images, y, x)`.
        pixels: Their pixels.
        name: What they show.
        units: Of lengths and of values.
        channels: What each image is called.

    Returns:
        The figure; of a stack of more than `MOST_PANELS` images the first ones, which the title
        says.
    """
    shown = stack[:MOST_PANELS]
    columns = min(len(shown), _ROW)
    rows = math.ceil(len(shown) / columns)
    aspect = pixels.aspect(stack.shape[1:])
    figure, axes = panels(*(aspect for _ in range(rows)), columns=columns)
    if len(shown) == 1:
        figure.set_size_inches(4.6, 0.6 + 3.4 * min(max(aspect, 0.1), 3))
    if len(stack) > len(shown):
        text = f"{name}: the first {len(shown)} of {plural(len(stack), 'image')}"
        figure.suptitle(text, fontsize=11, x=0.008, ha="left", parse_math=False)
    norm, colours = _scale(shown, units[1])
    for index, (ax, image) in enumerate(zip(axes.flat, shown, strict=False)):
        title = _sentence(name if len(stack) == 1 else f"{name}, {channels[index]}")
        if units[0] == "mrad":
            pattern_panel(ax, image, pixels, title, unit=units[1])
        else:
            image_panel(
                ax, image, pixels, title, units[1], cmap=colours, norm=norm, length_unit=units[0]
            )
    return figure


def _scale(shown: npt.NDArray[np.floating], value_units: str) -> tuple[Normalize, str]:
    """Returns the scale of all values and its colour map."""
    finite = shown[np.isfinite(shown)]
    low = float(finite.min()) if finite.size else 0.0
    high = float(finite.max()) if finite.size else 1.0
    if value_units == "mrad":  # deflections, of both signs
        largest = max(abs(low), abs(high)) or 1.0
        return Normalize(-largest, largest), DIFFERENCE
    colours = VIRTUAL if value_units == "fraction of the beam" else REAL_SPACE
    return Normalize(low, high), colours


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
