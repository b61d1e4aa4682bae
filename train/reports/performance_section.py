"""What the report says of a run's performance: FLOP/s, where a step's time goes by kind of operation, and power."""

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from ..measure.performance import PAPER_STEPS, sustained_and_peak
from ..measure.profile_results import Profile
from ..measure.results import PerformanceSummary, Spread
from ..program import PROGRAM
from . import figures
from .power_figure import power, power_figure
from .report_tables import missing, plain, table
from .runs import Steps
from .timeline_figure import timeline_figure

NOT_MEASURED = f"not measured (run {PROGRAM} profile CONFIG --out RUN_DIR)"


def performance(run: Mapping[str, Any], profile: Profile | None) -> dict[str, str]:
    """Returns the summary of `train.measure.performance` in words.

    Args:
        run: Facts of `evaluation.json`.
        profile: A profile of the run's steps; `None` without one.
    """
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


def _spread(values: Spread, unit: str = "") -> str:
    """A median with the bounds of the central 68%."""
    return f"{values['median']:.4g}{unit}, 68% between {values['low']:.4g} and {values['high']:.4g}"


def _sustained(measured: PerformanceSummary) -> str:
    """The sustained rate. Runs of version 0.1 have that of the median step, without checkpoints."""
    rate = f"{measured['sustained_flop_per_s']:.4g}"
    if "wall_s" not in measured:
        return f"{rate} (median step, without checkpoints)"
    steps = measured["wall_s"]["steps"]
    few = f", fewer than the {PAPER_STEPS:,} of Laanait et al. (2019)" if steps < PAPER_STEPS else ""
    deviation = np.sqrt(measured["sustained_variance"])
    return (
        f"{rate}, standard deviation {deviation:.2g}, variance {measured['sustained_variance']:.2g}, over "
        f"{steps:,} steps{few}; with reading and checkpoints"
    )


def _peak(measured: PerformanceSummary, ranks: int, profile: Profile | None) -> str:
    """The peak rate, if a profile tells the time of the convolutions of this network's steps."""
    if profile is None or "wall_s" not in measured:
        return NOT_MEASURED
    if profile["step_flop"] != measured["step_flop"]:
        return f"{NOT_MEASURED}: profile.json is of steps of another size"
    convolutions_s, efficiency = profile["convolutions_s"], measured["efficiency"]
    alone_s = efficiency * measured["wall_s"]["mean"]
    peak = sustained_and_peak(measured["step_flop"], alone_s, convolutions_s, ranks, efficiency).peak
    if peak is None:
        return NOT_MEASURED
    return f"{peak:.4g}: {ranks} × FLOP / {1e3 * convolutions_s:.4g} ms of convolutions × efficiency {efficiency:.3f}"


def profiled(profile: Profile | None) -> str:
    """Returns the time of a step by kind of operation, and the timeline of one step."""
    if profile is None:
        return missing(f"No profile. <code>{PROGRAM} profile CONFIG --out RUN_DIR</code> makes one.")
    rows = [
        (
            escape(row["kind"]),
            f"{row['calls']:.0f}" if row["calls"] else "",
            f"{1e3 * row['seconds']:.3f}",
            f"{row['share']:.1%}",
            f"{row['flop_per_s']:.3g}" if "flop_per_s" in row else "",
        )
        for row in profile["kinds"]
    ]
    phases = ", ".join(f"{row['phase']} {1e3 * row['seconds']:.3g} ms" for row in profile.get("phases", []))
    if phases:
        phases = f"<p>By phase of the step: {escape(phases)}. {_synchronisation(profile)}</p>"
    head = ("Kind", "Calls", "ms per step", "Share", "FLOP/s")
    data = "samples" if profile["data"] == "samples" else "random data"
    text = (
        f"{profile['steps']} steps on {data}, {escape(plain(profile['ranks']))} ranks, rank 0 on "
        f"{escape(profile['machine'])}: {1e3 * profile['step_s']:.4g} ms per step, and "
        f"{1e3 * profile['profiled_step_s']:.4g} ms under the profiler, to which the table and the timeline belong. "
        "A kind's time is that in which at least one of its operations runs; kinds run at the same time."
    )
    source = figures.data_uri(timeline_figure(profile), "png")
    picture = f'<figure><img class="plot" src="{source}" alt="One step: what each thread or stream does"></figure>'
    return f"<p>{text}</p>{phases}{table('', head, rows, text_columns=1)}{picture}"


def _synchronisation(profile: Profile) -> str:
    """What local SGD averages, and for how long; nothing where gradients are averaged."""
    if "synchronisation" not in profile:
        return ""
    facts = profile["synchronisation"]
    return (
        f"Local SGD averages {facts['sent_bytes'] / 1e6:,.3g} MB in {1e3 * facts['seconds']:.4g} ms, here after every "
        f"{facts['every']} steps; the configuration says {escape(plain(facts['configured']))}."
    )


def power_over_time(steps: Steps | None) -> str:
    """Returns power and FLOP per second and watt over time; nothing where the machine told no energy."""
    if steps is None or (drawn := power(steps)) is None:
        return ""
    source = figures.data_uri(power_figure(drawn), "svg")
    text = (
        f"Rank 0's GPU and its share of its node's processors draw {np.median(drawn.watts):.4g} W (median) and compute "
        f"{np.median(drawn.flop_per_joule):.4g} FLOP/s per watt, counting convolutions alone."
    )
    return f'<p>{text}</p><figure><img class="plot" src="{source}" alt="Power and FLOP/s per watt over time"></figure>'
