"""Prints a scaling report: the curve, the recommendation and the checks of the model."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from namsa.base.text import plural

from ..measure.rows import Row
from .published import PublishedResult
from .results import CostFit, DivisionRow, ScalingReport, Synchronisation


def show(report: ScalingReport, console: Console, *, published: bool) -> None:
    """Prints a scaling report as tables, with every published result beside the model, or their
    number alone.
    """
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
            f"The model agrees with {met} of {len(report.published)} published results: "
            "--published lists them.",
            highlight=False,
        )
    if report.measured:
        console.print(_fit(report.measured))


def _curve(report: ScalingReport) -> Table:
    """The predictions, one row per number of ranks."""
    origin = "as in the run" if report.compute_from == "run" else "from FLOP and the machine's rate"
    title = (
        f"{report.name} on {report.machine}: {report.compute_s:.3g} s of computation per step and "
        f"rank, {origin}"
    )
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
    rows = []
    for row in report.curve:
        hours = row.get("hours")
        if not row.get("steps_per_epoch", 1):  # ranks without a batch each take no steps
            hours = None
        rows.append(row | {"hours": hours})
    return _numbers(title, rows, columns)


def _numbers(title: str, rows: Sequence[Row], columns: Mapping[str, tuple[str, str]]) -> Table:
    """Returns the numbers of rows, in the columns that one of them has.

    Args:
        columns: Key and format of each column, by its heading.
    """
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    shown = []
    for heading, (key, form) in columns.items():
        if any(row.get(key) is not None for row in rows):
            shown.append((key, form))
            widest_word = max(map(len, heading.split()))
            table.add_column(heading, justify="right", min_width=widest_word)
    for row in rows:
        table.add_row(*(_cell(row.get(key), form) for key, form in shown))
    return table


def _cell(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _synchronisation(facts: Synchronisation) -> str:
    """The averages of local SGD, and their interval, in words."""
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
    in_units = [
        row | {"sent": row["exchanged_bytes"] / 1e6, "kept": row["activation_bytes"] / 1e9}
        for row in rows
    ]
    return _numbers("Samples divided over ranks, the same samples in a step", in_units, columns)


def _recommendation(report: ScalingReport) -> str:
    """Returns how many ranks to ask for, in words."""
    best = report.recommended
    least = f"{report.min_efficiency:g}"
    if best is None:
        return f"No number of ranks here reaches an efficiency of {least} with a batch for each."
    if best["ranks"] == 1:
        return f"Use one rank: more have an efficiency below {least}."
    text = (
        f"Ask for up to {best['ranks']:,} ranks: the most of these that keep an efficiency of "
        f"{least}"
    )
    if report.samples is not None:
        return f"{text} and have a batch each."
    return f"{text}. With --samples, or if the dataset exists, hours are given too."


def _published(results: Sequence[PublishedResult]) -> Table:
    """Returns the model beside published results."""
    table = Table(title="The model of other jobs against published results", box=box.SIMPLE_HEAD)
    for heading in ("", "network"):
        table.add_column(heading, justify="left")
    for heading in ("GPUs", "published", "model", "fitted to it", "met"):
        table.add_column(heading, justify="right")
    last_paper = None
    for result in results:
        paper, _, where = result.source.partition(", ")
        if paper != last_paper:
            table.add_section()
            table.add_row(paper, style="bold")
            last_paper = paper
        table.add_row(
            f"{result.name} ({where})",
            result.network,
            f"{result.ranks:,}" if result.ranks else "",
            _published_number(result),
            f"{result.model:.3g}",
            _yes_or_no(result.fitted),
            _yes_or_no(result.met),
        )
    return table


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


def _published_number(result: PublishedResult) -> str:
    """Returns the number, as an inequality or a range if it is one."""
    if result.highest is not None:
        return f"{result.published:g} to {result.highest:g}"
    if result.kind == "at_least":
        return f"≥ {result.published:g}"
    return f"{result.published:g}"


def _fit(measured: CostFit) -> Table:
    """Returns the fitted coordinator beside the measurements."""
    title = (
        f"The coordinator as measured: {1e6 * measured['cycle_s']:.3g} µs per cycle, "
        f"{1e6 * measured['message_s']:.3g} µs per message, {1e6 * measured['announcement_s']:.3g} "
        f"µs per gradient and rank; error where not fitted at most {100 * measured['worst']:.0f}%"
    )
    table = Table(title=title, box=box.SIMPLE_HEAD)
    table.add_column("ranks", justify="right")
    table.add_column("", justify="left")
    for heading in ("measured, ms", "model, ms", "fitted to it"):
        table.add_column(heading, justify="right")
    for row in measured["rows"]:
        measured_ms = f"{1e3 * row['measured_s']:.3g}"
        model_ms = f"{1e3 * row['model_s']:.3g}"
        fitted = _yes_or_no(row["fitted"])
        table.add_row(str(row["ranks"]), row["arm"], measured_ms, model_ms, fitted)
    return table
