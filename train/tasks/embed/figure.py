"""Figures of latent spaces: points, patterns that are decoded where the points are, and maps of a
scan.
"""

from collections.abc import Callable, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle
from matplotlib.typing import ColorType

from namsa.base.arrays import Array
from namsa.base.pixels import PixelGrid
from namsa.figures.panels import PATTERN, PATTERN_POWER, image_panel, letter_panels, styled

from ...reports.figures import category_panel, entitle

Decode = Callable[[Array], Array]  # from latent numbers (n, latent) to patterns (n, dy, dx)

CELLS = 9  # of the plane, along each axis, in which a pattern is drawn
MOST_POINTS = 4000  # that are drawn
CENTRAL = (0.5, 99.5)  # percent of the points between which the plane is drawn
NAMED = 12  # groups in a legend, at most


@styled
def latent_space_figure(
    latents: Array, groups: Array, names: Sequence[str], decode: Decode
) -> Figure:
    """Draws points `(n, latent)` by the numbers of their groups, `(n,)`, and the patterns decoded
    from them.
    """
    figure = Figure(figsize=(11.5, 5.4), layout="constrained")
    points, mosaic = figure.subplots(1, 2)
    _plane(points, mosaic, latents, groups, names, decode)
    letter_panels([points, mosaic])
    return figure


@styled
def embedding_figure(
    latents: Array, clusters: Array, rmse: Array, pixels: PixelGrid, decode: Decode, title: str
) -> Figure:
    """Draws the latent numbers of a scan `(sy, sx, latent)`: maps, clusters and rms errors above,
    the plane below.
    """
    flat = latents.reshape(-1, latents.shape[-1])
    shape = clusters.shape
    count = int(clusters.max()) + 1
    aspect = min(max(pixels.aspect(shape), 0.1), 2.0)
    heights = (0.4 + 2.3 * aspect, 5.0)
    figure = Figure(
        figsize=(11.5, 0.4 + sum(heights)), layout=ConstrainedLayoutEngine(rect=(0, 0, 0.97, 1))
    )
    entitle(figure, title)
    grid = figure.add_gridspec(2, 4, height_ratios=heights)
    above = [figure.add_subplot(grid[0, column]) for column in range(4)]
    bar = category_panel(above[0], clusters, _colours(count), pixels, "Clusters")
    bar.set_yticks(range(count) if count <= NAMED else [0, count - 1])
    for ax, index in zip(above[1:3], _leading(flat), strict=False):
        image_panel(ax, latents[..., index], pixels, f"Latent number {index + 1}", "")
    image_panel(above[3], rmse, pixels, "Error of decoded patterns", "rms", cmap="cividis")
    if latents.shape[-1] == 1:
        above[2].axis("off")
    below = figure.add_subplot(grid[1, :2]), figure.add_subplot(grid[1, 2:])
    names = [f"cluster {cluster}" for cluster in range(count)]
    _plane(*below, flat, clusters.ravel(), names, decode)
    letter_panels([*above, *below])
    return figure


def _plane(
    points: Axes, mosaic: Axes, latents: Array, groups: Array, names: Sequence[str], decode: Decode
) -> None:
    """Draws the plane of the two latent numbers that vary most: points by group, and decoded
    patterns.
    """
    axes = _leading(latents)
    colours = _colours(len(names))
    plane = latents[:, axes]
    if len(axes) < 2:
        plane = np.column_stack([plane, np.zeros(len(latents))])
    _draw_points(points, plane, groups, names, colours)
    low, high = np.percentile(plane, CENTRAL, axis=0)
    high = np.where(high > low, high, low + 1)
    edges = np.linspace(low, high, CELLS + 1)
    cells = _cells(plane, low, high)
    patterns = decode(np.array([latents[indices].mean(axis=0) for indices in cells.values()]))
    for (cell, indices), pattern in zip(cells.items(), patterns, strict=True):
        colour = colours[int(np.bincount(groups[indices]).argmax())]
        _draw_pattern(mosaic, pattern, edges, cell, colour)
    mosaic.set_title("Patterns decoded from the mean of each cell’s points")
    height, width = patterns.shape[1:]
    for ax in (points, mosaic):
        ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        ax.set_xlabel(f"latent number {axes[0] + 1}")
        ax.set_ylabel(f"latent number {axes[1] + 1}" if len(axes) == 2 else "")
    mosaic.set_box_aspect(height / width)
    points.set_box_aspect(height / width)


def _draw_points(
    points: Axes,
    plane: Array,
    groups: Array,
    names: Sequence[str],
    colours: Sequence[ColorType],
) -> None:
    """Draws points of a plane, `(n, 2)`, by group."""
    shown = np.linspace(0, len(plane) - 1, min(len(plane), MOST_POINTS)).astype(int)
    for group, name in enumerate(names):
        at = plane[shown][groups[shown] == group]
        label = name if group < NAMED else None
        points.scatter(at[:, 0], at[:, 1], s=5, lw=0, alpha=0.7, color=colours[group], label=label)
    points.legend(loc="best", markerscale=3, handletextpad=0.2, frameon=True, framealpha=0.8)
    points.set_title("Latent space")


def _cells(plane: Array, low: Array, high: Array) -> dict[tuple[int, int], Array]:
    """Returns the indices of the points in each cell of a plane that has some, by (column, row)."""
    cell_of = np.clip(((plane - low) / (high - low) * CELLS).astype(int), 0, CELLS - 1)
    cells = {}
    for column, row in np.unique(cell_of, axis=0).tolist():
        cells[column, row] = np.flatnonzero((cell_of == (column, row)).all(axis=1))
    return cells


def _draw_pattern(
    mosaic: Axes, pattern: Array, edges: Array, cell: tuple[int, int], colour: ColorType
) -> None:
    """Draws a pattern in a cell, with a frame in the colour of the points there."""
    column, row = cell
    left, right = edges[column : column + 2, 0]
    bottom, top = edges[row : row + 2, 1]
    image = (pattern / (pattern.max() or 1.0)) ** PATTERN_POWER
    mosaic.imshow(
        image, extent=(left, right, bottom, top), cmap=PATTERN, vmin=0, vmax=1, aspect="auto"
    )
    frame = Rectangle((left, bottom), right - left, top - bottom, fill=False, ec=colour, lw=1.4)
    mosaic.add_patch(frame)


def _leading(latents: Array) -> list[int]:
    """Returns the indices of the two latent numbers that vary most, or of the only one."""
    order: list[int] = np.argsort(-latents.var(axis=0), kind="stable")[:2].tolist()
    return order


def _colours(count: int) -> list[ColorType]:
    """Returns colours that can be told apart, as far as so many can."""
    if count <= 20:
        palette = matplotlib.colormaps["tab10" if count <= 10 else "tab20"]
        return [palette(index) for index in range(count)]
    return list(matplotlib.colormaps["turbo"](np.linspace(0, 1, count)))
