"""A profile as tables on the terminal, of the kind of tables 1 and 2 of Laanait et al. (2019)."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from namsa.files import make_folder, write_text_atomic
from namsa.text import plural, shorten

from ..measure.performance import sustained_and_peak
from ..measure.profile_results import FILE_NAME, Profile, SynchronisationFacts
from ..reports.timeline_figure import timeline_figure
from ..tasks.reporting import write_report


def show(profile: Profile, console: Console) -> None:
    """Prints a profile."""
    console.print(headline(profile), highlight=False, soft_wrap=True)
    kinds = [
        (
            row["kind"],
            f"{row['calls']:.0f}" if row["calls"] else "",
            f"{1e3 * row['seconds']:.3f}",
            f"{row['share']:.1%}",
            f"{row['flop_per_s'] / 1e9:,.1f}" if "flop_per_s" in row else "",
        )
        for row in profile["kinds"]
    ]
    _print(console, "Time by kind of operation", ("kind", "calls", "ms per step", "share", "GFLOP/s"), kinds)
    if "phases" in profile:
        phases = [(row["phase"], f"{1e3 * row['seconds']:.3f}", f"{row['share']:.1%}") for row in profile["phases"]]
        _print(console, "Time by phase of the step", ("phase", "ms per step", "share"), phases)
    algorithms = [
        (
            row["algorithm"],
            row["kind"],
            "yes" if row["tensor_cores"] else "no",
            f"{row['calls']:.0f}",
            f"{1e3 * row['operation_s']:.3f}",
        )
        for row in profile["algorithms"]
    ]
    if algorithms:
        head = ("algorithm", "kind", "tensor cores", "calls", "ms per step")
        _print(console, "Algorithms of the convolutions", head, algorithms, text_columns=3)
    longest = [
        (_layer(row["name"]), row["kind"], f"{row['calls']:.0f}", f"{1e3 * row['operation_s']:.3f}")
        for row in profile["operations"]
    ]
    columns = ("operation", "kind", "calls", "ms per step")
    _print(console, "The longest operations", columns, longest, text_columns=2)
    if profile["ranks"] > 1:
        spread = [
            (row["name"], *(f"{1e3 * row[key]:.3f}" for key in ("lowest", "median", "highest")))
            for row in profile["spread"]
        ]
        _print(console, "Over the ranks, ms per step", ("", "lowest", "median", "highest"), spread)
    for line in rates(profile):
        console.print(line, highlight=False, soft_wrap=True)


def headline(profile: Profile) -> str:
    """Returns what was profiled, in one line."""
    data = "its samples" if profile["data"] == "samples" else "random data of the samples' shape: there are none yet"
    return (
        f"{profile['name']}: {plural(profile['steps'], 'step')} on {data}; "
        f"{plural(profile['ranks'], 'rank')}, rank 0 on {profile['machine']}"
    )


def _layer(name: str) -> str:
    """Returns the layer of an operation's path, without the network's and the operation's names; or a kernel's name."""
    parts = name.rpartition(":")[0].removeprefix("gradient_tape/").removeprefix("forward/").split("/")
    return "/".join(parts[1:-1] if len(parts) > 2 else parts) if "::" not in name and parts[0] else shorten(name, 56)


def rates(profile: Profile) -> list[str]:
    """Returns the times of a step and the rates of a rank, in two lines."""
    step_s, convolutions_s = profile["step_s"], profile["convolutions_s"]
    whole, peak = sustained_and_peak(profile["step_flop"], step_s, convolutions_s)
    lines = [
        f"step: {1e3 * step_s:.3f} ms without the profiler, {1e3 * profile['profiled_step_s']:.3f} ms with it; "
        f"convolutions: {1e3 * convolutions_s:.3f} ms"
    ]
    if peak:
        lines.append(
            f"FLOP/s of a rank: {whole:.4g} over the step (no checkpoints), {peak:.4g} over the convolutions (peak)"
        )
    if "synchronisation" in profile:
        lines.append(synchronisation(profile["synchronisation"]))
    if "exchange" in profile:
        facts = profile["exchange"]
        lines.append(
            f"{facts['calls']:.3g} exchanges of divided samples: {1e3 * facts['seconds']:.3f} ms, of that "
            f"{1e3 * facts['hidden_s']:.3f} ms while convolutions run"
        )
    if profile["device"] == "CPU":
        lines.append("the trace of a CPU does not tell the convolutions' algorithms")
    return lines


def synchronisation(facts: SynchronisationFacts) -> str:
    """Returns what local SGD averages, how often here and in the job, and how long it takes, in one line."""
    configured = facts["configured"]
    often = "once an epoch" if configured == "epoch" else f"after every {plural(int(configured), 'step')}"
    return (
        f"local SGD averages {facts['sent_bytes'] / 1e6:,.3g} MB {often}: {1e3 * facts['seconds']:.3f} ms each time, "
        f"without the profiler; in this profile after every {plural(facts['every'], 'step')}"
    )


def _print(
    console: Console, title: str, head: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int = 1
) -> None:
    """Prints one table."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for number, heading in enumerate(head):
        table.add_column(heading, justify="left" if number < text_columns else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table, highlight=False)


def write(profile: Profile, folder: Path) -> list[Path]:
    """Writes profile.json and timeline.png, and a run's report again if there is one; returns the files."""
    make_folder(folder)
    table, picture, report = folder / FILE_NAME, folder / "timeline.png", folder / "report.html"
    write_text_atomic(table, json.dumps(profile) + "\n")
    timeline_figure(profile).savefig(picture, dpi=150)
    return [table, picture, write_report(folder)] if report.exists() else [table, picture]
