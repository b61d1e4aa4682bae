"""Prints a scaling report: the curve, the recommendation and the checks of the model."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from namsa.text import plural

from .published import PublishedResult
from .results import CostFit, DivisionRow, ScalingReport, Synchronisation


def show(report: ScalingReport, console: Console, *, published: bool) -> None:
    """Prints a scaling report as tables, with every published result beside the model, or their number alone."""
    console.print(_curve(report))
    if report.synchronisation:
        console.print(_synchronisation(report.synchronisation), highlight=False)
    console.print(_recommendation(report), highlight=False)
    if report.division:
        console.print(_division(report.division))
    if published:
        console.print(_published(report.published))
    else:
        met = sum(result.met for result in report.published)
        console.print(
            f"The model agrees with {met} of {len(report.published)} published results: --published lists them.",
            highlight=False,
        )
    if report.measured:
        console.print(_fit(report.measured))


def _curve(report: ScalingReport) -> Table:
    """The predictions, one row per number of ranks."""
    origin = "as in the run" if report.compute_from == "run" else "from FLOP and the machine's rate"
    title = f"{report.name} on {report.machine}: {report.compute_s:.3g} s of computation per step and rank, {origin}"
    columns = {
        "ranks": ("ranks", ","),
        "efficiency": ("efficiency", ".3f"),
        "step, s": ("step_s", ".3g"),
        "samples per s": ("samples_per_s", ",.3g"),
        "FLOP/s": ("flop_per_s", ".3g"),
        "peak FLOP/s": ("peak_flop_per_s", ".3g"),
        "synchronise, s": ("synchronisation_s", ".3g"),
        "steps per epoch": ("steps_per_epoch", ","),
        "hours": ("hours", ".3g"),
    }
    # Ranks without a batch each take no steps.
    rows = [row | {"hours": row.get("hours") if row.get("steps_per_epoch", 1) else None} for row in report.curve]
    return _numbers(title, rows, columns)


def _numbers(title: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, tuple[str, str]]) -> Table:
    """The numbers of rows by their keys and formats, in the columns that one of them has."""
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    shown = {
        name: (key, form) for name, (key, form) in columns.items() if any(row.get(key) is not None for row in rows)
    }
    for column in shown:
        table.add_column(column, justify="right", min_width=max(map(len, column.split())))
    for row in rows:
        table.add_row(*("–" if row.get(key) is None else format(row[key], form) for key, form in shown.values()))
    return table


def _synchronisation(facts: Synchronisation) -> str:
    """What local SGD averages, and how often, in words."""
    what = "weights and moments" if facts.moments else "weights"
    often = "at the end of each epoch"
    if facts.every != "epoch":
        often = f"after every {plural(facts.every, 'step')} and {often}"
    return f"Local SGD: one block of {facts.block_bytes / 1e6:,.4g} MB ({what}) {often}."


def _division(rows: Sequence[DivisionRow]) -> Table:
    """Divided samples, one row per number of ways."""
    columns = {
        "ways": ("ways", ","),
        "ranks": ("ranks", ","),
        "step, s": ("step_s", ".3g"),
        "speed-up": ("speed_up", ".3g"),
        "computation, s": ("computation_s", ".3g"),
        "exchange, s": ("exchange_s", ".3g"),
        "reduction, s": ("reduction_s", ".3g"),
        "exchanges": ("exchanges", ","),
        "sent, MB": ("sent", ".3g"),
        "activations, GB": ("kept", ".3g"),
    }
    in_units = [row | {"sent": row["exchanged_bytes"] / 1e6, "kept": row["activation_bytes"] / 1e9} for row in rows]
    return _numbers("Samples divided over ranks, the same samples in a step", in_units, columns)


def _recommendation(report: ScalingReport) -> str:
    """How many ranks to ask for, in words."""
    best = report.recommended
    if best is None:
        return f"No number of ranks here reaches an efficiency of {report.min_efficiency:g} with a batch for each."
    if best["ranks"] == 1:
        return f"Use one rank: more have an efficiency below {report.min_efficiency:g}."
    text = f"Ask for up to {best['ranks']:,} ranks: the most of these that keep an efficiency of "
    text += f"{report.min_efficiency:g}" + (" and have a batch each." if report.samples is not None else ".")
    if report.samples is None:
        text += " With --samples, or if the dataset exists, hours are given too."
    return text


def _published(results: Sequence[PublishedResult]) -> Table:
    """The model beside published results."""
    table = Table(title="The model of other jobs against published results", box=box.SIMPLE_HEAD)
    for column in ("", "network", "GPUs", "published", "model", "fitted to it", "met"):
        table.add_column(column, justify="left" if column in ("", "network") else "right")
    for paper, rows in groupby(results, key=lambda result: result.source.partition(", ")[0]):
        table.add_section()
        table.add_row(paper, style="bold")
        for result in rows:
            where = result.source.partition(", ")[2]
            table.add_row(
                f"{result.name} ({where})",
                result.network,
                f"{result.ranks:,}" if result.ranks else "",
                _published_number(result),
                f"{result.model:.3g}",
                "yes" if result.fitted else "no",
                "yes" if result.met else "no",
            )
    return table


def _published_number(result: PublishedResult) -> str:
    """The number, as an inequality or a range if it is one."""
    if result.highest is not None:
        return f"{result.published:g} to {result.highest:g}"
    return f"{'≥ ' if result.kind == 'at_least' else ''}{result.published:g}"


def _fit(measured: CostFit) -> Table:
    """The fitted coordinator beside the measurements."""
    title = (
        f"The coordinator as measured: {1e6 * measured['cycle_s']:.3g} µs per cycle, "
        f"{1e6 * measured['message_s']:.3g} µs per message, {1e6 * measured['announcement_s']:.3g} µs per gradient and "
        f"rank; error where not fitted at most {100 * measured['worst']:.0f}%"
    )
    table = Table(title=title, box=box.SIMPLE_HEAD)
    for column in ("ranks", "", "measured, ms", "model, ms", "fitted to it"):
        table.add_column(column, justify="left" if column == "" else "right")
    for row in measured["rows"]:
        times = (f"{1e3 * seconds:.3g}" for seconds in (row["measured_s"], row["model_s"]))
        table.add_row(str(row["ranks"]), row["arm"], *times, "yes" if row["fitted"] else "no")
    return table
