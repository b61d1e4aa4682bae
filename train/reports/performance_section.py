"""Performance of a run in the report: FLOP/s, time of a step by kind of operation, and power."""

from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from namsa.figures.document import Block, Note, Paragraph, Picture, Table, code
from namsa.figures.panels import styled

from ..measure.performance import PAPER_STEPS, sustained_and_peak
from ..measure.profile_results import Profile
from ..measure.results import MedianSpread, PerformanceSummary, RunFacts
from ..program import PROGRAM
from . import figures
from .figures import BLUE, GOLD, INK, RED, binned
from .runs import Numbers, Steps
from .timeline_figure import timeline_figure
from .words import plain

NOT_MEASURED = f"not measured (run {PROGRAM} profile CONFIG --out RUN_DIR)"


def performance(run: RunFacts, profile: Profile | None) -> dict[str, str]:
    """Returns the summary of `train.measure.performance` in words."""
    measured: PerformanceSummary = run["performance"]
    parts = {
        "t_comp": measured["t_comp_s"],
        "t_comm": measured["t_comm_s"],
        "t_misc": measured["t_misc_s"],
        "waiting_for_data": measured["waiting_for_data_s"],
    }
    words = {
        "samples/s, all ranks": _spread(measured["samples_per_s"]),
        "time per step, mean of ranks": _spread(measured["step_s"], " s"),
        "of that, median": ", ".join(f"{name} {seconds:.3g} s" for name, seconds in parts.items()),
        "sustained FLOP/s of the convolutions, all ranks": _sustained(measured),
        "peak FLOP/s of the convolutions, all ranks": _peak(measured, run.get("ranks", 1), profile),
    }
    if "sync_s" in measured:
        words["synchronisation (local SGD)"] = (
            f"{measured['synchronisations']} in these steps, {_spread(measured['sync_s'], ' s')}; "
            f"{measured['t_sync_s']:.3g} s per step (mean)"
        )
    if "flop_per_s" in measured:
        words["FLOP/s without checkpoints, median"] = _spread(measured["flop_per_s"])
    words["memory of rank 0"] = f"{measured['memory_mib_per_rank']:,.0f} MiB"
    if "energy_j" in measured:
        words["energy of the training steps"] = f"{measured['energy_j'] / 3.6e6:.4g} kWh"
    return words


def _spread(values: MedianSpread, unit: str = "") -> str:
    """A median with the bounds of the central 68%."""
    return f"{values['median']:.4g}{unit}, 68% between {values['low']:.4g} and {values['high']:.4g}"


def _sustained(measured: PerformanceSummary) -> str:
    """The sustained rate. Runs of version 0.1 have that of the median step, without checkpoints."""
    rate = f"{measured['sustained_flop_per_s']:.4g}"
    if "wall_s" not in measured:
        return f"{rate} (median step, without checkpoints)"
    steps = measured["wall_s"]["steps"]
    if steps < PAPER_STEPS:
        few = f", fewer than the {PAPER_STEPS:,} of Laanait et al. (2019)"
    else:
        few = ""
    deviation = np.sqrt(measured["sustained_variance"])
    return (
        f"{rate}, standard deviation {deviation:.2g}, variance "
        f"{measured['sustained_variance']:.2g}, over {steps:,} steps{few}; with reading and "
        "checkpoints"
    )


def _peak(measured: PerformanceSummary, ranks: int, profile: Profile | None) -> str:
    """The peak rate, if a profile tells the time of the convolutions of this network's steps."""
    if profile is None or "wall_s" not in measured:
        return NOT_MEASURED
    if profile["step_flop"] != measured["step_flop"]:
        return f"{NOT_MEASURED}: profile.json is of steps of another size"
    convolutions_s = profile["convolutions_s"]
    efficiency = measured["efficiency"]
    alone_s = efficiency * measured["wall_s"]["mean"]
    peak = sustained_and_peak(
        measured["step_flop"], alone_s, convolutions_s, ranks, efficiency
    ).peak
    if peak is None:
        return NOT_MEASURED
    return (
        f"{peak:.4g}: {ranks} × FLOP / {1e3 * convolutions_s:.4g} ms of convolutions × efficiency "
        f"{efficiency:.3f}"
    )


def profiled(profile: Profile | None) -> list[Block]:
    """Returns the time of a step by kind of operation, and the timeline of one step."""
    if profile is None:
        command = code(f"{PROGRAM} profile CONFIG --out RUN_DIR")
        return [Note(("No profile. ", command, " makes one."))]
    data = "samples" if profile["data"] == "samples" else "random data"
    text = (
        f"{profile['steps']} steps on {data}, {plain(profile['ranks'])} ranks, rank 0 on "
        f"{profile['machine']}: {1e3 * profile['step_s']:.4g} ms per step, and "
        f"{1e3 * profile['profiled_step_s']:.4g} ms under the profiler, to which the table and the "
        "timeline belong. A kind's time is that in which at least one of its operations runs; "
        "kinds run at the same time."
    )
    blocks: list[Block] = [Paragraph(text)]
    phases = []
    for phase in profile.get("phases", []):
        phases.append(f"{phase['phase']} {1e3 * phase['seconds']:.3g} ms")
    if phases:
        by_phase = f"By phase of the step: {', '.join(phases)}. {_synchronisation(profile)}"
        blocks.append(Paragraph(by_phase))
    source = figures.data_uri(timeline_figure(profile), "png")
    alt = "One step: what each thread or stream does"
    return [*blocks, _kinds_table(profile), Picture(source, alt, plot=True)]


