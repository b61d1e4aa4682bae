"""Panels of figures, in one style: patterns and images with axes, colour bars and marks.

Patterns are drawn over the scattering angle in mrad, with intensity on a power scale: the dark
field is a thousand times fainter than the bright disk. Images are drawn over the cell in Å, with y
downwards as in the arrays.
"""

import io
import itertools
import math
import string
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle
from matplotlib.patheffects import AbstractPathEffect, withStroke
from matplotlib.ticker import LogFormatterSciNotation
from mpl_toolkits.axes_grid1.anchored_artists import AnchoredSizeBar

from namsa.base.arrays import Array, Floats
from namsa.base.errors import InputError, WorkError
from namsa.base.files import open_atomic
from namsa.base.pixels import PixelGrid
from namsa.figures.interpolation import FINE, FINER, interpolated

STYLE = {
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.frameon": False,
    "savefig.dpi": 120,
}
# Colour maps that people with any colour vision read, also in print: all but the last get lighter
# evenly.
REAL_SPACE = "viridis"
PATTERN = "magma"
VIRTUAL = "gray"
ERROR = "cividis"
DIFFERENCE = "RdBu_r"
PATTERN_POWER = 0.3
_SURROUNDINGS_ANGSTROM = 2.0  # of a small scan, on each side
MARKS = ("A", "B", "C")
MAX_ASPECT = 20.0
TALLEST_ROW = 4.0  # inches, of the two rows beside a large panel

P = ParamSpec("P")
T = TypeVar("T")


class NotebookFigure(Figure):
    """A figure that a notebook shows, too, where pyplot was not imported, which would register all
    figures.
    """

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=STYLE["savefig.dpi"])
        return file.getvalue()


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """Returns `draw` with this module's Matplotlib settings, which are restored afterwards."""

    @wraps(draw)
    def inner(*args: P.args, **kwargs: P.kwargs) -> T:
        with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]
            return draw(*args, **kwargs)

    return inner


def panels(*aspects: float, columns: int = 4) -> tuple[Figure, Array]:
    """Returns a figure of empty panels.

    Args:
        aspects: Ratio of height to width of the images, one per row. Beyond 1:20, panels stop to
            grow or shrink.

    Returns:
        The figure, and its panels as an array of `Axes`, `(rows, columns)`.
    """
    aspects = tuple(min(max(aspect, 1 / MAX_ASPECT), MAX_ASPECT) for aspect in aspects)
    size = (11.5 * columns / 4, 0.3 + sum(2.2 * aspect + 0.5 for aspect in aspects))
    figure = NotebookFigure(figsize=size, layout="constrained")
    axes = figure.subplots(len(aspects), columns, squeeze=False, height_ratios=aspects)
    for ax in axes.flat:
        ax.axis("off")
    return figure, axes


def large_and_small(aspect: float, small: int) -> tuple[Figure, Axes, list[Axes]]:
    """Returns a figure of one large panel, and of small ones in two rows beside it.

    Args:
        aspect: Ratio of height to width of the images. Tall images are drawn narrower, so that a
            picture fits a screen.
    """
    aspect = min(max(aspect, 1 / MAX_ASPECT), MAX_ASPECT)
    columns = math.ceil(small / 2)
    size = 2.9 * (2.2 + columns), 0.4 + 2 * min(2.2 * aspect + 0.5, TALLEST_ROW)
    figure = NotebookFigure(figsize=size, layout="constrained")
    places = figure.add_gridspec(2, 1 + columns, width_ratios=(2.2, *(1 for _ in range(columns))))
    beside = [
        figure.add_subplot(places[row, column])
        for row in (0, 1)
        for column in range(1, columns + 1)
    ]
    for ax in beside:
        ax.axis("off")
    return figure, figure.add_subplot(places[:, 0]), beside


