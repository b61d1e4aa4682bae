"""Pictures of a sample: what the microscope would record, and the specimen that it is recorded from.

Patterns are drawn over the scattering angle in mrad with intensity on a power scale, since the dark field is a
thousand times fainter than the bright disk; images over the cell in Å, y downwards as the arrays have it. The panels
are shared with the report of a training (`train.reports.figures`), so that both show the same thing in the same way.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import LogFormatterSciNotation

from namsa.errors import WorkError
from namsa.physics import virtual_detectors as virtual
from namsa.pixels import PixelGrid, density_grid, pattern_grid, potential_grid, scan_grid
from namsa.text import plural

Image = npt.NDArray[Any]

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
REAL_SPACE, PATTERN, VIRTUAL = "viridis", "magma", "gray"
PATTERN_POWER = 0.3
MARKS = ("A", "B", "C")
DARK_FIELD_FROM = 1.25  # semiangles: clear of the aperture's soft edge

P = ParamSpec("P")
T = TypeVar("T")


class SampleLike(Protocol):
    """What `namsa.simulate` returns."""

    @property
    def cbed(self) -> Image: ...
    @property
    def density(self) -> Image: ...
    @property
    def projected_potential(self) -> Image: ...
    @property
    def provenance(self) -> Mapping[str, Any]: ...


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """`draw` under this page's Matplotlib settings, which it leaves as they were."""

    @wraps(draw)
    def inner(*args: P.args, **kwargs: P.kwargs) -> T:
        with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]
            return draw(*args, **kwargs)

    return inner


@styled
def show(sample: SampleLike, path: Path) -> Path:
    """Write the sample's picture to `path`, whose ending names the format (.png, .pdf, .svg).

    Raises WorkError where the file cannot be written.
    """
    figure = sample_figure(sample.cbed, sample.density, sample.projected_potential, sample.provenance)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise WorkError(f"cannot write the picture {path}: {error}") from None
    return path


@styled
def sample_figure(cbed: Image, density: Image, projected_potential: Image, provenance: Mapping[str, Any]) -> Figure:
    """Patterns above, the specimen below: potential, density and, where the scan is a grid, virtual images.

    cbed (n, dy, dx) fraction of the beam a pixel, density (ty, tx) e/Å², projected_potential (ny, nx) V·Å;
    `provenance` is a sample's (`namsa.simulate`).
    """
    semiangle, angles = provenance["semiangle_mrad"], pattern_grid(provenance)
    cell = potential_grid(provenance)
    figure, (above, below) = panels(angles.aspect(cbed.shape[1:]), cell.aspect(projected_potential.shape))
    figure.suptitle(caption(provenance), fontsize=11, x=0.008, ha="left")
    positions = np.asarray(provenance["positions_angstrom"], float)
    probes = list(example_probes(cbed, angles, semiangle, positions))

    pattern_panel(
        above[0], cbed.mean(axis=0), angles, f"Mean of {plural(len(cbed), 'pattern')}", semiangle_mrad=semiangle
    )
    for ax, mark, probe in zip(above[1:], MARKS, probes, strict=False):
        y, x = positions[probe]
        pattern_panel(ax, cbed[probe], angles, f"{mark}: y {y:.2f} Å, x {x:.2f} Å")

    # Heavy columns are such sharp peaks that light ones would vanish beside them on a linear scale.
    root = PowerNorm(0.5, vmin=0, vmax=float(projected_potential.max()) or 1.0)
    image_panel(below[0], projected_potential, cell, "Projected potential", "V·Å", norm=root)
    image_panel(below[1], density, density_grid(provenance), "Projected electron density", "e/Å²")
    for ax in below[:2]:
        mark_probes(ax, positions[probes], provenance["extent_angstrom"])
    if scan := scan_grid(provenance):
        bright, dark = virtual.bright_field(cbed, angles, semiangle), dark_field(cbed, angles, semiangle)
        for ax, title, values in (
            (below[2], f"Bright field < {semiangle:g} mrad", bright),
            (below[3], f"Annular dark field > {DARK_FIELD_FROM * semiangle:g} mrad", dark),
        ):
            if values is not None:
                image = values.reshape(provenance["scan_shape"])
                image_panel(ax, image, scan, title, "fraction of the beam", cmap=VIRTUAL)
    return figure


def panels(*aspects: float, columns: int = 4) -> tuple[Figure, npt.NDArray[Any]]:
    """A figure of rows of `columns` empty panels, as high as images of these heights over widths need."""
    size = (11.5 * columns / 4, 0.3 + sum(2.2 * aspect + 0.5 for aspect in aspects))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(aspects), columns, squeeze=False, height_ratios=aspects)
    for ax in axes.flat:
        ax.axis("off")
    return figure, axes


