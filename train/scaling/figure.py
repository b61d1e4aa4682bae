"""The figure of a scaling report."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from namsa.view.panels import styled
from train.reports.figures import BLUE, GOLD, INK, RED
from train.scaling.published import PublishedResult
from train.scaling.results import CurveRow


@styled
def scaling_figure(curve: Sequence[CurveRow], published: Sequence[PublishedResult]) -> Figure:
    """Draws efficiency against ranks, for the configuration's strategy and others, beside published efficiencies.

    Args:
        curve: One row per number of ranks.
        published: Published results with the model's values.
    """
    figure = Figure(figsize=(8, 4.8), layout="constrained")
    ax = figure.subplots()
    ranks = [row["ranks"] for row in curve]
    colours = (INK, BLUE, GOLD, RED, "#7b5ea7")
    for name, colour in zip(curve[0]["others"], colours, strict=False):
        ax.plot(ranks, [row["others"][name] for row in curve], color=colour, lw=1.2, label=name)
    ax.plot(ranks, [row["efficiency"] for row in curve], "k.", ms=5, label="this configuration")
    efficiencies = [(result.ranks, result) for result in published if result.ranks]
    for (count, result), marker in zip(efficiencies, "osD", strict=False):
        label = f"{result.source}: {result.published:g}"
        ax.plot(count, result.published, marker, color=RED, ms=5, label=label)
        ax.plot(count, result.model, marker, color=RED, mfc="none", ms=9)
    ax.set(xscale="log", ylim=(0, 1.03), xlabel="ranks", ylabel="efficiency")
    ax.set_title("Weak scaling (red, filled: published; open: the model of the same job)")
    ax.legend(loc="lower left", fontsize="small")
    return figure
