"""Two ranks with state of their own, stopped where an epoch ends and within one: OUT/restarts.json; `test_restarts.py`.

Each way is {"codes" and "out" of the job left alone and of the other's two starts, "stood": steps after each of these,
"rows" of the first, "differ": in what the other is not equal}.
"""

import json
import shutil
import sys
from pathlib import Path

from faults import job, signal_rank_1
from kills import CHANGES, differences
from tiny import lines, numbers, write_config

from train.experiment.registry import kinds

WAYS = {
    "lag": ["training.exchange={kind: lag}", "training.precision.initial_loss_scale=2e3"],  # it grows, then is halved
    # Ranks average weights after steps 4, 8 and 12, and keep their own moments. A signal after 5 has to wait. They keep
    # their own samples in memory (Yoginath et al. 2019).
    "local": [
        "training.exchange={kind: local_sgd, synchronise: epoch}",
        "training.precision.compute=float32",
        "data.source={kind: memory, of: {kind: fixed}}",
    ],
    "changes": [
        "training.exchange={kind: local_sgd, synchronise: 7, precision: 8}",
        "training.precision.compute=float32",
    ],
    # Every step counts, so that layers switch to two, three and four bytes after steps 3, 6 and 9.
    "sharded": [
        "training.exchange={kind: sharded, transfer: {precision: adaptive, threshold: 1.0, interval: 3}}",
        "training.validation.every_epochs=1",
        "training.precision.compute=float32",
    ],
}
KINDS = {"lag": "lag", "local": "local_sgd", "changes": "local_sgd", "sharded": "sharded"}


def stopped_and_left_alone(out: Path, name: str, overrides: list[str]) -> dict:
    undisturbed, run_dir = out / f"{name}-undisturbed", out / f"{name}-stopped"
    started, stood = [job(out, undisturbed.name, *overrides)], []
    shutil.copytree(undisturbed, run_dir)
    for later in sorted(run_dir.glob("checkpoints/step-*.npz"))[1:]:  # as if killed after the first epoch
        later.unlink()
    for prepare in ({"prepare": signal_rank_1}, {}):
        started.append(job(out, run_dir.name, *overrides, **prepare))
        stood.append(len(lines(run_dir)))
    return {
        "codes": [each["codes"] for each in started],
        "out": [each["out"] for each in started],
        "stood": stood,
        "rows": numbers(undisturbed),
        "differ": differences(run_dir, undisturbed),
        "transfers": [transfers(folder) for folder in (undisturbed, run_dir)],
    }


def transfers(run_dir: Path) -> str:
    path = run_dir / "transfer.jsonl"
    return path.read_text() if path.exists() else ""


def main(out: Path) -> None:
    write_config(out, training=CHANGES["training"] | {"checkpoints": {}})  # after each epoch, and where it is stopped
    ways = {name: overrides for name, overrides in WAYS.items() if KINDS[name] in kinds("exchange")}
    found = {name: stopped_and_left_alone(out, name, overrides) for name, overrides in ways.items()}
    (out / "restarts.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
