"""The results of a job as a table on the terminal."""

from pathlib import Path
from typing import cast

from rich.table import Table

from train.reports.results import Evaluation


def evaluation_table(evaluation: Evaluation, run_dir: Path, report: Path | None) -> Table:
    """Returns the mean scores of the network beside those of the mean image.

    Args:
        evaluation: Results on held-out samples.
        run_dir: The run directory.
        report: The report, if one was written.
    """
    table = Table(
        title=f"Held-out materials ({evaluation['split'] or 'none'})",
        caption=f"report: {report}\neverything: {run_dir}",
    )
    for heading in ("", "network", "mean image"):
        table.add_column(heading, justify="right")
    baseline = cast("dict[str, float | None]", evaluation["mean_predictor"])
    for name, score in cast("dict[str, float | None]", evaluation["mean"]).items():
        table.add_row(name, _format(score), _format(baseline[name]))
    return table


def _format(score: float | None) -> str:
    """Returns a score as text."""
    return "–" if score is None else f"{score:.4g}"
