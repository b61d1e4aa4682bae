"""Local SGD on 1, 2 and 4 ranks: averages every step, every 8 steps and every epoch, with moments and without.

    scripts/uv run python scripts/bench/local_sgd.py --set data.directory=data/quickstart [--ranks 1 2 4] [--json]

Jobs of a small network on the quickstart's samples, as Yoginath et al. (2019) compare theirs: τ is the time of an
epoch (its number of steps times their mean time on rank 0, without the first of the job), N the epochs until the Huber
loss on the dev split is at most ε, s for one rank and p for P of them.

    S_p = τ_s / τ_p        S_L = τ_s N_s / (τ_p N_p)

ε is the lowest loss of one rank in the first half of its epochs. Of "step" the gradients are averaged, at the rate of
one rank times P; of the others weights, at the rate of one rank. The profile has times per step: input (waiting for
data), forward and backward together, update (and what else is not the others), synchronisation or reduction. With
--profile, a profile of so many steps says forward and backward apart.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SMALL = (
    *("network.layers=[1,1,1]", "network.growth=8", "network.first_filters=16", "network.dropout=0"),
    *("training.schedule.rule=constant", "training.validation.every_epochs=1", "training.validation.keep_best=false"),
)


def local(choice: str) -> tuple[str, str]:
    """Overrides for local SGD with some keys of its section."""
    return "training.schedule.scale_with_ranks=false", f"training.exchange={{kind: local_sgd, {choice}}}"


VARIANTS = {
    "step": (),
    "8 steps": local("synchronise: 8"),
    "8 steps, moments": local("synchronise: 8, average_moments: true"),
    "epoch": local("synchronise: epoch"),
    "epoch, moments": local("synchronise: epoch, average_moments: true"),
}


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as scratch:
        out = options.out or Path(scratch)
        found = [row for ranks in options.ranks for row in jobs(options, out, ranks)]
    rows = compared(found)
    show(rows)
    if options.json:
        best = max((row["S_L"] or 0.0 for row in rows if row["ranks"] > 1), default=0.0)
        print(json.dumps({"ratio": best, "rows": rows}))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs/quickstart.yaml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the configuration")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4], help="1 among them")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS, help="of several ranks")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=96, help="for training")
    parser.add_argument("--profile", type=int, default=0, metavar="STEPS", help="steps to profile; 0: none")
    parser.add_argument("--out", type=Path, help="keep the runs here; jobs that are there are not run again")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    return parser.parse_args()


def jobs(options: argparse.Namespace, out: Path, ranks: int) -> list[dict[str, Any]]:
    """Runs the variants on so many ranks, and returns what each measured."""
    names = options.variants if ranks > 1 else ["step"]
    variants = {name: VARIANTS[name] for name in names}
    common = [*SMALL, f"training.epochs={options.epochs}", f"training.samples={options.samples}", *options.set]
    common.append(f"training.checkpoints.every_epochs={options.epochs}")
    folder = out / str(ranks)
    launcher = [Path(sys.executable).with_name("horovodrun"), "-np", ranks, "--gloo"]
    words = [*launcher, sys.executable, HERE / "workers" / "local_sgd_rank.py", folder, options.config]
    words += [json.dumps(variants), options.profile, *common]
    settings = os.environ | {"PYTHONPATH": str(ROOT), "HOROVOD_START_TIMEOUT": "600"}
    ended = subprocess.run([*map(str, words)], env=settings, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(ended.stdout + ended.stderr)
    return [{"ranks": ranks, "variant": name, **measured(folder / name)} for name in names]


def measured(run_dir: Path) -> dict[str, Any]:
    """The time of an epoch, where it went, and the losses on the dev split."""
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    losses = [json.loads(line)["huber"] for line in (run_dir / "validation.jsonl").read_text().splitlines()]
    per_epoch = len(rows) // len(losses)

    def mean(name: str) -> float:
        return sum(row.get(name, 0.0) for row in rows[1:]) / (len(rows) - 1)

    times = {"input": mean("data_s"), "forward and backward": mean("compute_s")}
    times["synchronisation"] = mean("sync_s") + mean("comm_s")
    times["update"] = mean("step_s") - sum(times.values())
    synchronisations = [row["sync_s"] for row in rows[1:] if row.get("sync_s")]
    profiled = run_dir / "profile.json"
    return {
        "epoch_s": per_epoch * mean("step_s"),
        "step_ms": {name: 1e3 * seconds for name, seconds in times.items()},
        "one_synchronisation_ms": 1e3 * sum(synchronisations) / len(synchronisations) if synchronisations else None,
        "losses": losses,
        "phases": json.loads(profiled.read_text())["phases"] if profiled.exists() else None,
    }


def compared(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adds N, S_p, the efficiency S_p / P and S_L; N and S_L are None where ε was not reached."""
    one = rows[0]
    epsilon = min(one["losses"][: math.ceil(len(one["losses"]) / 2)])

    def epochs(row: dict[str, Any]) -> int | None:
        return next((number for number, loss in enumerate(row["losses"], start=1) if loss <= epsilon), None)

    alone = epochs(one)
    for row in rows:
        needed, speedup = epochs(row), one["epoch_s"] / row["epoch_s"]
        row |= {"epsilon": epsilon, "N": needed, "S_p": speedup, "efficiency": speedup / row["ranks"]}
        row["S_L"] = speedup * alone / needed if needed and alone else None
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    print(f"ε = {rows[0]['epsilon']:.3g}; ms per step but for the time of an epoch")
    head = ("ranks", "average every", "epoch, s", "S_p", "N", "S_L", *rows[0]["step_ms"], "one sync.", "last loss")
    print(" | ".join(head))
    for row in rows:
        words = [str(row["ranks"]), row["variant"], f"{row['epoch_s']:.2f}", f"{row['S_p']:.2f}", str(row["N"] or "–")]
        words.append("–" if row["S_L"] is None else f"{row['S_L']:.2f}")
        words += [f"{milliseconds:.1f}" for milliseconds in row["step_ms"].values()]
        once = row["one_synchronisation_ms"]
        print(" | ".join([*words, "–" if once is None else f"{once:.1f}", f"{row['losses'][-1]:.3g}"]))
        if row["phases"]:
            phases = ", ".join(f"{each['phase']} {1e3 * each['seconds']:.1f} ms" for each in row["phases"])
            print(f"      by phase, under the profiler: {phases}")


if __name__ == "__main__":
    main()