def caption(provenance: Mapping[str, Any]) -> str:
    """What a sample is of, in one line; only a dataset's samples have a material and a zone axis."""
    parts = [str(provenance["material"])] if "material" in provenance else []
    if "zone_axis" in provenance:
        parts.append("[" + " ".join(str(index) for index in provenance["zone_axis"]) + "]")
    parts.append(f"{provenance['thickness_angstrom']:.1f} Å thick")
    parts.append(f"{provenance['energy_ev'] / 1e3:g} keV, semiangle {provenance['semiangle_mrad']:g} mrad")
    return "  ·  ".join(parts)


def dark_field(cbed: Image, angles: PixelGrid, semiangle_mrad: float) -> npt.NDArray[np.float64] | None:
    """What each of the n patterns scatters beyond the disk and its soft edge; None where the detector ends before."""
    inner = DARK_FIELD_FROM * semiangle_mrad
    if angles.distance(cbed.shape[1:]).max() < inner:
        return None
    return virtual.annular(cbed, angles, inner, np.inf)


def example_probes(
    cbed: Image, angles: PixelGrid, semiangle_mrad: float, positions_angstrom: npt.ArrayLike
) -> tuple[int, ...]:
    """Indices of the strongest, the median and the weakest dark field: on the heaviest column, and off it.

    Of probes that are equal to a percent, as a crystal's are, the one nearest to the middle of the scan.
    """
    dark = dark_field(cbed, angles, semiangle_mrad)
    if dark is None:  # what the disk lacks has left the detector
        dark = 1 - virtual.bright_field(cbed, angles, semiangle_mrad)
    level = np.round(dark / (dark.max() or 1), 2)
    positions = np.asarray(positions_angstrom, float)
    off_middle = np.linalg.norm(positions - (positions.min(axis=0) + positions.max(axis=0)) / 2, axis=1)
    levels = np.sort(level)[[-1, len(level) // 2, 0]]
    return tuple(dict.fromkeys(int(np.argmin(np.where(level == wanted, off_middle, np.inf))) for wanted in levels))


def pattern_panel(
    ax: Axes, pattern: Image, angles: PixelGrid, title: str, *, semiangle_mrad: float | None = None
) -> None:
    """One pattern (dy, dx) on axes in mrad; the aperture's circle where `semiangle_mrad` is given."""
    brightest = float(pattern.max()) or 1.0
    norm = PowerNorm(PATTERN_POWER, vmin=0, vmax=brightest)
    bar = _draw(ax, pattern, angles, title, ("mrad", "fraction of the beam"), cmap=PATTERN, norm=norm)
    decade = int(np.floor(np.log10(brightest)))
    bar.set_ticks([0, *(10.0**n for n in range(decade - 3, decade + 1))])
    bar.ax.yaxis.set_major_formatter(LogFormatterSciNotation())
    if semiangle_mrad is not None:
        ax.add_patch(Circle((0, 0), semiangle_mrad, fill=False, color="deepskyblue", lw=1))


def image_panel(
    ax: Axes,
    image: Image,
    frame: PixelGrid,
    title: str,
    unit: str,
    *,
    cmap: str = REAL_SPACE,
    norm: Normalize | None = None,
) -> None:
    """One image (H, W) on axes in Å, with a colour bar in `unit`."""
    _draw(ax, image, frame, title, ("Å", unit), cmap=cmap, norm=norm)


def mark_probes(ax: Axes, positions_angstrom: npt.ArrayLike, period_angstrom: Sequence[float]) -> None:
    """The `MARKS` at probe positions (n, 2), wrapped by the period (y, x) into the picture that `ax` shows."""
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    corner, size = np.array((top, left)), np.array((bottom - top, right - left))
    positions = corner + (np.asarray(positions_angstrom) - corner) % period_angstrom
    # Letters stand away from one another, but inside.
    away = np.where(positions >= positions.mean(axis=0), 1, -1)
    away = np.select([positions < corner + 0.1 * size, positions > corner + 0.9 * size], [1, -1], away)
    ax.autoscale(False)
    outline = [withStroke(linewidth=2.5, foreground="black")]
    for mark, (y, x), (down, along) in zip(MARKS, positions, away, strict=False):
        ax.plot(x, y, "o", ms=4, mfc="none", mec="white", mew=1, path_effects=outline)
        ax.annotate(
            mark,
            (x, y),
            (7 * along, -7 * down),
            textcoords="offset points",
            ha="center",
            va="center",
            color="white",
            weight="bold",
            path_effects=outline,
        )


def _draw(
    ax: Axes, image: Image, frame: PixelGrid, title: str, units: tuple[str, str], *, cmap: str, norm: Normalize | None
) -> Colorbar:
    ax.axis("on")
    drawn = ax.imshow(image, cmap=cmap, norm=norm, extent=frame.extent(image.shape))
    ax.set_title(title)
    ax.set_xlabel(units[0])
    ax.locator_params(nbins=5)
    bar = ax.figure.colorbar(drawn, cax=ax.inset_axes((1.03, 0, 0.05, 1)))
    bar.set_label(units[1])
    bar.outline.set_linewidth(0.6)
    return bar
