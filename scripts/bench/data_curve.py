"""Error on held-out materials against the amount of training data and the number of ranks (figure 9 of the paper).

    scripts/uv run python scripts/bench/data_curve.py CONFIG [--parts 8 4 2 1] [--steps 4000] [--set key.path=value ...]
        [--by-ranks 1 2 4] [--work DIR] [--out curve.png] [--json]

The same network is trained on nested subsets of the configuration's dataset (`training.samples`): an eighth, a quarter,
a half and all of it. The number of steps is the same, so that only the data differ. Settings that count in epochs
(warm-up, decay, Huber's delta) are stretched to the same number of steps. With `--by-ranks`, each rank has a share of
the same size. The data and the samples per step then grow with the ranks, as in the paper, and the learning rate
follows the configuration.

Missing samples are simulated first. Finished runs are not repeated. Errors are means over the test split at the last
checkpoint; "±" is the standard error over its materials. "train" is the mean Huber loss of the last tenth of the steps,
with dropout and augmentation. Seeds are those of the configuration, with one run per point.

"ratio" is the test error (MAE) with the least data divided by that with the most.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, ScalarFormatter
from rich.console import Console
from rich.table import Table

from namsa.dataset import manifest
from namsa.dataset.shards import Dataset
from namsa.text import plural
from train.experiment.experiment import Experiment, load
from train.reports.runs import read_steps

Row = dict[str, Any]
SPARSE = 0.1  # of the steps: how often a run writes a checkpoint, and what of it the training loss is the mean of


def main() -> int:
    options = parse()
    experiment = load(options.config, options.overrides)
    total = simulated(options, experiment)
    if options.by_ranks:
        share = total // max(options.by_ranks)
        plan = [(share * ranks, ranks) for ranks in options.by_ranks]
    else:
        plan = [(total // part, 1) for part in sorted(options.parts, reverse=True)]
    rows = [trained(options, experiment, samples, ranks) for samples, ranks in plan]
    show(rows)
    if options.out:
        figure(rows).savefig(options.out, dpi=150)
    if options.json:
        print(json.dumps({"ratio": rows[0]["mae"] / rows[-1]["mae"], "steps": options.steps, "rows": rows}))
    return 0


def simulated(options: argparse.Namespace, experiment: Experiment) -> int:
    """The number of training samples, all of which are there when it returns."""
    directory = experiment.data.directory
    words = [f"--set={each}" for each in options.overrides]
    run([sys.executable, "-m", "namsa", "dataset", str(options.config), "--out", str(directory), *words])
    with Dataset(directory) as dataset:
        return sum(entry.split == "train" for entry in manifest.present(directory, dataset.ids))


def trained(options: argparse.Namespace, experiment: Experiment, samples: int, ranks: int) -> Row:
    """One point of the curve."""
    run_dir = options.work / f"{experiment.name}-{samples}-samples-{ranks}-ranks-{options.steps}-steps"
    changes = stretched(experiment, samples, ranks, options.steps)
    if not (run_dir / "evaluation.json").is_file():
        launcher = ["horovodrun", "-np", str(ranks)] if ranks > 1 else []
        overrides = [*options.overrides, *(f"{key}={value}" for key, value in changes.items())]
        command = [sys.executable, "-m", "train", str(options.config), "--run-dir", str(run_dir)]
        run([*launcher, *command, *(f"--set={each}" for each in overrides)])
    evaluation = json.loads((run_dir / "evaluation.json").read_text(encoding="utf-8"))
    taken = read_steps(run_dir / "metrics.jsonl", ("huber", "step_s"))
    number = len(taken["huber"])
    return {
        "samples": samples,
        "ranks": ranks,
        "epochs": changes["training.epochs"],
        "steps": number,
        "train_huber": float(np.mean(taken["huber"][-max(1, int(SPARSE * number)) :])),
        **{key: evaluation["mean"][key] for key in ("huber", "mae", "ssim", "pearson")},
        "mae_error": standard_error(evaluation, "mae"),
        "mean_image_mae": evaluation["mean_predictor"]["mae"],
        "seconds": float(taken["step_s"].sum()),
    }


def stretched(experiment: Experiment, samples: int, ranks: int, steps: int) -> dict[str, Any]:
    """The overrides under which `samples` are trained on for about `steps` steps."""
    training, schedule = experiment.training, experiment.training.schedule
    an_epoch = samples // ranks // training.batch_size
    if not an_epoch:
        raise SystemExit(f"{samples} samples are too few for {ranks} ranks with batches of {training.batch_size}")
    epochs = max(1, round(steps / an_epoch))
    longer = epochs / training.epochs
    return {
        "training.samples": samples,
        "training.epochs": epochs,
        "training.schedule.warmup_epochs": longer * schedule.warmup_epochs,
        "training.schedule.decay_every_epochs": longer * schedule.decay_every_epochs,
        "training.loss.huber_delta_decay": training.loss.huber_delta_decay ** (1 / longer),
        "training.checkpoints.every_epochs": max(1, round(SPARSE * epochs)),
        "training.checkpoints.keep": 1,
    }


def standard_error(evaluation: Row, key: str) -> float:
    """Of the mean over the reported split's materials, whose samples are alike; 0 where there is but one."""
    values = [row[key] for row in evaluation["by_material"] if row["split"] == evaluation["split"]]
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def run(command: list[str]) -> None:
    """Its output goes to stderr: the last line of stdout is the bench's own."""
    if code := subprocess.run(command, stdout=sys.stderr, check=False).returncode:
        raise SystemExit(f"{' '.join(command)} ended with exit code {code}")


