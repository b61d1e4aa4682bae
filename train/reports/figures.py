"""Figures of the report that do not depend on the task, and how figures are written.

Every function returns a `Figure` of its own; Matplotlib's global state is not used.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.typing import ColorType

from namsa.base.arrays import Array
from namsa.base.pixels import PixelGrid
from namsa.figures.panels import styled

from .runs import Numbers, Steps

Reduce = Callable[[Numbers], float]

LOSS_BINS = 1000
TIME_BINS = 200
SYNCHRONISATION = "synchronisation"
INK = "#222222"
BLUE = "#2a6f97"
GOLD = "#e09f3e"
RED = "#9e2a2b"


@styled
def loss_figure(steps: Steps, terms: Mapping[str, str], settings: Mapping[str, str]) -> Figure:
    """Draws the training loss and its mean per epoch, with the learning rate below.

    Terms are columns that are drawn with the loss, as means per epoch, by their labels, and
    settings those that are drawn below it. Those without a number are left out.
    """
    below = {"lr": "learning\nrate"}
    for name, label in settings.items():
        if np.isfinite(steps[name]).any():
            below[name] = label
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    heights = [4] + [1] * len(below)
    loss, *others = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    x, y = binned(steps["step"], steps["loss"], LOSS_BINS)
    loss.plot(x, y, color=BLUE, lw=0.6, alpha=0.4, label="loss")
    x, y = epoch_means(steps, "loss")
    loss.plot(x, y, color=BLUE, lw=1.8, marker=".", label="mean per epoch")
    for name, label in terms.items():
        if np.isfinite(steps[name]).any():
            x, y = epoch_means(steps, name)
            loss.plot(x, y, color=INK, lw=1, ls=(0, (4, 2)), label=label)
    loss.legend(loc="upper right", ncols=3)
    if np.nanmin(steps["loss"], initial=np.inf) > 0:
        loss.set_yscale("log")
    for ax, (name, label) in zip(others, below.items(), strict=True):
        ax.plot(steps["step"], steps[name], color=INK, lw=1)
        ax.set_ylim(0, 1.1 * np.nanmax(steps[name]))
        _line_axes(ax, label)
    _line_axes(loss, "training loss")
    others[-1].set_xlabel("step")
    return figure


@styled
def time_figure(steps: Steps) -> Figure:
    """Draws where the time of the steps went: the median of each bin of steps, stacked; with local
    SGD the mean.
    """
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    ax = figure.subplots()
    times = time_parts(steps)
    # most steps do not synchronise
    reduce = np.nanmean if SYNCHRONISATION in times else np.nanmedian
    milliseconds = []
    for seconds in times.values():
        x, binned_s = binned(steps["step"], seconds, TIME_BINS, reduce)
        milliseconds.append(1e3 * binned_s)
    colours = (BLUE, GOLD, RED, INK)[: len(times)]
    ax.stackplot(x, *milliseconds, labels=list(times), colors=colours, lw=0)
    ax.legend(
        loc="upper left",
        bbox_to_anchor=(0, 1.16),
        ncols=len(times),
        borderaxespad=0,
        handlelength=1,
    )
    ax.set(xlabel="step", ylim=(0, None))
    _line_axes(ax, "ms per step")
    return figure


def time_parts(steps: Steps) -> dict[str, Numbers]:
    """Returns seconds of computing, of communication and of waiting for data per step; they sum to
    the step's time.

    With local SGD the synchronisation is a part of its own.
    """
    communication = steps["comm_s"]
    data = steps["data_s"]
    synchronisation = np.nan_to_num(steps.get("sync_s", np.zeros_like(data)))
    times = {
        "computing": steps["step_s"] - communication - data - synchronisation,
        "communication": communication,
        "waiting for data": data,
    }
    if synchronisation.any():
        times[SYNCHRONISATION] = synchronisation
    return times


def epoch_means(steps: Steps, name: str) -> tuple[Numbers, Numbers]:
    """Returns the mean step number of each epoch, and the mean of column `name` over its steps with
    a number.
    """
    middles = []
    means = []
    for epoch in np.unique(steps["epoch"]):
        in_epoch = steps["epoch"] == epoch
        middles.append(steps["step"][in_epoch].mean())
        means.append(_reduced(steps[name][in_epoch], np.nanmean))
    return np.array(middles), np.array(means)


def binned(
    x: Numbers, y: Numbers, bins: int, reduce: Reduce = np.nanmean
) -> tuple[Numbers, Numbers]:
    """Reduces a curve, (n,), NaN where it is undefined, to bins of about equal numbers of points.

    Returns the mean coordinate and the reduced value of each bin; NaN for a bin without a value.
    """
    middles = []
    values = []
    for points in np.array_split(np.arange(len(x)), min(bins, len(x))):
        middles.append(x[points].mean())
        values.append(_reduced(y[points], reduce))
    return np.array(middles), np.array(values)


def _reduced(values: Numbers, reduce: Reduce) -> float:
    return float(reduce(values)) if np.isfinite(values).any() else np.nan


def entitle(figure: Figure, title: str) -> None:
    """Writes the title of a figure of a scan."""
    figure.suptitle(title, fontsize=11, x=0.008, ha="left", parse_math=False)


def category_panel(
    ax: Axes, numbers: Array, colours: Sequence[ColorType], pixels: PixelGrid, title: str
) -> Axes:
    """Draws a map of the numbers of categories, `(sy, sx)`, from 0; returns the axes of the bar of
    their colours.
    """
    norm = BoundaryNorm(np.arange(len(colours) + 1) - 0.5, len(colours))
    extent = pixels.extent(numbers.shape)
    drawn = ax.imshow(
        numbers, cmap=ListedColormap(colours), norm=norm, extent=extent, interpolation="nearest"
    )
    ax.set(title=title, xlabel="Å", ylabel="Å")
    figure = ax.figure
    return figure.colorbar(drawn, cax=ax.inset_axes((1.03, 0, 0.05, 1))).ax


@styled
def data_uri(figure: Figure, kind: Literal["png", "svg"]) -> str:
    """Returns a figure as a `data:` address, to be embedded in a page."""
    buffer = BytesIO()
    figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    mime = {"png": "image/png", "svg": "image/svg+xml"}[kind]
    return f"data:{mime};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _line_axes(ax: Axes, label: str) -> None:
    ax.set_ylabel(label)
    ax.spines[["top", "right"]].set_visible(False)
    ax.margins(x=0.01)
