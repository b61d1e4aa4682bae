"""The picture of a scaling report: efficiency and FLOP/s over ranks, as figures 1 and 6 of Laanait
et al. 2019.
"""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from namsa.figures.panels import styled

from ..reports.figures import BLUE, GOLD, INK, RED
from .published import PUBLISHED_FLOP_PER_S, PublishedResult
from .results import ScalingReport
from .strategy import SUMMIT

PURPLE = "#7b5ea7"
GREEN = "#5b8e3e"
# of the strategies, as in figure 1, and gold for groups alone
COLOURS = (RED, INK, GOLD, BLUE, GREEN)
LEGEND = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "fontsize": "small"}


@styled
def scaling_figure(report: ScalingReport) -> Figure:
    """Draws efficiency and FLOP/s against the number of ranks, and published numbers beside the
    model's.
    """
    figure = Figure(figsize=(13.5, 5.2), layout="constrained")
    strategies, published, rates = figure.subplots(1, 3)
    _strategies(strategies, report)
    _published(published, report.published)
    _rates(rates, report)
    for ax in (strategies, published, rates):
        ax.set(xscale="log", xlabel="ranks")
        ax.grid(alpha=0.25, lw=0.6)
    return figure


def _strategies(ax: Axes, report: ScalingReport) -> None:
    """Draws the configuration's efficiency, and that of the same job with other strategies."""
    ranks = [row["ranks"] for row in report.curve]
    for name, colour in zip(report.curve[0]["others"], COLOURS, strict=True):
        dashes = (0, (5, 3)) if colour == INK else "-"  # it often lies under another
        others = [row["others"][name] for row in report.curve]
        ax.plot(ranks, others, color=colour, lw=1.6, ls=dashes, label=name)
    efficiencies = [row["efficiency"] for row in report.curve]
    ax.plot(ranks, efficiencies, "o", color=PURPLE, ms=4.5, label="this configuration")
    ax.set(ylim=(0, 1.04), ylabel="efficiency")
    ax.set_title(f"{report.name} on {report.machine}, by strategy (model)")
    ax.legend(**LEGEND)


def _published(ax: Axes, results: Sequence[PublishedResult]) -> None:
    """Draws published efficiencies that are equalities, and the model of the same jobs."""
    jobs: dict[tuple[int, float, float], list[str]] = {}
    for result in results:
        if result.ranks and result.kind == "equal":
            job = (result.ranks, result.published, round(result.model, 3))
            star = "*" if result.fitted else ""
            jobs.setdefault(job, []).append(f"{result.network}{star}")
    for (job, networks), marker in zip(sorted(jobs.items()), "^svoD", strict=False):
        ranks, published, model = job
        label = f"{' and '.join(networks)}: {published:g}, model {model:.3f}"
        ax.plot([ranks, ranks], [published, model], color=INK, lw=0.8)
        ax.plot(ranks, published, marker, color=INK, ms=6, label=label)
        ax.plot(ranks, model, marker, color=INK, mfc="white", ms=6)
    ax.set(xlim=(1e3, 5e4), ylim=(0.75, 1.02), ylabel="efficiency")
    ax.set_title("Published (filled) and model (open); * fitted")
    ax.legend(**LEGEND)


def _rates(ax: Axes, report: ScalingReport) -> None:
    """Draws FLOP/s of the job beside linear scaling and the published rates of Summit."""
    ranks = [row["ranks"] for row in report.curve]
    sustained = [row["flop_per_s"] for row in report.curve]
    of_one = report.curve[0]
    of_one_rank = of_one["flop_per_s"] / of_one["efficiency"] / of_one["ranks"]
    linear = [rank_count * of_one_rank for rank_count in ranks]
    ax.plot(ranks, linear, color=INK, lw=0.8, ls=(0, (5, 3)), label="sustained if linear")
    ax.plot(ranks, sustained, ".-", color=PURPLE, lw=1.6, label="sustained")
    peaks = [row["peak_flop_per_s"] for row in report.curve if "peak_flop_per_s" in row]
    if peaks:
        ax.plot(ranks, peaks, ".-", color=GOLD, lw=1.6, label="peak: over the convolutions alone")
    if report.machine == SUMMIT.name:
        _published_rates(ax)
    ax.set(yscale="log", ylabel="FLOP/s of all ranks")
    ax.set_title(f"{report.name} on {report.machine}, FLOP/s (model)")
    ax.legend(**LEGEND)


def _published_rates(ax: Axes) -> None:
    """Draws the published rates of Summit."""
    for (name, (ranks, rate)), marker in zip(PUBLISHED_FLOP_PER_S.items(), "os", strict=False):
        label = f"Laanait et al. 2019, {name}: {rate / 1e18:.2f} EFLOP/s"
        ax.plot(ranks, rate, marker, color=INK, mfc="none", ms=8, ls="", label=label)