def pattern_panel(
    ax: Axes,
    pattern: Array,  # `(dy, dx)`, fraction of the beam
    angles: PixelGrid,  # its pixels, mrad
    title: str,
    *,
    # radius of the circle that marks the aperture, mrad; `None` for no circle
    semiangle_mrad: float | None = None,
    unit: str = "fraction of the beam",
) -> None:
    """Draws a pattern on axes in mrad.

    A dashed circle is the band limit of a simulation, if pixels lie beyond it.
    """
    brightest = float(pattern.max())
    if not brightest > 0:
        brightest = 1.0
    norm = PowerNorm(PATTERN_POWER, vmin=0, vmax=brightest)
    bar = _draw(ax, pattern, angles, title, ("mrad", unit), cmap=PATTERN, norm=norm)
    decade = int(np.floor(np.log10(brightest)))
    bar.set_ticks([0, *(10.0**n for n in range(decade - 3, decade + 1))])
    bar.ax.yaxis.set_major_formatter(LogFormatterSciNotation())
    ax.autoscale(False)  # circles may be larger than the detector
    if semiangle_mrad is not None:
        ax.add_patch(Circle((0, 0), semiangle_mrad, fill=False, color="deepskyblue", lw=1))
    if angles.emptiness(pattern.shape):
        ax.add_patch(Circle((0, 0), angles.limit, fill=False, color="white", lw=0.8, ls="--"))
        ax.set_xlabel(f"mrad; dashed: band limit, {angles.limit:.1f} mrad")


def image_panel(
    ax: Axes,
    image: Array,  # `(ny, nx)`
    grid: PixelGrid,  # its pixels, Å
    title: str,
    unit: str,
    *,
    cmap: str = REAL_SPACE,  # name of the colour map
    # from values to colours; default: linear from the least to the largest value
    norm: Normalize | None = None,
    smooth: bool = False,  # draw it with band-limited interpolation, and with a scale bar
    length_unit: str = "Å",
) -> Colorbar:
    """Draws an image on axes in units of length, and returns its colour bar."""
    # of the pixels, not of what lies between them
    norm = norm or Normalize(np.nanmin(image), np.nanmax(image))
    units = (length_unit, unit)
    if not smooth:
        return _draw(ax, image, grid, title, units, cmap=cmap, norm=norm)
    drawn = image
    pixels = grid
    if max(image.shape) <= FINE:
        drawn = interpolated(image)
        pixels = grid.finer(FINER)
    bar = _draw(ax, drawn, pixels, title, units, cmap=cmap, norm=norm, interpolation="bilinear")
    left, right, _, _ = grid.extent(image.shape)
    scale_bar(ax, right - left, length_unit)
    return bar


def scale_bar(ax: Axes, width: float, unit: str) -> None:
    """Draws a bar of 1, 2 or 5 times a power of ten, at most a third of the image wide."""
    decade = 10.0 ** math.floor(math.log10(width / 3))
    length = max(step * decade for step in (1, 2, 5) if step * decade <= width / 3)
    bar = AnchoredSizeBar(
        ax.transData,
        length,
        f"{length:g} {unit}",
        "lower left",
        color="white",
        frameon=False,
        sep=3,
        pad=0.6,
        size_vertical=width / 150,
        label_top=True,
    )
    outline = [withStroke(linewidth=2, foreground="black")]
    for artist in (bar.txt_label.get_children()[0], bar.size_bar.get_children()[0]):
        artist.set_path_effects(outline)
    ax.add_artist(bar)


def letter_panels(axes: Sequence[Axes]) -> None:
    """Writes a letter at the upper left of each panel that is drawn."""
    drawn = [ax for ax in axes if ax.axison]
    for letter, ax in zip(string.ascii_lowercase, drawn, strict=False):
        ax.text(
            -0.03,
            1.02,
            f"({letter})",
            transform=ax.transAxes,
            ha="right",
            va="bottom",
            weight="bold",
        )


def frame_scan(
    ax: Axes, positions_angstrom: npt.NDArray[np.floating], period_angstrom: Sequence[float]
) -> None:
    """Draws the scan's field as a dotted rectangle on an image of the cell, if it is smaller.

    Args:
        positions_angstrom: `(n, 2)`, Å. Nothing is drawn if some lie outside of the cell.
        period_angstrom: Sides of the cell, (y, x).
    """
    corner = positions_angstrom.min(axis=0)
    last = positions_angstrom.max(axis=0)
    outside = (corner < 0).any() or (last > period_angstrom).any()
    if outside or ((last - corner) > 0.9 * np.asarray(period_angstrom)).all():
        return
    height, width = last - corner
    outline: list[AbstractPathEffect] = [withStroke(linewidth=2.5, foreground="black")]
    frame = Rectangle((corner[1], corner[0]), width, height, fill=False, ec="white", lw=1, ls=":")
    frame.set_path_effects(outline)
    ax.add_patch(frame)


