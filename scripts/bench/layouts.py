"""Comparison of channels of the layout over scan positions, with the same samples, steps and number of parameters.

    scripts/uv run python scripts/bench/layouts.py data/benchmark [--train 320] [--arms scan,polar] [--json]

From a dataset of configs/benchmark.yaml (which may still be growing), all held-out samples and the first `--train`
training samples are copied to `--work`. Each arm is a job of `python -m train` on them with the training section of the
benchmark. It has as many parameters as the benchmark's network: the number of filters and the growth, whose ratio is 2,
are chosen for that. The same command continues a run that was stopped.

"ratio" is the mean absolute error of the arm "scan", every pixel, divided by that of the best arm, on the test
materials. `paper_layout.py` compares this layout with the paper's.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from rich.console import Console
from rich.table import Table

from fcdensenet.config import NetworkConfig
from fcdensenet.count import count
from namsa.crystals.select import select_materials
from namsa.dataset import manifest, other_nodes, records, shards
from namsa.dataset.entry import Entry
from namsa.dataset.shard_writer import ShardWriter
from train.experiment.experiment import Experiment, load
from train.reports.runs import read_steps

CONFIG = Path(__file__).parents[2] / "configs/benchmark.yaml"
PIXELS = ("training.inputs.channels=pixels", "training.inputs.guess=none")
POLAR, BINNED = "training.inputs.channels=polar", "training.inputs.channels=binned"
ARMS: dict[str, tuple[int, tuple[str, ...]]] = {  # channels, and how they come about
    "scan": (1089, ()),
    "binned": (121, (BINNED, "training.inputs.bin_pixels=3")),
    "polar": (101, (POLAR,)),
    "virtual": (7, ("training.inputs.channels=virtual",)),
    "scan+dpc": (1090, ("training.inputs.guess=dpc",)),
    "polar+dpc": (102, (POLAR, "training.inputs.guess=dpc")),
    "virtual+dpc": (8, ("training.inputs.channels=virtual", "training.inputs.guess=dpc")),
}


def main() -> int:
    options = parse()
    rows = []
    for arm in options.arms:
        folder = options.work / f"patterns-{options.train}"
        changes = [*overrides(arm, options.set), f"training.epochs={options.epochs}", f"data.directory={folder}"]
        experiment = load(CONFIG, changes)
        if not (folder / other_nodes.FILE_NAME).exists():
            copy(options.samples, folder, experiment, options.train)
        run = options.work / f"{arm}-{options.train}-{options.epochs}{options.name}"
        if not (run / "evaluation.json").exists():
            settings = [part for change in changes for part in ("--set", change)]
            command = [sys.executable, "-m", "train", str(CONFIG), *settings, "--run-dir", str(run)]
            subprocess.run(command, check=True, stdout=sys.stderr)
        rows.append({"arm": arm, "channels": experiment.network.input_shape[0]} | read(run))
        show(rows)
    if options.json:
        errors = {row["arm"]: row["test"]["mae"] for row in rows}
        ratio = errors["scan"] / min(errors.values()) if "scan" in errors else None
        print(json.dumps({"ratio": ratio, "arms": rows}))
    return 0


# ---- Samples --------------------------------------------------------------------------------------------------------


def copy(source: Path, target: Path, experiment: Experiment, train: int) -> None:
    """Writes the dataset of `experiment` in `target`, of what `source` holds: held-out samples, `train` others."""
    target.mkdir(parents=True, exist_ok=True)
    entries = manifest.ensure(target, experiment, tuple(select_materials(experiment.materials, run_generator=True)))
    with shards.Dataset(source) as dataset, ShardWriter(shards.shard_path(target, 0), 16) as writer:
        wanted = chosen(entries, dataset.ids, train)
        for entry in wanted:
            writer.put(entry.id, records.encode(dataset.read(entry.id).sample(), experiment.data.dtype))
    others = sorted({entry.id for entry in entries} - {entry.id for entry in wanted})
    other_nodes.write_ids(target, experiment.samples_hash(), others)  # nobody simulates them


def chosen(entries: Sequence[Entry], there: Sequence[str], train: int) -> list[Entry]:
    """All held-out samples and `train` others, drawn evenly."""
    order = np.random.default_rng(0).permutation(len(entries))
    ids = frozenset(there)
    found = [entry for entry in (entries[index] for index in order) if entry.id in ids]
    to_learn = [entry for entry in found if entry.split == "train"]
    if len(to_learn) < train:
        raise SystemExit(f"there are {len(to_learn)} samples to learn from: give --train at most that")
    return to_learn[:train] + [entry for entry in found if entry.split != "train"]


# ---- Networks and results -------------------------------------------------------------------------------------------


def overrides(arm: str, more: Sequence[str]) -> list[str]:
    """What makes the benchmark's configuration that of `arm`; `more` is of every arm."""
    channels, own = ARMS[arm]
    network = alike(channels, [override for override in more if override.startswith("network.")])
    tree = yaml.safe_dump(network.model_dump(mode="json"), default_flow_style=True)
    rest = [override for override in more if not override.startswith("network.")]
    return [f"network={tree}", *PIXELS, *rest, *own]


