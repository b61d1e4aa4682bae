"""The paper's layout of the input (patterns as channels over detector pixels) beside the layout over scan positions.

    scripts/uv run python scripts/bench/paper_layout.py [--seeds 1 2 3] [--samples 400 800 1600] [--epochs 10 40]
        [--arms detector coordinates scan] [--work DIR] [--json] [--plot curve.png]

`paper_layout.yaml` says what is simulated: the whole cell of each crystal, scanned from a fixed origin. Both layouts
take the same samples and the same network with the same steps, since scan, detector and target have the same shape:

- detector: the layout of Laanait et al. (2019).
- coordinates: the same with two more channels, y and x of each detector pixel. This variant is ours.
- scan: the detector's pixels are the channels of an image over the probe positions.

Seeds differ in initial weights and in the order of the samples; the held-out materials are the same. The number of
steps does not depend on the number of samples: `--epochs` counts passes over the largest number. Missing samples are
simulated first; finished runs are not repeated; a stopped run continues. Errors are means over the held-out (test)
samples; the table has their mean and standard deviation over the seeds.

"ratio" is the SSIM of the paper's layout divided by that of the layout over scan positions, with most samples and
steps.
"""

import argparse
import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from train.reports.runs import read_steps

CONFIG = Path(__file__).with_suffix(".yaml")
ARMS = {
    "detector": ["training.inputs.layout=detector"],
    "coordinates": ["training.inputs.coordinates=true", "network.input_shape=[258, 16, 16]"],
    "scan": ["training.inputs.layout=scan"],
}
METRICS = ("huber", "mae", "ssim", "pearson")
Row = dict[str, Any]


def main() -> int:
    options = parse()
    rows: list[Row] = []
    means: list[Row] = []
    for seed in options.seeds:
        data = options.work / f"data-{seed}"
        run("namsa", "dataset", str(CONFIG), "--out", str(data), "--set", f"seed={seed}")
        for epochs, samples, arm in product(options.epochs, options.samples, options.arms):
            rows.append(trained(arm, samples, epochs, seed, options.work, max(options.samples)))
            means = summary(rows)
            show(means)
    if options.plot:
        figure(means).savefig(options.plot, dpi=150)
    if options.json:
        best = {row["arm"]: row["ssim"][0] for row in sorted(means, key=lambda row: (row["epochs"], row["samples"]))}
        ratio = best["detector"] / best["scan"] if {"detector", "scan"} <= best.keys() else None
        print(json.dumps({"ratio": ratio, "rows": rows, "summary": means}))
    return 0


def run(*command: str) -> None:
    subprocess.run([sys.executable, "-m", *command], check=True, stdout=sys.stderr)


def trained(arm: str, samples: int, epochs: int, seed: int, work: Path, most: int) -> Row:
    """Trains if that is still to do. Settings that count in epochs are stretched to the same number of steps."""
    run_dir = work / f"{arm}-{samples}-{epochs}-{seed}"
    stretch = most / samples
    settings = [
        f"seed={seed}",
        f"data.directory={work / f'data-{seed}'}",
        f"training.samples={samples}",
        f"training.epochs={round(epochs * stretch)}",
        f"training.schedule.warmup_epochs={0.1 * epochs * stretch}",
        f"training.schedule.decay_every_epochs={0.3 * epochs * stretch}",
        f"training.loss.huber_delta_decay={0.9 ** (1 / (epochs * stretch))}",
        f"training.checkpoints.every_epochs={max(1, round(epochs * stretch / 5))}",
        *ARMS[arm],
    ]
    if not (run_dir / "evaluation.json").exists():
        overrides = [part for setting in settings for part in ("--set", setting)]
        run("train", str(CONFIG), "--run-dir", str(run_dir), *overrides)
    evaluation = json.loads((run_dir / "evaluation.json").read_text(encoding="utf-8"))
    steps = read_steps(run_dir / "metrics.jsonl", ("huber", "step_s"))
    last = len(steps["huber"]) // 10
    return {
        "arm": arm,
        "samples": samples,
        "epochs": epochs,
        "seed": seed,
        "steps": len(steps["huber"]),
        "step_ms": 1e3 * float(np.median(steps["step_s"])),
        "train_huber": float(np.mean(steps["huber"][-last:])),
        "mean_image": {name: evaluation["mean_predictor"][name] for name in METRICS},
        **{name: evaluation["mean"][name] for name in METRICS},
    }


def summary(rows: list[Row]) -> list[Row]:
    """Returns mean and standard deviation over the seeds for each arm, number of samples and number of epochs."""
    keys = ("arm", "samples", "epochs")
    cases = dict.fromkeys(tuple(row[key] for key in keys) for row in rows)
    found = []
    for case in cases:
        members = [row for row in rows if tuple(row[key] for key in keys) == case]
        values = {name: [row[name] for row in members] for name in (*METRICS, "train_huber", "step_ms", "steps")}
        values |= {f"mean_image_{name}": [row["mean_image"][name] for row in members] for name in METRICS}
        numbers = {name: (float(np.mean(column)), float(np.std(column))) for name, column in values.items()}
        found.append(dict(zip(keys, case, strict=True)) | {"seeds": len(members)} | numbers)
    return found


def show(rows: list[Row]) -> None:
    table = Table("layout", "samples", "steps", "seeds", "ms per step", "training Huber", *METRICS)
    for row in sorted(rows, key=lambda row: (row["epochs"], row["samples"])):
        scores = [f"{row[name][0]:.3f} ± {row[name][1]:.3f}" for name in METRICS]
        facts = [row["arm"], f"{row['samples']}", f"{row['steps'][0]:.0f}", f"{row['seeds']}"]
        table.add_row(*facts, f"{row['step_ms'][0]:.0f}", f"{row['train_huber'][0]:.2f}", *scores)
    mean = [f"{np.mean([row[f'mean_image_{name}'][0] for row in rows]):.3f}" for name in METRICS]
    table.add_row("mean image", "", "", "", "", "", *mean)
    Console(width=150).print(table)


def figure(rows: list[Row]) -> Figure:
    """Error on held-out materials over the number of samples, as figure 9 of the paper."""
    picture = Figure(figsize=(7, 3.2), layout="constrained")
    for axes, name, label in zip(picture.subplots(1, 2), ("mae", "ssim"), ("MAE, e/Å²", "SSIM"), strict=True):
        for arm, epochs in dict.fromkeys((row["arm"], row["epochs"]) for row in rows):
            line = sorted((r for r in rows if (r["arm"], r["epochs"]) == (arm, epochs)), key=lambda r: r["samples"])
            means, deviations = zip(*(row[name] for row in line), strict=True)
            many = len({row["epochs"] for row in rows}) > 1
            text = f"{arm}, {line[-1]['steps'][0]:.0f} steps" if many else arm
            axes.errorbar([row["samples"] for row in line], means, deviations, marker="o", capsize=3, label=text)
        axes.axhline(np.mean([row[f"mean_image_{name}"][0] for row in rows]), color="0.5", ls=":", label="mean image")
        axes.set(xscale="log", xlabel="training samples", ylabel=label)
        ticks = sorted({row["samples"] for row in rows})
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
        axes.legend(fontsize=8)
    return picture


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--samples", type=int, nargs="+", default=[400, 800, 1600], help="training samples")
    parser.add_argument("--epochs", type=int, nargs="+", default=[10], help="passes over the largest number of samples")
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--work", type=Path, default=Path("runs/paper-layout"))
    parser.add_argument("--plot", type=Path, metavar="PNG")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
