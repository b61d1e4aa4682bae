"""Prints a scaling report: the curve, the recommendation and the checks of the model."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from train.scaling.published import PublishedResult
from train.scaling.results import CostFit, ScalingReport


def show(report: ScalingReport, console: Console) -> None:
    """Prints a scaling report as tables.

    Args:
        report: The report; see `train.scaling.report`.
        console: Where to print.
    """
    console.print(_curve(report))
    console.print(_recommendation(report), highlight=False)
    console.print(_published(report.published))
    if report.measured:
        console.print(_fit(report.measured))


def _curve(report: ScalingReport) -> Table:
    """The predictions, one row per number of ranks."""
    title = f"{report.name} on {report.machine}: {report.compute_s:.3g} s of computation per step and rank"
    table = Table(title=title, box=box.SIMPLE_HEAD)
    for column in (
        "ranks",
        "efficiency",
        "step, s",
        "samples/s",
        *(["steps/epoch", "hours"] if report.samples else []),
    ):
        table.add_column(column, justify="right")
    for row in report.curve:
        cells = [
            f"{row['ranks']:,}",
            f"{row['efficiency']:.3f}",
            f"{row['step_s']:.4g}",
            f"{row['samples_per_s']:,.4g}",
        ]
        if report.samples:
            cells += [f"{row['steps_per_epoch']:,}", f"{row['hours']:.3g}" if row["steps_per_epoch"] else "–"]
        table.add_row(*cells)
    return table


def _recommendation(report: ScalingReport) -> str:
    """How many ranks to ask for, in words."""
    best = report.recommended
    if best is None:
        return f"No number of ranks here reaches an efficiency of {report.min_efficiency:g} with a batch for each."
    text = f"Ask for up to {best['ranks']:,} ranks: the most of these that keep an efficiency of "
    text += f"{report.min_efficiency:g}" + (" and have a batch each." if report.samples else ".")
    if not report.samples:
        text += " With --samples, or if the dataset exists, hours are given too."
    return text


def _published(results: Sequence[PublishedResult]) -> Table:
    """The model beside published results."""
    table = Table(title="The model against published results on Summit", box=box.SIMPLE_HEAD)
    for column in ("", "published", "model", "fitted to it", "source"):
        table.add_column(column, justify="left" if column in ("", "source") else "right")
    for result in results:
        published = f"{'≥ ' if result.kind == 'at_least' else ''}{result.published:g}"
        fitted = "yes" if result.fitted else "no"
        table.add_row(result.name, published, f"{result.model:.3g}", fitted, result.source)
    return table


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
