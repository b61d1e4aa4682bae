"""The results of a job as a table on the terminal."""

from pathlib import Path
from typing import cast

from rich.table import Table

from ..measure.results import PerformanceSummary
from .results import Evaluation


def evaluation_table(evaluation: Evaluation, run_dir: Path, report: Path | None) -> Table:
    """Returns the mean scores of the network beside those of the mean image, and the sustained FLOP/s.

    Args:
        evaluation: Results on held-out samples.
        run_dir: The run directory.
        report: The report, if one was written.
    """
    table = Table(
        title=f"Held-out materials ({evaluation['split'] or 'none'})",
        caption=f"{_rate(evaluation['run'].get('performance'))}report: {report}\neverything: {run_dir}",
    )
    for heading in ("", "network", "mean image"):
        table.add_column(heading, justify="right")
    baseline = cast("dict[str, float | None]", evaluation["mean_predictor"])
    for name, score in cast("dict[str, float | None]", evaluation["mean"]).items():
        table.add_row(name, _format(score), _format(baseline[name]))
    if by_depth := evaluation.get("by_depth"):
        errors = by_depth["network"], by_depth["mean_predictor"]
        table.add_row("by depth: r_factor", *(_format(each["r_factor"]) for each in errors))
        table.add_row("true projected / n", _format(by_depth["true_projected"]["r_factor"]), "")
        table.add_row("own projected / n", _format(by_depth["own_projected"]["r_factor"]), "")
    return table


def _rate(measured: PerformanceSummary | None) -> str:
    """Returns a line about the sustained FLOP/s, empty if no steps were taken."""
    if not measured or "wall_s" not in measured:
        return ""
    rate, steps = measured["sustained_flop_per_s"], measured["wall_s"]["steps"]
    return f"convolutions: sustained {rate:.3g} FLOP/s over {steps} steps, with reading and checkpoints\n"


def _format(score: float | None) -> str:
    """Returns a score as text."""
    return "–" if score is None else f"{score:.4g}"
