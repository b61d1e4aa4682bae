"""The figure of a classified scan."""

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from namsa.base.arrays import Array
from namsa.base.pixels import PixelGrid
from namsa.figures.panels import MAX_ASPECT, image_panel, letter_panels, styled

from ...reports.figures import BLUE, category_panel, entitle

NAMED = 12  # classes at most that the figure tells apart by name and colour
CLASSES = "tab20"
NUMBERS = "viridis"  # of classes that are numbers, in their order
PROBABILITY = "cividis"
OTHERS = "#bbbbbb"
UNIT = Normalize(0, 1)


@styled
def class_figure(
    probabilities: Array, classes: Sequence[str], label: str, pixels: PixelGrid, title: str
) -> Figure:
    """Draws the map of classes, the probability of the most probable class, and the mean
    probabilities.

    Of many classes of `(classes, sy, sx)`, those of the largest mean are told apart, and the others
    are grey.
    """
    means = probabilities.mean(axis=(1, 2))
    best = probabilities.argmax(axis=0)
    named = np.argsort(-means, kind="stable")[:NAMED]
    are_numbers = all(_is_number(name) for name in classes)
    if are_numbers:
        named = named[np.argsort([float(classes[index]) for index in named])]
    names = [classes[index] for index in named]
    if len(classes) > NAMED:
        names.append("others")
    rank = np.full(len(classes), len(named))
    rank[named] = np.arange(len(named))
    aspect = min(max(pixels.aspect(best.shape), 1 / MAX_ASPECT), MAX_ASPECT)
    figure = Figure(
        figsize=(11.5, 0.9 + max(2.6 * aspect, 0.22 * len(names))), layout="constrained"
    )
    entitle(figure, title)
    left, middle, right = figure.subplots(1, 3)
    if are_numbers:
        colours = [*colormaps[NUMBERS](np.linspace(0, 1, len(named)))]
    else:
        colours = [*colormaps[CLASSES](range(len(named)))]
    if len(classes) > NAMED:
        colours.append(OTHERS)
    bar = category_panel(left, rank[best], colours, pixels, label[:1].upper() + label[1:])
    bar.set_yticks(range(len(names)), names, parse_math=False)
    image_panel(
        middle,
        probabilities.max(axis=0),
        pixels,
        "Its probability",
        "",
        cmap=PROBABILITY,
        norm=UNIT,
    )
    rows = np.arange(len(named))[::-1]
    right.barh(rows, means[named], color=BLUE, height=0.7)
    right.set(title="Mean over the scan", xlabel="probability", xlim=(0, 1))
    right.set_yticks(rows, names[: len(named)], parse_math=False)
    right.set_ylabel(label)
    letter_panels([left, middle, right])
    return figure


def _is_number(name: str) -> bool:
    """Returns whether a class is a number, as a thickness is."""
    try:
        float(name)
    except ValueError:
        return False
    return True