def show(rows: list[Row]) -> None:
    table = Table("samples", "ranks", "epochs", "steps", "train Huber", "test Huber", "MAE, e/Å²", "SSIM", "seconds")
    for row in rows:
        table.add_row(
            str(row["samples"]),
            str(row["ranks"]),
            str(row["epochs"]),
            str(row["steps"]),
            f"{row['train_huber']:.3g}",
            f"{row['huber']:.3g}",
            f"{row['mae']:.2f} ± {row['mae_error']:.2f}",
            f"{row['ssim']:.3f}",
            f"{row['seconds']:.0f}",
        )
    console = Console()
    console.print(table)
    console.print(f"mean image: MAE {rows[-1]['mean_image_mae']:.2f} e/Å²", highlight=False)


def figure(rows: list[Row]) -> Figure:
    """Error against data, both logarithmic."""
    drawn = Figure(figsize=(4.5, 3.4), layout="constrained")
    ax = drawn.subplots()
    samples = [row["samples"] for row in rows]
    errors = [row["mae_error"] for row in rows]
    ax.errorbar(samples, [row["mae"] for row in rows], errors, marker="o", capsize=3, color="#2a6f97")
    ax.axhline(rows[-1]["mean_image_mae"], color="#222222", linestyle="--", linewidth=1, label="mean image")
    ax.set(xscale="log", yscale="log", xlabel="training samples", ylabel="test MAE, e/Å²")
    ax.set_xticks(samples, [f"{row['samples']}\n{plural(row['ranks'], 'rank')}" for row in rows])
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(ScalarFormatter())
    ax.minorticks_off()
    ax.legend(frameon=False)
    return drawn


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("config", type=Path, metavar="CONFIG")
    parser.add_argument("--set", action="append", default=[], metavar="section.key=value", dest="overrides")
    parser.add_argument("--parts", type=int, nargs="+", default=[8, 4, 2, 1], help="1/PART of the training samples")
    parser.add_argument("--by-ranks", type=int, nargs="+", metavar="RANKS", help="data in proportion to these")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--work", type=Path, default=Path("runs/data-curve"), help="where the runs are kept")
    parser.add_argument("--out", type=Path, metavar="PICTURE")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
