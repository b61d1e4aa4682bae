"""The figure of a reconstructed density: the density large, what belongs to it small beside it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from namsa.figures.panels import ERROR, REAL_SPACE, VIRTUAL, image_panel, large_and_small, pattern_panel, styled
from namsa.pixels import PixelGrid

WARNING = "#9e2a2b"
# Colour map of each map that `python -m train reconstruct` writes, and whether it is drawn between its pixels.
MAPS = {
    "density": (REAL_SPACE, True),
    "uncertainty": (ERROR, True),
    "familiarity": (ERROR, False),
    "trust": (ERROR, False),
    "estimate": (REAL_SPACE, True),
    "bright field": (VIRTUAL, True),
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


@styled
def density_figure(
    panels: Sequence[MapPanel],
    title: str,
    *,
    pattern: MeanPattern | None = None,
    # Which places (ny, nx) are hatched, and their pixels in Å. `None` hatches none.
    hatched: tuple[npt.NDArray[np.bool_], PixelGrid] | None = None,
    warning: str = "",  # words behind the title
    one_scale: Sequence[str] = (),  # titles of panels that share one colour scale
) -> Figure:
    """Draws the first panel large, the others and the mean pattern beside it."""
    shared = [panel.image for panel in panels if panel.title in one_scale]
    scale = Normalize(float(np.nanmin(shared)), float(np.nanmax(shared))) if shared else None
    first = panels[0]
    figure, large, beside = large_and_small(first.pixels.aspect(first.image.shape), len(panels) - 1 + bool(pattern))
    figure.suptitle(title, fontsize=11, x=0.008, ha="left", parse_math=False)
    if warning:
        figure.text(0.992, 0.99, warning, fontsize=11, color=WARNING, weight="bold", ha="right", va="top")
    for ax, panel in zip([large, *beside], panels, strict=False):
        norm = scale if panel.title in one_scale else None if panel.unit else Normalize(0, 1)
        image_panel(
            ax, panel.image, panel.pixels, panel.title, panel.unit, cmap=panel.colours, norm=norm, smooth=panel.smooth
        )
        if hatched is not None and hatched[0].any():
            places, grid = hatched
            (dy, dx), (y0, x0), (ny, nx) = grid.step, grid.origin, places.shape
            around = PixelGrid(grid.step, (y0 - dy, x0 - dx))  # so that marks reach the image's edges
            y, x = around.coordinates((ny + 2, nx + 2))
            shown = ax.axis()
            marks = ax.contourf(x, y, np.pad(places, 1, "edge"), levels=(0.5, 1.5), colors="none", hatches=["///"])
            ax.axis(shown)
            marks.set(edgecolor="white", linewidth=0)
    if pattern:
        ax = beside[len(panels) - 1]
        pattern_panel(ax, pattern.pattern, pattern.angles, "Mean pattern", semiangle_mrad=pattern.semiangle_mrad)
    return figure
