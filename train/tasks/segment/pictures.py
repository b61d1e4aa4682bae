"""Scans with the outlines of their classes: the examples of a report, kept in `segments.npz`, and
pictures of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from namsa.base.arrays import Array
from namsa.base.errors import InputError
from namsa.base.files import open_atomic
from namsa.base.numpy_files import read_npz
from namsa.base.pixels import PixelGrid
from namsa.figures.panels import VIRTUAL, image_panel, letter_panels, panels, styled

from ...reports.figures import entitle
from ...reports.results import EVALUATE_AGAIN

FILE_NAME = "segments.npz"
LARGEST_FILE_BYTES = 2**28  # of all arrays, unpacked
COLOURS = ("#e09f3e", "#00a6fb", "#d7263d", "#7bc950")  # of the classes from 1 on


@dataclass(frozen=True)
class Examples:
    """Some scans of one shape."""

    images: npt.NDArray[np.float32]  # bright field, `(n, h, w)`, fraction of the beam
    truth: npt.NDArray[np.uint8]  # class of each position, `(n, h, w)`
    labels: npt.NDArray[np.uint8]  # class that the network gives it, `(n, h, w)`
    titles: Sequence[str]  # `(n,)`
    step_angstrom: Sequence[float]  # distance of positions, (y, x), Å


def write_examples(path: Path, examples: Examples) -> None:
    """Writes a `segments.npz`; replaces it if it exists. Raises WorkError if it cannot be
    written.
    """
    with open_atomic(path) as file:
        np.savez_compressed(
            file,
            images=examples.images,
            truth=examples.truth,
            labels=examples.labels,
            titles=np.array(examples.titles, np.str_),
            step_angstrom=np.array(examples.step_angstrom),
        )


def read_examples(path: Path) -> Examples:
    """Reads a `segments.npz`. Raises InputError if the file cannot be read, or is no such file."""
    arrays = read_npz(path, largest_bytes=LARGEST_FILE_BYTES)
    images, truth, labels, titles, step = (
        arrays.get(name, np.empty(0))
        for name in ("images", "truth", "labels", "titles", "step_angstrom")
    )
    is_shown = images.ndim == 3 and images.size and images.shape == truth.shape == labels.shape
    plain = (
        truth.dtype == labels.dtype == np.uint8
        and images.dtype == np.float32
        and titles.dtype.kind == "U"
    )
    if not (
        is_shown
        and plain
        and titles.shape == images.shape[:1]
        and step.shape == (2,)
        and (step > 0).all()
    ):
        raise InputError(f"{path} has no scans with their classes: {EVALUATE_AGAIN}")
    return Examples(images, truth, labels, titles.tolist(), step.tolist())


@styled
def examples_figure(examples: Examples, classes: Sequence[str]) -> Figure:
    """Draws each scan twice: with the outlines of its true classes above, with those of the network
    below.
    """
    pixels = PixelGrid(examples.step_angstrom, (0.0, 0.0))
    aspect = pixels.aspect(examples.images.shape[1:])
    figure, axes = panels(aspect, aspect, columns=max(2, len(examples.images)))
    for column, (image, title) in enumerate(zip(examples.images, examples.titles, strict=True)):
        for row, (labels, what) in enumerate(
            ((examples.truth, "truth"), (examples.labels, "network"))
        ):
            outlined_panel(axes[row, column], image, labels[column], pixels, f"{title}\n{what}")
    letter_panels(list(axes.flat))
    _legend(figure, classes)
    return figure


@styled
def segments_figure(
    image: Array,  # bright field, `(h, w)`, fraction of the beam
    labels: npt.NDArray[np.uint8],  # class of each position, `(h, w)`
    probabilities: Mapping[str, Array],  # `(h, w)`, by name of the class, in their order
    pixels: PixelGrid,  # of all images, Å
    title: str,
) -> Figure:
    """Draws a virtual image with the outlines of the classes, and the probability of each class but
    the first.
    """
    names = list(probabilities)
    figure, axes = panels(pixels.aspect(image.shape), columns=len(names))
    entitle(figure, title)
    outlined_panel(axes[0, 0], image, labels, pixels, "Bright field")
    for ax, name in zip(axes[0, 1:], names[1:], strict=True):
        title = f"Probability of {name}"
        image_panel(ax, probabilities[name], pixels, title, "", norm=Normalize(0, 1))
    letter_panels(list(axes.flat))
    _legend(figure, names)
    return figure


def outlined_panel(
    ax: Axes, image: Array, labels: npt.NDArray[np.uint8], pixels: PixelGrid, title: str
) -> None:
    """Draws an image with an outline around the positions of each class but the first."""
    image_panel(ax, image, pixels, title, "fraction of the beam", cmap=VIRTUAL)
    (y, x), (dy, dx) = pixels.coordinates(image.shape), pixels.step
    # A position beyond each edge closes the outlines there.
    y = np.array([y[0] - dy, *y, y[-1] + dy])
    x = np.array([x[0] - dx, *x, x[-1] + dx])
    limits = ax.get_xlim(), ax.get_ylim()
    for label in np.unique(labels[labels > 0]):
        inside = np.pad((labels == label).astype(np.float64), 1)
        ax.contour(
            x, y, inside, levels=(0.5,), colors=COLOURS[(label - 1) % len(COLOURS)], linewidths=1.2
        )
    ax.set(xlim=limits[0], ylim=limits[1])


def _legend(figure: Figure, classes: Sequence[str]) -> None:
    lines = [
        Line2D([], [], color=COLOURS[index % len(COLOURS)], label=name)
        for index, name in enumerate(classes[1:])
    ]
    figure.legend(handles=lines, loc="outside lower left", ncols=len(lines))
