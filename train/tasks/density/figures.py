"""Figures of held-out densities and of reconstructions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from namsa.figures.panels import MARKS, image_panel, mark_probes, panels, pattern_panel, styled
from namsa.pixels import PixelGrid

from ...reports.figures import RED, entitle
from .pictures import Picture

DIFFERENCE = "RdBu_r"


@styled
def sample_figure(picture: Picture, mean_image: npt.NDArray[Any]) -> Figure:
    """Draws a held-out sample: densities above, patterns below.

    The densities are the truth, the reconstruction, their difference and the mean image. They share one colour scale,
    from zero to the maximum of the truth. The difference has its own scale, symmetric about zero.

    Args:
        mean_image: Mean of the training targets, (h, w), e/Å².
    """
    facts, truth, error = picture.facts, picture.truth, picture.prediction - picture.truth
    pixels, angles = (PixelGrid(step, origin) for step, origin in (facts["density_frame"], facts["pattern_frame"]))
    figure, (above, below) = panels(pixels.aspect(truth.shape), angles.aspect(picture.position_averaged.shape))
    largest = float(np.abs(error).max()) or 1.0
    symmetric = Normalize(-largest, largest)

    image_panel(above[0], truth, pixels, "Truth", "e/Å²", norm=_density_scale(truth))
    image_panel(above[1], picture.prediction, pixels, "Reconstruction", "e/Å²", norm=_density_scale(truth))
    image_panel(above[2], error, pixels, "Reconstruction − truth", "e/Å²", cmap=DIFFERENCE, norm=symmetric)
    image_panel(above[3], mean_image, pixels, "Mean image", "e/Å²", norm=_density_scale(truth))
    mark_probes(above[0], facts["probes_angstrom"], facts["extent_angstrom"])
    pattern_panel(below[0], picture.position_averaged, angles, "Mean pattern", semiangle_mrad=facts["semiangle_mrad"])
    for ax, mark, pattern in zip(below[1:], MARKS, picture.patterns, strict=False):
        pattern_panel(ax, pattern, angles, f"Pattern at {mark}")
    return figure


@styled
def reconstruction_figure(
    pattern: npt.NDArray[Any],  # mean pattern, (ky, kx), fraction of the beam
    angles: PixelGrid,  # pixels of the pattern, mrad
    semiangle_mrad: float,  # convergence semiangle, mrad
    # By title: array (h, w), its pixels in Å, its units and its colour map. An image without units is a fraction, drawn
    # from 0 to 1.
    images: Mapping[str, tuple[npt.NDArray[Any], PixelGrid, str, str]],
    title: str,
    # Which places (h, w) are hatched in red, and their pixels in Å. `None` hatches none.
    hatched: tuple[npt.NDArray[np.bool_], PixelGrid] | None = None,
    warning: str = "",  # words in red behind the title
    one_scale: Sequence[str] = (),  # titles of images that share one colour scale
) -> Figure:
    """Draws a reconstruction: the mean pattern, then images."""
    shared = [images[name][0] for name in one_scale]
    scale = Normalize(min(map(np.nanmin, shared)), max(map(np.nanmax, shared))) if shared else None
    aspects = [pixels.aspect(image.shape) for image, pixels, _, _ in images.values()]
    figure, axes = panels(max(angles.aspect(pattern.shape), *aspects), columns=1 + len(images))
    entitle(figure, title)
    if warning:
        figure.text(0.992, 0.99, warning, fontsize=11, color=RED, weight="bold", ha="right", va="top")
    pattern_panel(axes.flat[0], pattern, angles, "Mean pattern", semiangle_mrad=semiangle_mrad)
    for ax, (name, (image, pixels, units, colours)) in zip(axes.flat[1:], images.items(), strict=False):
        norm = scale if name in one_scale else None if units else Normalize(0, 1)
        image_panel(ax, image, pixels, name, units, cmap=colours, norm=norm)
        if hatched is not None and hatched[0].any():
            places, grid = hatched
            y, x = grid.coordinates(places.shape)
            marks = ax.contourf(x, y, places, levels=(0.5, 1.5), colors="none", hatches=["///"])
            marks.set(edgecolor=RED, linewidth=0)
    return figure


def _density_scale(density: npt.NDArray[Any]) -> Normalize:
    """From zero, or a negative minimum, to the maximum."""
    return Normalize(min(0.0, float(density.min())), float(density.max()) or 1.0)