def alike(channels: int, more: Sequence[str]) -> NetworkConfig:
    """A network for so many channels with as many parameters as the benchmark's, by its growth."""
    reference = load(CONFIG, more).network
    shape = (channels, *reference.input_shape[1:])
    wanted = count(reference).parameters

    def grown(growth: int) -> NetworkConfig:
        return reference.model_copy(update={"input_shape": shape, "growth": growth, "first_filters": 2 * growth})

    return min((grown(growth) for growth in range(4, 129)), key=lambda n: abs(count(n).parameters - wanted))


def read(run: Path) -> dict[str, Any]:
    found = json.loads((run / "evaluation.json").read_text(encoding="utf-8"))
    steps = read_steps(run / "metrics.jsonl", ("epoch", "step_s", "huber"))
    splits = {row["split"]: row for row in found["by_split"]}
    return {
        "parameters": found["run"]["parameters"],
        "step_ms": 1e3 * float(np.median(steps["step_s"])),
        "huber": [float(np.mean(steps["huber"][steps["epoch"] == epoch])) for epoch in np.unique(steps["epoch"])],
        "dev": splits.get("dev"),
        "test": splits.get("test"),
        "by_thickness": {row["wanted_thickness_angstrom"]: row for row in found["by_thickness"]},
    }


def show(rows: Sequence[dict[str, Any]]) -> None:
    thicknesses = sorted(rows[0]["by_thickness"])
    table = Table("arm", "channels", "parameters", "ms a step", "huber, end", "dev SSIM")
    for name in ("SSIM", "Pearson", "MAE", *(f"SSIM {t:g} Å" for t in thicknesses)):
        table.add_column(name, justify="right")
    mean = {"arm": "mean image", "channels": 0, "parameters": 0, "step_ms": 0, "huber": [0]}
    mean |= {split: rows[0][split]["mean_predictor"] for split in ("dev", "test")}
    mean["by_thickness"] = {t: row["mean_predictor"] for t, row in rows[0]["by_thickness"].items()}
    for row in (*rows, mean):
        facts = [row["arm"], f"{row['channels']}", f"{row['parameters']:,}", f"{row['step_ms']:.0f}"]
        test, ssims = row["test"], [f"{row['by_thickness'][t]['ssim']:.3f}" for t in thicknesses]
        scores = [f"{test['ssim']:.3f}", f"{test['pearson']:.3f}", f"{test['mae']:.2f}"]
        table.add_row(*facts, f"{row['huber'][-1]:.4f}", f"{row['dev']['ssim']:.3f}", *scores, *ssims)
    Console(width=160).print(table)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", type=Path, help="a dataset of configs/benchmark.yaml")
    parser.add_argument("--work", type=Path, default=Path("runs/layouts"))
    parser.add_argument("--train", type=int, default=320, help="samples to learn from")
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--arms", type=lambda text: text.split(","), default=list(ARMS), help=", ".join(ARMS))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of every arm")
    parser.add_argument("--name", default="", help="added to the runs' folders")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