def zoom_to_scan(
    ax: Axes, positions_angstrom: npt.NDArray[np.floating], period_angstrom: Sequence[float]
) -> None:
    """Shows the surroundings of a scan whose field is much smaller than the cell, where what is
    drawn at its positions would stand on top of each other.

    Args:
        positions_angstrom: `(n, 2)`, Å. Nothing is changed if some lie outside of the cell.
        period_angstrom: Sides of the cell, (y, x).
    """
    corner = positions_angstrom.min(axis=0)
    last = positions_angstrom.max(axis=0)
    period = np.asarray(period_angstrom, float)
    side = float((last - corner).max()) + 2 * _SURROUNDINGS_ANGSTROM
    outside = (corner < 0).any() or (last > period).any()
    if outside or side > 0.5 * period.min():
        return
    top, left = np.clip((corner + last - side) / 2, 0, period - side)
    ax.set_xlim(left, left + side)
    ax.set_ylim(top + side, top)


def _place_of_letter(place: Floats, corner: Floats, size: Floats, taken: list[Floats]) -> Floats:
    """Returns the place beside a position, inside the image, that is farthest from what stands
    there already.

    Args:
        corner: Upper left corner (y, x) of the image.
        size: Sides (y, x) of the image.
        taken: Positions and letters in the image.
    """
    apart = 0.055 * max(size)
    farthest = place
    largest_distance = -np.inf
    for way in itertools.product((-apart, 0, apart), repeat=2):
        beside = place + np.array(way)
        is_inside = (abs(beside - corner - size / 2) < size / 2 - apart / 2).all()
        if not any(way) or not is_inside:
            continue
        distance = min(float(np.linalg.norm(beside - other)) for other in taken)
        if distance > largest_distance:
            farthest = beside
            largest_distance = distance
    return farthest


def mark_probes(
    ax: Axes, positions_angstrom: npt.ArrayLike, period_angstrom: Sequence[float]
) -> None:
    """Draws the `MARKS` at probe positions.

    Args:
        positions_angstrom: `(n, 2)`, Å.
        period_angstrom: Period of the cell, (y, x); positions are wrapped by it into the image.
    """
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    corner = np.array((top, left))
    size = np.array((bottom - top, right - left))
    positions = corner + (np.asarray(positions_angstrom) - corner) % period_angstrom
    ax.autoscale(False)
    outline = [withStroke(linewidth=2.5, foreground="black")]
    taken = list(positions)
    for mark, place in zip(MARKS, positions, strict=False):
        ax.plot(*place[::-1], "o", ms=4, mfc="none", mec="white", mew=1, path_effects=outline)
        letter = _place_of_letter(place, corner, size, taken)
        taken.append(letter)
        text = ax.text(float(letter[1]), float(letter[0]), mark, ha="center", va="center")
        text.set(color="white", weight="bold", path_effects=outline)


def _draw(
    ax: Axes,
    image: Array,
    grid: PixelGrid,
    title: str,
    units: tuple[str, str],
    *,
    cmap: str,
    norm: Normalize | None,
    interpolation: str | None = None,
) -> Colorbar:
    ax.axis("on")
    drawn = ax.imshow(
        image, cmap=cmap, norm=norm, extent=grid.extent(image.shape), interpolation=interpolation
    )
    ax.set_title(title)
    ax.set_xlabel(units[0])
    ax.set_ylabel(units[0])
    ax.locator_params(nbins=5)
    bar = ax.figure.colorbar(drawn, cax=ax.inset_axes((1.03, 0, 0.05, 1)))
    bar.set_label(units[1])
    bar.outline.set_linewidth(0.6)
    return bar


def picture_format(path: Path) -> str:
    """Returns the format that the suffix of a picture names.

    Raises:
        InputError: If Matplotlib does not know it.
    """
    kind = path.suffix[1:].lower()
    kinds = sorted(FigureCanvasBase.get_supported_filetypes())
    if kind not in kinds:
        raise InputError(
            f"{path} does not end as a picture: {', '.join(f'.{kind}' for kind in kinds)}"
        )
    return kind


def write_figure(figure: Figure, path: Path) -> None:
    """Writes a figure. The suffix names the format; without one it is a .png.

    Raises:
        InputError: If Matplotlib does not know the format.
        WorkError: If the file cannot be written.
    """
    path = path if path.suffix else path.with_suffix(".png")
    kind = picture_format(path)
    try:
        with open_atomic(path) as file:
            figure.savefig(file, format=kind)
    except WorkError as error:
        raise WorkError(f"cannot write the picture {path}: {error}") from None
