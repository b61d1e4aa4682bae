"""The figure of a classified scan."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.colors import BoundaryNorm, ListedColormap, Normalize
from matplotlib.figure import Figure

from namsa.figures.panels import MAX_ASPECT, image_panel, styled
from namsa.pixels import PixelGrid

from ...reports.figures import BLUE

NAMED = 12  # classes at most that the figure tells apart by name and colour
CLASSES, PROBABILITY, OTHERS = "tab20", "cividis", "#bbbbbb"
UNIT = Normalize(0, 1)


@styled
def class_figure(
    probabilities: npt.NDArray[Any], classes: Sequence[str], label: str, pixels: PixelGrid, title: str
) -> Figure:
    """Draws the map of classes, the probability of the most probable class, and the mean probabilities.

    Of many classes, those of the largest mean probability are told apart, and the others are grey.

    Args:
        probabilities: `(classes, sy, sx)`.
        classes: Their names.
        label: What the classes are, in words.
        pixels: Of the scan, Å.
        title: Title of the figure.
    """
    means, best = probabilities.mean(axis=(1, 2)), probabilities.argmax(axis=0)
    named = np.argsort(-means, kind="stable")[:NAMED]
    names = [classes[index] for index in named] + (["others"] if len(classes) > NAMED else [])
    rank = np.full(len(classes), len(named))
    rank[named] = np.arange(len(named))
    aspect = min(max(pixels.aspect(best.shape), 1 / MAX_ASPECT), MAX_ASPECT)
    figure = Figure(figsize=(11.5, 0.9 + max(2.6 * aspect, 0.22 * len(names))), layout="constrained")
    figure.suptitle(title, fontsize=11, x=0.008, ha="left", parse_math=False)
    left, middle, right = figure.subplots(1, 3)
    colours = ListedColormap([*colormaps[CLASSES](range(len(named))), OTHERS][: len(names)])
    norm = BoundaryNorm(np.arange(len(names) + 1) - 0.5, len(names))
    drawn = left.imshow(rank[best], cmap=colours, norm=norm, extent=pixels.extent(best.shape), interpolation="nearest")
    left.set(title=label[:1].upper() + label[1:], xlabel="Å")
    bar = figure.colorbar(drawn, cax=left.inset_axes((1.03, 0, 0.05, 1)), ticks=range(len(names)))
    bar.ax.set_yticklabels(names, parse_math=False)
    image_panel(middle, probabilities.max(axis=0), pixels, "Its probability", "", cmap=PROBABILITY, norm=UNIT)
    rows = np.arange(len(named))[::-1]
    right.barh(rows, means[named], color=BLUE, height=0.7)
    right.set(title="Mean over the scan", xlabel="probability", xlim=(0, 1))
    right.set_yticks(rows, names[: len(named)], parse_math=False)
    return figure