def _kinds_table(profile: Profile) -> Table:
    """Returns the time of a step by kind of operation."""
    rows = []
    for row in profile["kinds"]:
        calls = ""
        flop_per_s = ""
        if row["calls"]:
            calls = f"{row['calls']:.0f}"
        if "flop_per_s" in row:
            flop_per_s = f"{row['flop_per_s']:.3g}"
        milliseconds = f"{1e3 * row['seconds']:.3f}"
        rows.append((row["kind"], calls, milliseconds, f"{row['share']:.1%}", flop_per_s))
    return Table(("Kind", "Calls", "ms per step", "Share", "FLOP/s"), rows, text_columns=1)


def _synchronisation(profile: Profile) -> str:
    """Averages of local SGD and their time, in words; nothing where gradients are averaged."""
    if "synchronisation" not in profile:
        return ""
    facts = profile["synchronisation"]
    return (
        f"Local SGD averages {facts['sent_bytes'] / 1e6:,.3g} MB in {1e3 * facts['seconds']:.4g} "
        f"ms, here after every {facts['every']} steps; the configuration says "
        f"{plain(facts['configured'])}."
    )


def power_over_time(steps: Steps) -> list[Block]:
    """Returns power and FLOP per second and watt over time; nothing where no energy was metered."""
    measured = power(steps)
    if measured is None:
        return []
    text = (
        "Rank 0's GPU and its share of its node's processors draw "
        f"{np.median(measured.watts):.4g} W (median) and compute "
        f"{np.median(measured.flop_per_joule):.4g} FLOP/s per watt, counting convolutions alone."
    )
    source = figures.data_uri(power_figure(measured), "svg")
    picture = Picture(source, "Power and FLOP/s per watt over time", plot=True)
    return [Paragraph(text), picture]


BINS = 400


class Power(NamedTuple):
    """Power of rank 0 over time."""

    # Time at the end of each step since the first one ended, without pauses between starts of the
    # job, s.
    seconds: Numbers
    watts: Numbers  # mean power during the step, W
    gpu_watts: Numbers  # the part of the GPU, W; NaN where it was not metered
    flop_per_joule: Numbers  # FLOP of the convolutions over the energy of the step: FLOP/s per watt


def power(steps: Steps) -> Power | None:
    """Returns the power during the steps, `None` where no energy was metered.

    A step's energy is that of its wall time, wall_s, which rows of version 0.1 lack: there it is
    step_s. The first step, which builds the graph, is left out.

    Args:
        steps: Columns of `metrics.jsonl`: step_s, and where known wall_s, energy_j, energy_gpu_j
            and flop_per_s.
    """
    energy = steps.get("energy_j", np.array([]))
    if len(energy):
        wall = np.where(np.isfinite(steps["wall_s"]), steps["wall_s"], steps["step_s"])
    else:
        wall = energy
    known = np.isfinite(energy) & (energy > 0) & (wall > 0)
    known[:1] = False
    if not known.any():
        return None
    gpu = steps.get("energy_gpu_j", np.full(len(energy), np.nan))[known]
    wall = wall[known]
    energy = energy[known]
    flop = (steps["flop_per_s"] * steps["step_s"])[known]
    return Power(np.cumsum(wall), energy / wall, gpu / wall, flop / energy)


@styled
def power_figure(drawn: Power) -> Figure:
    """Draws power and FLOP/s per watt over time."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    unit_s, unit = _unit_of_time(drawn.seconds[-1])
    lines = [(above, drawn.watts, BLUE, "all")]
    if np.isfinite(drawn.gpu_watts).any():
        lines += [
            (above, drawn.gpu_watts, RED, "GPU"),
            (above, drawn.watts - drawn.gpu_watts, INK, "processors"),
        ]
    lines += [(below, drawn.flop_per_joule / 1e9, GOLD, "")]
    for ax, values, colour, label in lines:
        seconds, means = binned(drawn.seconds, values, BINS)
        ax.plot(seconds / unit_s, means, color=colour, lw=1.2, label=label)
    for ax, label in ((above, "W"), (below, "GFLOP/s per W")):
        largest = np.nanmax([np.nanmax(line.get_ydata()) for line in ax.lines])
        ax.set(ylabel=label, ylim=(0, 1.15 * largest))
        ax.spines[["top", "right"]].set_visible(False)
        ax.margins(x=0.01)
    if len(above.lines) > 1:
        above.legend(
            loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False, borderaxespad=0
        )
    below.set_xlabel(f"time in steps, {unit}")
    return figure


def _unit_of_time(seconds: float) -> tuple[float, str]:
    """Returns the unit of an axis of time up to some seconds: its seconds, and its name."""
    if seconds > 7200:
        return 3600, "h"
    if seconds > 120:
        return 60, "min"
    return 1, "s"
