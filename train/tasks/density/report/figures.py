"""Figures of held-out densities."""

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from namsa.base.arrays import Array
from namsa.base.pixels import PixelGrid
from namsa.figures.panels import DIFFERENCE, MARKS, image_panel, mark_probes, pattern_panel, styled

from .pictures import SamplePicture

SMALL_HEIGHT = 2.7  # inches, of a row of small panels


@styled
def sample_figure(picture: SamplePicture, mean_image: Array, unit: str = "e/Å²") -> Figure:
    """Draws a held-out sample: truth and reconstruction large, on one colour scale, and the rest
    small below.

    Their difference has a scale that is symmetric about zero, and the mean image (h, w) one of its
    own.
    """
    facts = picture.facts
    truth = picture.truth
    error = picture.prediction - picture.truth
    pixels, angles = (
        PixelGrid(step, origin) for step, origin in (facts["density_frame"], facts["pattern_frame"])
    )
    large_height = min(4.2 * pixels.aspect(truth.shape), 8.0) + 0.6
    figure = Figure(figsize=(11.5, large_height + 2 * SMALL_HEIGHT), layout="constrained")
    places = figure.add_gridspec(3, 6, height_ratios=(large_height, SMALL_HEIGHT, SMALL_HEIGHT))
    largest = float(np.abs(error).max()) or 1.0
    scale = Normalize(
        min(0.0, float(truth.min())), float(max(truth.max(), picture.prediction.max())) or 1.0
    )

    large = [figure.add_subplot(places[0, 3 * half : 3 * half + 3]) for half in (0, 1)]
    small = [
        figure.add_subplot(places[row, column : column + 2])
        for row in (1, 2)
        for column in (0, 2, 4)
    ]
    image_panel(large[0], truth, pixels, "Truth", unit, norm=scale, smooth=True)
    image_panel(
        large[1], picture.prediction, pixels, "Reconstruction", unit, norm=scale, smooth=True
    )
    symmetric = Normalize(-largest, largest)
    image_panel(
        small[0], error, pixels, "Reconstruction − truth", unit, cmap=DIFFERENCE, norm=symmetric
    )
    image_panel(small[1], mean_image, pixels, "Mean image", unit)
    mark_probes(large[0], facts["probes_angstrom"], facts["extent_angstrom"])
    pattern_panel(
        small[2],
        picture.position_averaged,
        angles,
        "Mean pattern",
        semiangle_mrad=facts["semiangle_mrad"],
    )
    for ax in small[3:]:
        ax.axis("off")
    for ax, mark, pattern in zip(small[3:], MARKS, picture.patterns, strict=False):
        pattern_panel(ax, pattern, angles, f"Pattern at {mark}")
    return figure
