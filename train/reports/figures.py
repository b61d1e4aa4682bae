"""Figures of the report that do not depend on the task, and how figures are written.

Every function returns a `Figure` of its own; Matplotlib's global state is not used.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure

from namsa.figures.panels import styled
from namsa.pixels import PixelGrid

from .runs import Numbers, Steps

Reduce = Callable[[Numbers], Any]

LOSS_BINS, TIME_BINS = 1000, 200
SYNCHRONISATION = "synchronisation"
INK, BLUE, GOLD, RED = "#222222", "#2a6f97", "#e09f3e", "#9e2a2b"


@styled
def loss_figure(steps: Steps, terms: Mapping[str, str], settings: Mapping[str, str]) -> Figure:
    """Draws the training loss and its mean per epoch, with the learning rate below.

    Terms are columns that are drawn with the loss, as means per epoch, by their labels, and settings those that are
    drawn below it. Those without a number are left out.
    """
    lines = {name: label for name, label in terms.items() if np.isfinite(steps[name]).any()}
    below = [("lr", "learning\nrate"), *((name, of) for name, of in settings.items() if np.isfinite(steps[name]).any())]
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    loss, *others = figure.subplots(1 + len(below), 1, sharex=True, height_ratios=(4, *(1 for _ in below)))
    loss.plot(*binned(steps["step"], steps["loss"], LOSS_BINS), color=BLUE, lw=0.6, alpha=0.4, label="loss")
    loss.plot(*epoch_means(steps, "loss"), color=BLUE, lw=1.8, marker=".", label="mean per epoch")
    for name, label in lines.items():
        loss.plot(*epoch_means(steps, name), color=INK, lw=1, ls=(0, (4, 2)), label=label)
    loss.legend(loc="upper right", ncols=3)
    if np.nanmin(steps["loss"], initial=np.inf) > 0:
        loss.set_yscale("log")
    for ax, (name, label) in zip(others, below, strict=True):
        ax.plot(steps["step"], steps[name], color=INK, lw=1)
        ax.set_ylim(0, 1.1 * np.nanmax(steps[name]))
        _line_axes(ax, label)
    _line_axes(loss, "training loss")
    others[-1].set_xlabel("step")
    return figure


@styled
def time_figure(steps: Steps) -> Figure:
    """Draws where the time of the steps went: the median of each bin of steps, stacked; with local SGD the mean."""
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    ax = figure.subplots()
    times = time_parts(steps)
    reduce = np.nanmean if SYNCHRONISATION in times else np.nanmedian  # most steps do not synchronise
    parts = {name: binned(steps["step"], seconds, TIME_BINS, reduce) for name, seconds in times.items()}
    x = parts["computing"][0]
    colours = (BLUE, GOLD, RED, INK)[: len(parts)]
    ax.stackplot(x, *(seconds * 1e3 for _, seconds in parts.values()), labels=list(parts), colors=colours, lw=0)
    ax.legend(loc="upper left", bbox_to_anchor=(0, 1.16), ncols=len(parts), borderaxespad=0, handlelength=1)
    ax.set(xlabel="step", ylim=(0, None))
    _line_axes(ax, "ms per step")
    return figure


def time_parts(steps: Steps) -> dict[str, Numbers]:
    """Returns seconds of computing, of communication and of waiting for data per step; they sum to the step's time.

    With local SGD the synchronisation is a part of its own.
    """
    communication, data = steps["comm_s"], steps["data_s"]
    synchronisation = np.nan_to_num(steps.get("sync_s", np.zeros_like(data)))
    parts = {
        "computing": steps["step_s"] - communication - data - synchronisation,
        "communication": communication,
        "waiting for data": data,
    }
    return parts | ({SYNCHRONISATION: synchronisation} if synchronisation.any() else {})


def epoch_means(steps: Steps, name: str) -> tuple[Numbers, Numbers]:
    """Returns the mean step number of each epoch, and the mean of column `name` over its steps with a number."""
    epochs = [steps["epoch"] == epoch for epoch in np.unique(steps["epoch"])]
    means = [_reduced(steps[name][epoch], np.nanmean) for epoch in epochs]
    return np.array([steps["step"][epoch].mean() for epoch in epochs]), np.array(means)


def binned(x: Numbers, y: Numbers, bins: int, reduce: Reduce = np.nanmean) -> tuple[Numbers, Numbers]:
    """Reduces a curve, (n,), NaN where it is undefined, to bins of about equal numbers of points.

    Returns the mean coordinate and the reduced value of each bin; NaN for a bin without a value.
    """
    runs = np.array_split(np.arange(len(x)), min(bins, len(x)))
    return np.array([x[run].mean() for run in runs]), np.array([_reduced(y[run], reduce) for run in runs])


def _reduced(values: Numbers, reduce: Reduce) -> float:
    return float(reduce(values)) if np.isfinite(values).any() else np.nan


def entitle(figure: Figure, title: str) -> None:
    """Writes the title of a figure of a scan."""
    figure.suptitle(title, fontsize=11, x=0.008, ha="left", parse_math=False)


def category_panel(ax: Axes, numbers: npt.NDArray[Any], colours: Sequence[Any], pixels: PixelGrid, title: str) -> Axes:
    """Draws a map of the numbers of categories, `(sy, sx)`, from 0; returns the axes of the bar of their colours."""
    norm = BoundaryNorm(np.arange(len(colours) + 1) - 0.5, len(colours))
    extent = pixels.extent(numbers.shape)
    drawn = ax.imshow(numbers, cmap=ListedColormap(colours), norm=norm, extent=extent, interpolation="nearest")
    ax.set(title=title, xlabel="Å")
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
