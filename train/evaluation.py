"""Evaluates a run again, as `namsa-train evaluate RUN_DIR` does."""

from pathlib import Path

from .main import train
from .measure.results import Evaluation
from .tasks.reporting import read_results


def evaluate(run_dir: str | Path) -> Evaluation:
    """Evaluates the newest checkpoint of a run on held-out materials.

    Writes `evaluation.json`, `report.html` and, of densities, `predictions.npz` in the run
    directory, as `namsa-train evaluate RUN_DIR` does.

    Args:
        run_dir: Run directory, with its dataset at hand.

    Returns:
        Contents of `evaluation.json`: of densities a `train.tasks.density.results.Evaluation`.

    Raises:
        InputError: If the run has no valid configuration.
    """
    run_dir = Path(run_dir)
    train(run_dir / "config.yaml", run_dir=run_dir, evaluate_only=True)
    return read_results(run_dir)
