"""The timeline of one training step, as figure 2 of Laanait et al. (2019)."""

from collections import defaultdict

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from namsa.figures.panels import styled

from ..measure import kinds
from ..measure.profile_results import COORDINATION_ROW, INPUT_ROW, REDUCTION_ROW, Profile

COLOURS = {
    kinds.FORWARD: "#174a6b",
    kinds.BY_INPUT: "#3f8fbf",
    kinds.BY_WEIGHTS: "#a3cfe6",
    kinds.PRODUCT: "#5e548e",
    kinds.POINTWISE: "#e09f3e",
    kinds.NORMALISATION: "#bc6c25",
    kinds.POOLING: "#8a5a44",
    kinds.SUMS: "#7a9e3d",
    kinds.RANDOM: "#c9ada7",
    kinds.OPTIMIZER: "#6c6f7d",
    kinds.MEMORY: "#3a7d5c",
    kinds.REDUCTION: "#9e2a2b",
    kinds.EXCHANGE: "#6b4c9a",
    kinds.COORDINATION: "#e5a3a3",
    kinds.INPUT: "#d65f8f",
    kinds.OTHER: "#9a9a9a",
    kinds.IDLE: "#f0f0f0",
}
BAR = 0.36  # half its height; rows are 1 apart


@styled
def timeline_figure(profile: Profile) -> Figure:
    """Draws one step: a row per thread or stream, the reduction and the input, with bars by kind of
    operation.

    The legend has the shares of all steps of the profile.
    """
    rows = profile["timeline"]
    figure = Figure(figsize=(9, 1.5 + 0.34 * len(rows)), layout="constrained")
    ax = figure.subplots()
    named = [row["kind"] for row in profile["kinds"]]
    thread = "stream" if profile["device"] == "GPU" else "thread"
    threads = 0
    labels = []
    for height, row in enumerate(rows):
        ax.axhspan(height - BAR, height + BAR, color=COLOURS[kinds.IDLE], lw=0, zorder=0)
        spans = defaultdict[int, list[tuple[float, float]]](list)
        for start, seconds, index in row["bars"]:
            spans[index].append((1e3 * start, 1e3 * seconds))
        for index, kind in enumerate(named):
            if spans[index]:
                ax.broken_barh(
                    spans[index], (height - BAR, 2 * BAR), facecolors=_colour(kind), linewidths=0
                )
        if row["row"] in (REDUCTION_ROW, COORDINATION_ROW, INPUT_ROW):
            labels.append(row["row"])
        else:
            threads += 1
            labels.append(f"{thread} {threads}")
    ax.set(
        xlim=(0, 1e3 * profile["timeline_s"]),
        ylim=(len(rows) - 0.4, -0.6),
        xlabel="ms since the start of the step",
    )
    ax.set_yticks(range(len(rows)), labels)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    patches = [
        Patch(facecolor=_colour(row["kind"]), label=f"{row['kind']} {row['share']:.1%}")
        for row in profile["kinds"]
    ]
    ax.legend(
        handles=patches,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=5,
        handlelength=0.9,
        columnspacing=1.2,
    )
    return figure


def _colour(kind: str) -> str:
    """Returns the colour of a kind; a later version may know more of them."""
    return COLOURS.get(kind, COLOURS[kinds.OTHER])
