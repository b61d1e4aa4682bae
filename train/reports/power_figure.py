"""Power over time, as figure 5 of Laanait et al. (2019)."""

from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from namsa.figures.panels import styled

from .figures import BLUE, GOLD, INK, RED, binned
from .runs import Numbers, Steps

BINS = 400


class Power(NamedTuple):
    """Power of rank 0 over time."""

    # Time at the end of each step since the first one ended, without pauses between starts of the job, s.
    seconds: Numbers
    watts: Numbers  # mean power during the step, W
    gpu_watts: Numbers  # the part of the GPU, W; NaN where it was not metered
    flop_per_joule: Numbers  # FLOP of the convolutions over the energy of the step: FLOP/s per watt


def power(steps: Steps) -> Power | None:
    """Returns the power during the steps, `None` where the machine told no energy.

    A step's energy is that of its wall time, wall_s, which rows of version 0.1 lack: there it is step_s. The first
    step, which builds the graph, is left out.

    Args:
        steps: Columns of `metrics.jsonl`: step_s, and where known wall_s, energy_j, energy_gpu_j and flop_per_s.
    """
    energy = steps.get("energy_j", np.array([]))
    wall = np.where(np.isfinite(steps["wall_s"]), steps["wall_s"], steps["step_s"]) if len(energy) else energy
    known = np.isfinite(energy) & (energy > 0) & (wall > 0)
    known[:1] = False
    if not known.any():
        return None
    gpu = steps.get("energy_gpu_j", np.full(len(energy), np.nan))[known]
    wall, energy, flop = wall[known], energy[known], (steps["flop_per_s"] * steps["step_s"])[known]
    return Power(np.cumsum(wall), energy / wall, gpu / wall, flop / energy)


@styled
def power_figure(drawn: Power) -> Figure:
    """Draws power and FLOP/s per watt over time."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    unit, name = (3600, "h") if drawn.seconds[-1] > 7200 else (60, "min") if drawn.seconds[-1] > 120 else (1, "s")
    lines = [(above, drawn.watts, BLUE, "all")]
    if np.isfinite(drawn.gpu_watts).any():
        lines += [(above, drawn.gpu_watts, RED, "GPU"), (above, drawn.watts - drawn.gpu_watts, INK, "processors")]
    lines += [(below, drawn.flop_per_joule / 1e9, GOLD, "")]
    for ax, values, colour, label in lines:
        seconds, means = binned(drawn.seconds, values, BINS)
        ax.plot(seconds / unit, means, color=colour, lw=1.2, label=label)
    for ax, label in ((above, "W"), (below, "GFLOP/s per W")):
        ax.set(ylabel=label, ylim=(0, 1.15 * np.nanmax([np.nanmax(line.get_ydata()) for line in ax.lines])))
        ax.spines[["top", "right"]].set_visible(False)
        ax.margins(x=0.01)
    if len(above.lines) > 1:
        above.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False, borderaxespad=0)
    below.set_xlabel(f"time in steps, {name}")
    return figure
