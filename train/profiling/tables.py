"""A profile as tables on the terminal, of the kind of tables 1 and 2 of Laanait et al. (2019)."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from namsa.base.files import make_folder, write_text_atomic
from namsa.base.text import plural, shorten

from ..measure.performance import sustained_and_peak
from ..measure.profile_results import (
    FILE_NAME,
    AlgorithmRow,
    KindRow,
    Profile,
    SynchronisationFacts,
)
from ..reports.timeline_figure import timeline_figure
from ..tasks.reporting import write_report


def show(profile: Profile, console: Console) -> None:
    """Prints a profile."""
    console.print(headline(profile), highlight=False, soft_wrap=True)
    _print(
        console,
        "Time by kind of operation",
        ("kind", "calls", "ms per step", "share", "GFLOP/s"),
        [_kind_cells(row) for row in profile["kinds"]],
    )
    if "phases" in profile:
        phases = []
        for phase in profile["phases"]:
            phases.append((phase["phase"], _ms(phase["seconds"]), f"{phase['share']:.1%}"))
        _print(console, "Time by phase of the step", ("phase", "ms per step", "share"), phases)
    if profile["algorithms"]:
        _print(
            console,
            "Algorithms of the convolutions",
            ("algorithm", "kind", "tensor cores", "calls", "ms per step"),
            [_algorithm_cells(row) for row in profile["algorithms"]],
            text_columns=3,
        )
    longest = []
    for row in profile["operations"]:
        name = _layer(row["name"])
        longest.append((name, row["kind"], f"{row['calls']:.0f}", _ms(row["operation_s"])))
    columns = ("operation", "kind", "calls", "ms per step")
    _print(console, "The longest operations", columns, longest, text_columns=2)
    if profile["ranks"] > 1:
        spread = []
        for times in profile["spread"]:
            highest = _ms(times["highest"])
            spread.append((times["name"], _ms(times["lowest"]), _ms(times["median"]), highest))
        _print(console, "Over the ranks, ms per step", ("", "lowest", "median", "highest"), spread)
    for line in rates(profile):
        console.print(line, highlight=False, soft_wrap=True)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}"


def _kind_cells(row: KindRow) -> tuple[str, ...]:
    calls = f"{row['calls']:.0f}" if row["calls"] else ""
    rate = f"{row['flop_per_s'] / 1e9:,.1f}" if "flop_per_s" in row else ""
    return row["kind"], calls, _ms(row["seconds"]), f"{row['share']:.1%}", rate


def _algorithm_cells(row: AlgorithmRow) -> tuple[str, ...]:
    tensor_cores = "yes" if row["tensor_cores"] else "no"
    calls = f"{row['calls']:.0f}"
    return row["algorithm"], row["kind"], tensor_cores, calls, _ms(row["operation_s"])


def headline(profile: Profile) -> str:
    """Returns what was profiled, in one line."""
    if profile["data"] == "samples":
        data = "its samples"
    else:
        data = "random data of the samples' shape: there are none yet"
    return (
        f"{profile['name']}: {plural(profile['steps'], 'step')} on {data}; "
        f"{plural(profile['ranks'], 'rank')}, rank 0 on {profile['machine']}"
    )


def _layer(name: str) -> str:
    """Returns the layer of an operation's path, or a kernel's name.

    The layer is without the names of the network and of the operation.
    """
    path = name.rpartition(":")[0].removeprefix("gradient_tape/").removeprefix("forward/")
    if "::" in name or not path or path.startswith("/"):
        return shorten(name, 56)
    parts = path.split("/")
    if len(parts) > 2:
        parts = parts[1:-1]
    return "/".join(parts)


def rates(profile: Profile) -> list[str]:
    """Returns the times of a step and the rates of a rank, in two lines."""
    step_s = profile["step_s"]
    convolutions_s = profile["convolutions_s"]
    sustained, peak = sustained_and_peak(profile["step_flop"], step_s, convolutions_s)
    lines = [
        f"step: {1e3 * step_s:.3f} ms without the profiler, {1e3 * profile['profiled_step_s']:.3f} "
        f"ms with it; convolutions: {1e3 * convolutions_s:.3f} ms"
    ]
    if peak:
        lines.append(
            f"FLOP/s of a rank: {sustained:.4g} over the step (no checkpoints), {peak:.4g} over "
            "the convolutions (peak)"
        )
    if "synchronisation" in profile:
        lines.append(synchronisation(profile["synchronisation"]))
    if "exchange" in profile:
        facts = profile["exchange"]
        lines.append(
            f"{facts['calls']:.3g} exchanges of divided samples: {1e3 * facts['seconds']:.3f} ms, "
            f"of that {1e3 * facts['hidden_s']:.3f} ms while convolutions run"
        )
    if profile["device"] == "CPU":
        lines.append("the trace of a CPU does not tell the convolutions' algorithms")
    return lines


def synchronisation(facts: SynchronisationFacts) -> str:
    """Returns what local SGD averages, how often here and in the job, and how long it takes, in one
    line.
    """
    configured = facts["configured"]
    if configured == "epoch":
        often = "once an epoch"
    else:
        often = f"after every {plural(int(configured), 'step')}"
    return (
        f"local SGD averages {facts['sent_bytes'] / 1e6:,.3g} MB {often}: "
        f"{1e3 * facts['seconds']:.3f} ms each time, without the profiler; in this profile after "
        f"every {plural(facts['every'], 'step')}"
    )


def _print(
    console: Console,
    title: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    text_columns: int = 1,
) -> None:
    """Prints one table."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for index, heading in enumerate(head):
        table.add_column(
            heading, justify="left" if index < text_columns else "right", overflow="fold"
        )
    for row in rows:
        table.add_row(*row)
    console.print(table, highlight=False)


def write(profile: Profile, folder: Path) -> list[Path]:
    """Writes profile.json and timeline.png, and a run's report again if there is one; returns the
    files.
    """
    make_folder(folder)
    table = folder / FILE_NAME
    picture = folder / "timeline.png"
    report = folder / "report.html"
    write_text_atomic(table, json.dumps(profile) + "\n")
    timeline_figure(profile).savefig(picture, dpi=150)
    if report.exists():
        return [table, picture, write_report(folder)]
    return [table, picture]
