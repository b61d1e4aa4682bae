"""The report's figures, drawn without any state of Matplotlib's: each function returns its own `Figure`."""

import base64
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from namsa.view.panels import MARKS, PixelGrid, image_panel, mark_probes, panels, pattern_panel, styled

Numbers = npt.NDArray[np.float64]
Steps = Mapping[str, Numbers]
Reduce = Callable[[Numbers], Any]

LOSS_BINS, TIME_BINS = 1000, 200
DIFFERENCE = "RdBu_r"
INK, BLUE, GOLD, RED = "#222222", "#2a6f97", "#e09f3e", "#9e2a2b"


@styled
def sample_figure(picture: Mapping[str, Any], mean_image: npt.NDArray[Any]) -> Figure:
    """One sample of predictions.npz: truth, reconstruction, difference and mean image above, its patterns below.

    The densities share one colour scale, from zero to the truth's maximum; the difference has its own, symmetric about
    zero.
    """
    truth, error = picture["truth"], picture["prediction"] - picture["truth"]
    frame, angles = PixelGrid(*picture["density_frame"]), PixelGrid(*picture["pattern_frame"])
    figure, (above, below) = panels(frame.aspect(truth.shape), angles.aspect(picture["position_averaged"].shape))
    largest = float(np.abs(error).max()) or 1.0
    symmetric = Normalize(-largest, largest)

    image_panel(above[0], truth, frame, "Truth", "e/Å²", norm=_scale_of(truth))
    image_panel(above[1], picture["prediction"], frame, "Reconstruction", "e/Å²", norm=_scale_of(truth))
    image_panel(above[2], error, frame, "Reconstruction − truth", "e/Å²", cmap=DIFFERENCE, norm=symmetric)
    image_panel(above[3], mean_image, frame, "Mean image", "e/Å²", norm=_scale_of(truth))
    mark_probes(above[0], picture["probes_angstrom"], picture["extent_angstrom"])
    pattern_panel(
        below[0], picture["position_averaged"], angles, "Mean pattern", semiangle_mrad=picture["semiangle_mrad"]
    )
    for ax, mark, pattern in zip(below[1:], MARKS, picture["patterns"], strict=False):
        pattern_panel(ax, pattern, angles, f"Pattern at {mark}")
    return figure


@styled
def reconstruction_figure(
    pattern: npt.NDArray[Any],
    angles: PixelGrid,
    semiangle_mrad: float,
    images: Mapping[str, tuple[npt.NDArray[Any], PixelGrid, str, str]],
    title: str,
) -> Figure:
    """The mean pattern (fraction of the beam), then `images`, each (array, its pixels, units, colours) by its title."""
    frames = [frame.aspect(image.shape) for image, frame, _, _ in images.values()]
    figure, axes = panels(max(angles.aspect(pattern.shape), *frames), columns=1 + len(images))
    figure.suptitle(title, fontsize=11, x=0.008, ha="left")
    pattern_panel(axes.flat[0], pattern, angles, "Mean pattern", semiangle_mrad=semiangle_mrad)
    for ax, (name, (image, frame, units, colours)) in zip(axes.flat[1:], images.items(), strict=False):
        norm = None if units else Normalize(0, 1)  # what has no units is a part of 1
        image_panel(ax, image, frame, name, units, cmap=colours, norm=norm)
    return figure


@styled
def loss_figure(steps: Steps) -> Figure:
    """The training loss and its data term, each epoch's mean, with the learning rate and the Huber delta below."""
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    loss, rate, delta = figure.subplots(3, 1, sharex=True, height_ratios=(4, 1, 1))
    loss.plot(*binned(steps["step"], steps["loss"], LOSS_BINS), color=BLUE, lw=0.6, alpha=0.4, label="loss")
    loss.plot(*epoch_means(steps, "loss"), color=BLUE, lw=1.8, marker=".", label="mean of an epoch")
    loss.plot(*epoch_means(steps, "huber"), color=INK, lw=1, ls=(0, (4, 2)), label="its Huber term")
    loss.legend(loc="upper right", ncols=3)
    if np.nanmin(steps["loss"], initial=np.inf) > 0:
        loss.set_yscale("log")
    for ax, name, label in ((rate, "lr", "learning\nrate"), (delta, "delta", "Huber\ndelta")):
        ax.plot(steps["step"], steps[name], color=INK, lw=1)
        ax.set_ylim(0, 1.1 * np.nanmax(steps[name]))
        _line_axes(ax, label)
    _line_axes(loss, "training loss")
    delta.set_xlabel("step")
    return figure


