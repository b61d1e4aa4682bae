"""Diagrams at the head of guides, which `scripts/docs_pictures.py` writes."""

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

COMPUTE = "tab:blue"
SEND = "tab:orange"
SMALL: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}  # of a text in a diagram


class Stage(NamedTuple):
    """Work of a rank in a stretch of time."""

    begin: float
    length: float
    row: float  # 0 computes, 0.5 beside it
    color: str


def box(axes: Axes, place: tuple[float, float], text: str, width: float = 2.0) -> None:
    """Draws a box with its text about a place."""
    x, y = place
    corner = (x - width / 2, y - 0.36)
    axes.add_patch(FancyBboxPatch(corner, width, 0.72, boxstyle="round,pad=0.06", fc="white"))
    axes.text(x, y, text, ha="center", va="center", fontsize=8)


def arrow(axes: Axes, begin: tuple[float, float], end: tuple[float, float], text: str = "") -> None:
    """Draws an arrow with its text on the middle."""
    axes.annotate("", end, begin, arrowprops={"arrowstyle": "->", "color": "tab:blue"})
    middle = ((begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2)
    white = {"fc": "white", "ec": "none", "pad": 1}
    axes.text(*middle, text, ha="center", va="center", fontsize=7, bbox=white)


def blank(size: tuple[float, float], limits: tuple[float, float, float, float]) -> Axes:
    """Returns axes without frame; limits are those of x and y."""
    axes = Figure(figsize=size, layout="constrained").subplots()
    axes.set(xlim=limits[:2], ylim=limits[2:])
    axes.axis("off")
    return axes


def exchange() -> Figure:
    """Draws what comes from and goes to other programs."""
    axes = blank((7.5, 3), (-5.3, 5.3, -2.4, 2.4))
    inputs = {
        "crystals": "CIF, POSCAR, XYZ, XSF,\nPDB, LAMMPS, muSTEM",
        "densities of DFT": "CHGCAR, AECCAR, cube",
        "4D-STEM scans": "HDF5, MIB, DM4, ...\nLiberTEM, quantem",
    }
    outputs = {
        "ptychography": "PtyRAD, phaser,\npy4DSTEM, quantem",
        "patterns": "HDF5 (EMD), Zarr: HyperSpy,\npy4DSTEM, py4D-browser",
        "samples": "PyTorch, Grain, Keras,\nLMDB of the paper's authors",
    }
    box(axes, (0, 0), "namsa", 1.4)
    for y, (kind, programs) in zip((1.7, 0, -1.7), inputs.items(), strict=True):
        box(axes, (-3.9, y), programs, 2.5)
        arrow(axes, (-2.55, y), (-0.8, 0.25 * y), kind)
    for y, (kind, programs) in zip((1.7, 0, -1.7), outputs.items(), strict=True):
        box(axes, (3.9, y), programs, 2.5)
        arrow(axes, (0.8, 0.25 * y), (2.55, y), kind)
    return figure_of(axes)


def figure_of(axes: Axes) -> Figure:
    """Returns the figure of axes."""
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    return figure


def division() -> Figure:
    """Draws a sample in four parts with the rows that each has of its neighbours."""
    axes = blank((6.5, 2.8), (-1.4, 9.6, -0.3, 4.8))
    for rank in range(4):
        bottom = 3.3 - 1.1 * rank
        axes.add_patch(Rectangle((0, bottom), 4, 1.1, fc=f"C{rank}", alpha=0.6))
        axes.text(2, bottom + 0.55, f"rows of rank {rank}", ha="center", va="center", fontsize=8)
        halo_start = bottom - (0.25 if rank < 3 else 0)
        last = bottom + 1.1 + (0.25 if rank else 0)
        left = 5 + 1.15 * rank
        axes.add_patch(Rectangle((left, bottom), 0.9, 1.1, fc=f"C{rank}", alpha=0.6))
        for edge, size in ((halo_start, bottom - halo_start), (bottom + 1.1, last - bottom - 1.1)):
            if size < 0.01:  # the edge of the sample
                continue
            axes.add_patch(Rectangle((left, edge), 0.9, size, fc="none", ec="k", hatch="////"))
    axes.text(2, 4.5, "a sample", ha="center", fontsize=8)
    axes.text(7.2, 4.5, "a convolution's input", ha="center", fontsize=8)
    axes.text(7.2, -0.2, "hatched: rows of neighbours", ha="center", fontsize=8)
    return figure_of(axes)


def exchange_kinds() -> Figure:
    """Draws when ranks compute and exchange, for the kinds of `training.exchange`."""
    allreduce: list[Stage] = []
    lag: list[Stage] = []
    local_sgd: list[Stage] = []
    sharded: list[Stage] = []
    for step in range(4):
        begin = 1.5 * step
        allreduce += [Stage(begin, 1, 0, COMPUTE), Stage(begin + 1, 0.5, 0, SEND)]
        begin = 1.1 * step
        lag += [Stage(begin, 1, 0, COMPUTE), Stage(begin + 1.1, 0.5, 0.5, SEND)]
        local_sgd.append(Stage(begin, 1, 0, COMPUTE))
        begin = 1.6 * step
        sharded += [
            Stage(begin, 1, 0, COMPUTE),
            Stage(begin + 1, 0.25, 0, SEND),
            Stage(begin + 1.3, 0.25, 0, SEND),
        ]
    local_sgd.append(Stage(4.4, 0.5, 0, SEND))
    kinds = {
        "allreduce, hybrid\n(gradients)": allreduce,
        "lag\n(gradients of the step before)": lag,
        "local_sgd, synchronise: 4\n(weights)": local_sgd,
        "sharded\n(gradients, then weights)": sharded,
    }
    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.subplots()
    for index, stages in enumerate(kinds.values()):
        for stage in stages:
            bottom = -1.2 * index + stage.row - 0.2
            axes.broken_barh([(stage.begin, stage.length)], (bottom, 0.4), color=stage.color)
    axes.set(yticks=[-1.2 * index for index in range(len(kinds))], yticklabels=list(kinds))
    axes.set(xlabel="time (not to scale)", xticks=[], ylim=(-4.2, 1.3))
    for label, color in (("a rank computes a step", COMPUTE), ("ranks exchange", SEND)):
        axes.plot([], [], color=color, linewidth=6, label=label)
    axes.legend(loc="upper right", ncols=2, fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def sources() -> Figure:
    """Draws from where a rank gets its samples, by kind of `data.source`."""
    axes = blank((7.5, 3.1), (-1.6, 10.4, -0.6, 4.6))
    box(axes, (0, 4), "simulator")
    box(axes, (0, 2.6), "shared dataset")
    box(axes, (0, 1.2), "HDF5 file")
    box(axes, (0, -0.1), "LMDB of the authors")
    box(axes, (4.6, 2.6), "data.directory\non a node", 2.0)
    box(axes, (9.0, 2.6), "memory\nof a rank", 1.6)
    arrow(axes, (1.2, 3.8), (3.5, 2.95), "simulated")
    arrow(axes, (1.2, 2.6), (3.4, 2.6), "staged, drawn")
    arrow(axes, (1.2, 0.0), (3.6, 2.15), "stemdl")
    arrow(axes, (1.2, 1.2), (8.0, 2.2), "slabs: parts of samples")
    arrow(axes, (1.2, 4.15), (8.0, 3.1), "simulate: while the network trains")
    arrow(axes, (5.8, 2.6), (8.0, 2.6), "each step\n(memory: once)")
    return figure_of(axes)


def install() -> Figure:
    """Draws what the package does and what each extra adds."""
    axes = blank((7.5, 2.4), (-1.5, 9.8, -0.4, 2.8))
    box(axes, (0, 0.8), "namsa", 2.4)
    axes.text(0, 0.05, "simulate, inspect, view,\nconvert: NumPy, SciPy", **SMALL)
    extras = {
        "[formats]": "more formats:\nZarr, filters of HDF5",
        "[reconstruct], [jax]": "densities and other maps\nby trained networks",
        "[train]": "train networks\nin one process",
        "a checkout": "train on several ranks:\nHorovod, compiled",
    }
    places = ((3.4, 2.2), (3.4, 0.8), (6.2, 0.8), (8.5, 2.2))
    for (name, adds), place in zip(extras.items(), places, strict=True):
        box(axes, place, name, 2.0)
        axes.text(place[0], place[1] - 0.75, adds, **SMALL)
    arrow(axes, (1.3, 1.1), (2.3, 1.95))
    arrow(axes, (1.3, 0.8), (2.3, 0.8))
    arrow(axes, (4.5, 0.8), (5.1, 0.8))
    arrow(axes, (6.7, 1.25), (7.5, 1.95))
    return figure_of(axes)


def coming_from() -> Figure:
    """Draws one specimen as arrays of abTEM and of namsa, with the first index downwards, and a
    position and a tilt in the words of both.
    """
    y, x = np.mgrid[0:60, 0:80]
    image = np.zeros((60, 80))
    for atom_y, atom_x in ((12, 16), (28, 16), (44, 16), (44, 36), (44, 56)):
        image += np.exp(-((y - atom_y) ** 2 + (x - atom_x) ** 2) / 18)
    figure = Figure(figsize=(7, 3.1), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.imshow(image.T)
    words = "probe at (x, y) = (5.6, 4.4) Å\ntilt=(5, 0) mrad"
    left.set(title="abTEM: array[x, y]", xlabel=f"y\n{words}", ylabel="x, the first index")
    left.plot(44, 56, "rx")
    right.imshow(image)
    words = "probe at (y, x) = (4.4, 5.6) Å\nspecimen_tilt_mrad=(0, −5)"
    right.set(title="namsa: array[y, x]", xlabel=f"x\n{words}", ylabel="y, the first index")
    right.plot(56, 44, "rx")
    for axes in (left, right):
        axes.set(xticks=[], yticks=[])
    return figure


STACKS = {  # layers of the packages, from the ground up
    "namsa": (
        "base, config",
        "crystals, physics",
        "io, figures",
        "samples, setup",
        "engines, sampling",
        "simulation, scattering",
        "dataset",
        "inverse, inspection",
        "view, exchange, parallax",
        "cli",
    ),
    "fcdensenet": ("config", "blocks, keras_layers", "build", "count, describe"),
    "train": (
        "execution, networks",
        "experiment, ranks",
        "input, measure",
        "optimization",
        "reports, tasks",
        "staging, scaling, apply",
        "strategies, tasks/TASK",
        "phases",
        "main, recipe",
        "commands",
    ),
}


def structure() -> Figure:
    """Draws the layers of the packages; `train` stands on the two others."""
    axes = blank((7.5, 3.8), (-1.6, 9.6, -0.6, 10.6))
    for place, (package, layers) in enumerate(STACKS.items()):
        x = 4.0 * place
        for y, layer in enumerate(layers):
            corner = (x - 1.5, y - 0.42)
            axes.add_patch(Rectangle(corner, 3.0, 0.84, fc=f"C{place}", alpha=0.25, ec="k"))
            axes.text(x, y, layer, **SMALL)
        axes.text(x, len(layers) - 0.1, package, ha="center", fontsize=9, weight="bold")
    arrow(axes, (6.4, 1.0), (5.6, 1.0))
    arrow(axes, (6.4, 6.0), (1.6, 6.0), "imports")
    return figure_of(axes)
