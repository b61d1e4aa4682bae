"""Two ranks with state of their own (late gradients, weights of local SGD): stops and restarts
change no bit.
"""

import json
import math
import shutil
import sys
from pathlib import Path

import launch
import pytest
from faults import job, signal_rank_1
from kills import CHANGES, differences
from needs_kind import needs
from tiny import CONFIG, lines, numbers, write_config

from train.experiment.registry import kinds

pytestmark = pytest.mark.slow
WAYS = {
    "lag": [
        "training.exchange={kind: lag}",
        "training.precision.initial_loss_scale=2e3",
    ],  # it grows, then is halved
    # Ranks average weights after steps 4, 8 and 12, and keep their own moments. A signal after 5
    # has to wait. They keep their own samples in memory (Yoginath et al. 2019).
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
        "training.exchange={kind: sharded, transfer: {precision: adaptive, threshold: 1.0, "
        "interval: 3}}",
        "training.validation.every_epochs=1",
        "training.precision.compute=float32",
    ],
}
KINDS = {"lag": "lag", "local": "local_sgd", "changes": "local_sgd", "sharded": "sharded"}
TRANSFERS = "transfer.jsonl"


def stopped_and_left_alone(out: Path, name: str, overrides: list[str]) -> dict:
    """Of the job left alone and of the other's two starts; "stood" are the steps after each of the
    latter.
    """
    undisturbed = out / f"{name}-undisturbed"
    run_dir = out / f"{name}-stopped"
    started = [job(out, undisturbed.name, *overrides)]
    stood = []
    shutil.copytree(undisturbed, run_dir)
    for later in sorted(run_dir.glob("checkpoints/step-*.npz"))[
        1:
    ]:  # as if killed after the first epoch
        later.unlink()
    for prepare in ({"prepare": signal_rank_1}, {}):
        started.append(job(out, run_dir.name, *overrides, **prepare))
        stood.append(len(lines(run_dir)))
    return {
        "codes": [outcome["codes"] for outcome in started],
        "out": [outcome["out"] for outcome in started],
        "stood": stood,
        "rows": numbers(undisturbed),
        "differ": differences(run_dir, undisturbed),
        "transfers": [
            path.read_text()
            for path in (undisturbed / TRANSFERS, run_dir / TRANSFERS)
            if path.exists()
        ],
    }


def main(out: Path) -> None:
    # A checkpoint after each epoch, and where the job is stopped. One level: tracing a step takes
    # most of the time of a start.
    network = CONFIG["network"] | {"layers": [1], "block_norm": True}
    write_config(out, network=network, training=CHANGES["training"] | {"checkpoints": {}})
    ways = {}
    for name, overrides in WAYS.items():
        if KINDS[name] in kinds("exchange"):
            ways[name] = overrides
    outcomes = {
        name: stopped_and_left_alone(out, name, overrides) for name, overrides in ways.items()
    }
    (out / "restarts.json").write_text(json.dumps(outcomes))


@pytest.fixture(scope="module")
def restarts(tmp_path_factory):
    out = tmp_path_factory.mktemp("restarts")
    launch.script(__file__, out)
    return json.loads((out / "restarts.json").read_text())


@pytest.mark.parametrize(
    ("way", "stood"),
    [
        pytest.param(way, stood, marks=needs(KINDS[way]))
        for way, stood in (("lag", 6), ("local", 8), ("changes", 7), ("sharded", 6))
    ],
)
def test_stopped_after_an_epoch_and_within_one_two_ranks_give_the_same_bits(restarts, way, stood):
    assert restarts[way]["codes"] == [[0, 0], [130, 130], [0, 0]], restarts[way]["out"]
    assert "resumed after step 4, 1 whole epochs" in restarts[way]["out"][1]
    assert restarts[way]["stood"] == [
        stood,
        12,
    ]  # the signal comes after the first of the second epoch's four steps
    assert restarts[way]["differ"] == []


@needs("lag")
def test_gradients_that_waited_over_a_stop_had_another_loss_scale(restarts):
    """Or the test above would not see that it is kept, too: step 4 is where the job was stopped
    first.
    """
    scales = [row["loss_scale"] for row in restarts["lag"]["rows"]]
    assert scales[4] == 2 * scales[3]
    assert sum(math.isfinite(row["grad_norm"] or math.inf) for row in restarts["lag"]["rows"]) >= 9


@needs("sharded")
def test_the_bits_of_layers_are_recorded_and_the_same_after_a_restart(restarts):
    undisturbed, stopped = restarts["sharded"]["transfers"]
    assert stopped == undisturbed
    rows = [json.loads(line) for line in undisturbed.splitlines()]
    assert [(row["epoch"], row["step"]) for row in rows] == [(0, 4), (1, 8), (2, 12)]
    bits = [set(row["bits"].values()) for row in rows]
    assert all(len(layer_bits) == 1 for layer_bits in bits)  # every step of every layer counts
    assert max(bits[0]) < max(bits[2])
    assert rows[0]["sent_bytes"] < rows[2]["sent_bytes"]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
