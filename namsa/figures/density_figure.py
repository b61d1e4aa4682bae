"""The figure of a reconstructed density: the density large, what belongs to it small beside it."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from namsa.base.pixels import PixelGrid
from namsa.figures.panels import (
    ERROR,
    REAL_SPACE,
    VIRTUAL,
    image_panel,
    large_and_small,
    letter_panels,
    pattern_panel,
    styled,
)

CAPTION_CHARACTERS_PER_INCH = 15  # of 7 points
WARNING = "#9e2a2b"
# Colour map of each map that `namsa-train reconstruct` writes, and whether it is drawn between
# its pixels.
MAPS = {
    "density": (REAL_SPACE, True),
    "uncertainty": (ERROR, True),
    "familiarity": (ERROR, False),
    "trust": (ERROR, False),
    "estimate": (REAL_SPACE, True),
    "bright field": (VIRTUAL, True),
}


# Marks on the colour bars of maps without a unit: where bad values end, and usual or good ones
# begin (docs/glossary.md).
SCALE_MARKS: Mapping[str, tuple[tuple[float, str], ...]] = {
    "Familiarity": ((0.05, "bad < 0.05"), (0.5, "usual 0.5"), (1.0, "1")),
    "Trust": ((0.12, "bad < 0.12"), (0.47, "good > 0.47"), (1.0, "1")),
}


class MapPanel(NamedTuple):
    """An image and how it is drawn."""

    title: str
    image: npt.NDArray[np.floating]  # (ny, nx)
    pixels: PixelGrid  # Å
    unit: str  # an image without a unit is a fraction, drawn from 0 to 1
    colours: str = REAL_SPACE
    smooth: bool = False  # with band-limited interpolation and a scale bar


class MeanPattern(NamedTuple):
    """The mean pattern of a scan."""

    pattern: npt.NDArray[np.floating]  # (dy, dx), fraction of the beam
    angles: PixelGrid  # its pixels, mrad
    semiangle_mrad: float


def map_panel(name: str, image: npt.NDArray[np.floating], pixels: PixelGrid, unit: str) -> MapPanel:
    """Returns a map of a reconstruction as it is drawn."""
    return MapPanel(name.capitalize(), image, pixels, unit, *MAPS[name])


class Hatched(NamedTuple):
    """Places that are hatched in every map."""

    unfamiliar: npt.NDArray[np.bool_]  # `///`, (ny, nx)
    edges: npt.NDArray[np.bool_]  # `...`, where the others are not, (ny, nx)
    pixels: PixelGrid  # Å

    @property
    def kinds(self) -> npt.NDArray[np.int_]:
        """0 where nothing is hatched, 1 on edges, 2 at unfamiliar places, (ny, nx)."""
        return np.where(self.unfamiliar, 2, self.edges.astype(int))


@styled
def density_figure(
    panels: Sequence[MapPanel],
    title: str,
    *,
    pattern: MeanPattern | None = None,
    hatched: Hatched | None = None,  # `None` hatches none
    warning: str = "",  # words behind the title
    one_scale: Sequence[Sequence[str]] = (),  # groups of titles that share one colour scale
    caption: str = "",  # words below: the resolution, and which values are usual
) -> Figure:
    """Draws the first panel large, the others and the mean pattern beside it."""
    first_panel = panels[0]
    aspect = first_panel.pixels.aspect(first_panel.image.shape)
    figure, large, beside = large_and_small(aspect, len(panels) - 1 + bool(pattern))
    figure.suptitle(title, fontsize=11, x=0.008, ha="left", parse_math=False)
    if warning:
        figure.text(
            0.992, 0.99, warning, fontsize=11, color=WARNING, weight="bold", ha="right", va="top"
        )
    if caption:
        width = int(CAPTION_CHARACTERS_PER_INCH * figure.get_figwidth())
        figure.supxlabel(
            textwrap.fill(caption, width), fontsize=7, x=0.008, ha="left", parse_math=False
        )
    scales = _shared_scales(panels, one_scale)
    for ax, panel in zip([large, *beside], panels, strict=False):
        bar = image_panel(
            ax,
            panel.image,
            panel.pixels,
            panel.title,
            panel.unit,
            cmap=panel.colours,
            norm=scales.get(panel.title) or _own_scale(panel),
            smooth=panel.smooth,
        )
        marks = SCALE_MARKS.get(panel.title)
        if marks:
            bar.set_ticks([value for value, _ in marks], labels=[words for _, words in marks])
        if hatched is not None and hatched.kinds.any():
            _hatch(ax, hatched)
    if pattern:
        pattern_panel(
            beside[len(panels) - 1],
            pattern.pattern,
            pattern.angles,
            "Mean pattern",
            semiangle_mrad=pattern.semiangle_mrad,
        )
    letter_panels([large, *beside])
    return figure


def _shared_scales(
    panels: Sequence[MapPanel], groups: Sequence[Sequence[str]]
) -> dict[str, Normalize]:
    """Returns the colour scales of panels that share one with others, by title."""
    scales: dict[str, Normalize] = {}
    for titles in groups:
        images = [panel.image for panel in panels if panel.title in titles]
        if images:
            low = min(float(np.nanmin(image)) for image in images)
            high = max(float(np.nanmax(image)) for image in images)
            scales |= dict.fromkeys(titles, Normalize(low, high))
    return scales


def _own_scale(panel: MapPanel) -> Normalize | None:
    """Returns the colour scale of a fraction; `None` for that of the panel's own values."""
    return None if panel.unit else Normalize(0, 1)


def _hatch(ax: Axes, hatched: Hatched) -> None:
    """Hatches some places of a map."""
    step_y, step_x = hatched.pixels.step
    origin_y, origin_x = hatched.pixels.origin
    ny, nx = hatched.unfamiliar.shape
    # one pixel more at each edge, so that marks reach the image's edges
    around = PixelGrid(hatched.pixels.step, (origin_y - step_y, origin_x - step_x))
    y, x = around.coordinates((ny + 2, nx + 2))
    shown = ax.axis()
    padded = np.pad(hatched.kinds, 1, "edge")
    marks = ax.contourf(x, y, padded, levels=(0.5, 1.5, 2.5), colors="none", hatches=["...", "///"])
    ax.axis(shown)
    marks.set(edgecolor="white", linewidth=0)
