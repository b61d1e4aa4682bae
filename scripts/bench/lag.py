"""What gradient lag saves in a training step, and what it costs in error.

    scripts/uv run python scripts/bench/lag.py [--config configs/quickstart.yaml] [--ranks 2] [--epochs 6] [--seeds 0 1]
        [--set KEY=VALUE] [--json]

The samples of the configuration must be there. One job trains two networks, one without lag and one with it, from the
same initial weights and with the same samples, an epoch of each in turn. The time of a step is the median of its epoch;
numbers are medians and quartiles of the epochs but the first. "Exposed" is the time that a step waits for the reduction
after its gradients are computed. Errors are those of held-out samples after equal numbers of epochs. "ratio" is the
time of a step without lag over that with it, the median of the pairs of epochs.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def main() -> None:
    options = parse()
    rows = measure(options)
    by_lag = [[row for row in rows if row["lag"] == lag and row["epoch"] > 1] for lag in (0, 1)]
    print(f"{options.ranks} ranks, {len(by_lag[0])} pairs of epochs, load {os.getloadavg()[0]:.0f}\n")
    for lag, own in enumerate(by_lag):
        low, middle, high = statistics.quantiles([1e3 * row["step_s"] for row in own], n=4)
        exposed = 1e3 * statistics.median(row["comm_s"] for row in own)
        print(f"lag {lag}: step {middle:.1f} ms ({low:.1f} to {high:.1f}), exposed {exposed:.1f} ms")
    ratios = sorted(without["step_s"] / late["step_s"] for without, late in zip(*map(in_order, by_lag), strict=True))
    print(f"without / with lag: {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})\n")
    for row in sorted(rows, key=lambda row: (row["seed"], row["epoch"], row["lag"])):
        scores = [
            f"{split} huber {row[split]['huber']:.4f}, SSIM {row[split]['ssim']:.3f}" for split in SPLITS & row.keys()
        ]
        print(f"seed {row['seed']}, epoch {row['epoch']}, lag {row['lag']}: {'; '.join(sorted(scores))}")
    if options.json:
        print(json.dumps({"ratio": statistics.median(ratios), "rows": rows}))


SPLITS = {"dev", "test"}


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["seed"], row["epoch"]))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "quickstart.yaml")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=6, help="of each network, at least 3")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="of initial weights and orders of samples")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change of the configuration")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    if options.epochs < 3:
        parser.error("--epochs is below 3: the first is not timed, and quartiles need two")
    return options


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row per seed, epoch and lag: times of a step, s, and errors."""
    launcher = Path(sys.executable).with_name("horovodrun")
    worker = [sys.executable, HERE / "workers" / "lag_rank.py", options.config, options.epochs]
    line = [launcher, "-np", options.ranks, "--gloo", *worker, ",".join(map(str, options.seeds)), *options.set]
    settings = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "HOROVOD_START_TIMEOUT": "600"}
    rows = []
    with subprocess.Popen([str(word) for word in line], env=settings, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for text in process.stdout:
            if "FOUND " in text:
                rows.append(json.loads(text.partition("FOUND ")[2]))
                print(".", end="", file=sys.stderr, flush=True)
    if process.returncode:
        raise SystemExit(process.returncode)
    print(file=sys.stderr)
    return rows


if __name__ == "__main__":
    main()