@styled
def time_figure(steps: Steps) -> Figure:
    """Where each step's time went: median of each bin, stacked."""
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    ax = figure.subplots()
    parts = {
        name: binned(steps["step"], seconds, TIME_BINS, np.nanmedian) for name, seconds in time_parts(steps).items()
    }
    x = parts["computing"][0]
    ax.stackplot(
        x, *(seconds * 1e3 for _, seconds in parts.values()), labels=list(parts), colors=(BLUE, GOLD, RED), lw=0
    )
    ax.legend(loc="upper left", bbox_to_anchor=(0, 1.16), ncols=3, borderaxespad=0, handlelength=1)
    ax.set(xlabel="step", ylim=(0, None))
    _line_axes(ax, "ms a step")
    return figure


def time_parts(steps: Steps) -> dict[str, Numbers]:
    """Seconds of each step that were computing, communication and waiting for data; they sum to the step's."""
    communication, data = steps["comm_s"], steps["data_s"]
    return {
        "computing": steps["step_s"] - communication - data,
        "communication": communication,
        "waiting for data": data,
    }


def epoch_means(steps: Steps, name: str) -> tuple[Numbers, Numbers]:
    """Each epoch's middle step and the mean of column `name` over its steps that have a number."""
    epochs = [steps["epoch"] == epoch for epoch in np.unique(steps["epoch"])]
    means = [_reduced(steps[name][epoch], np.nanmean) for epoch in epochs]
    return np.array([steps["step"][epoch].mean() for epoch in epochs]), np.array(means)


def binned(x: Numbers, y: Numbers, bins: int, reduce: Reduce = np.nanmean) -> tuple[Numbers, Numbers]:
    """`x` and `y` (n,) reduced in at most `bins` runs of about equal length; a run without a number is NaN."""
    runs = np.array_split(np.arange(len(x)), min(bins, len(x)))
    return np.array([x[run].mean() for run in runs]), np.array([_reduced(y[run], reduce) for run in runs])


def _reduced(values: Numbers, reduce: Reduce) -> float:
    return float(reduce(values)) if np.isfinite(values).any() else np.nan


@styled
def data_uri(figure: Figure, kind: Literal["png", "svg"]) -> str:
    """The figure as a `data:` address, to stand in a page by itself."""
    buffer = BytesIO()
    figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    mime = {"png": "image/png", "svg": "image/svg+xml"}[kind]
    return f"data:{mime};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _scale_of(density: npt.NDArray[Any]) -> Normalize:
    return Normalize(min(0.0, float(density.min())), float(density.max()) or 1.0)


def _line_axes(ax: Axes, label: str) -> None:
    ax.set_ylabel(label)
    ax.spines[["top", "right"]].set_visible(False)
    ax.margins(x=0.01)


@styled
def scaling_figure(curve: Sequence[Mapping[str, Any]], published: Sequence[Mapping[str, Any]]) -> Figure:
    """Efficiency against ranks: the configuration's strategy, the others, and published numbers beside the model's."""
    figure = Figure(figsize=(8, 4.8), layout="constrained")
    ax = figure.subplots()
    ranks = [row["ranks"] for row in curve]
    colours = (INK, BLUE, GOLD, RED, "#7b5ea7")
    for name, colour in zip(curve[0]["others"], colours, strict=False):
        ax.plot(ranks, [row["others"][name] for row in curve], color=colour, lw=1.2, label=name)
    ax.plot(ranks, [row["efficiency"] for row in curve], "k.", ms=5, label="this configuration")
    points = [fact for fact in published if fact["ranks"]]
    for fact, marker in zip(points, "osD", strict=False):
        ax.plot(
            fact["ranks"], fact["published"], marker, color=RED, ms=5, label=f"{fact['source']}: {fact['published']:g}"
        )
        ax.plot(fact["ranks"], fact["model"], marker, color=RED, mfc="none", ms=9)
    ax.set(xscale="log", ylim=(0, 1.03), xlabel="ranks", ylabel="efficiency")
    ax.set_title("Weak scaling (red, filled: published; open: the model of the same job)")
    ax.legend(loc="lower left", fontsize="small")
    return figure
