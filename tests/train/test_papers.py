"""Commands of the tables of docs/paper.md that need no ranks, each at its smallest size."""

import json

import pytest
import tiny
from paths import CONFIGS

from train.__main__ import main as command
from train.main import train

pytestmark = pytest.mark.slow  # jobs with a simulation

SMALL = (
    "materials.limit=10",
    "split={train: 0.5, dev: 0.5, test: 0, by: elements}",
    "specimen.thickness_angstrom=[6, 12, 18, 24, 30]",
    "specimen.lateral_angstrom=[7, 7]",
    "specimen.max_strain=0.2",
    "scan.shape=[4, 4]",
    "training.epochs=2",
    "training.validation.every_epochs=1",
)


@pytest.mark.parametrize(
    ("config", "network", "score"),
    [("local_sgd", "network.width=4", "error"), ("local_sgd_embed", "network.hidden=16", "rmse")],
)
def test_the_jobs_of_yoginath_train_by_local_sgd_and_are_compared(
    config, network, score, tmp_path, capsys
):
    run = tmp_path / "run"
    overrides = [*SMALL, network, f"data.directory={tmp_path / 'data'}"]
    train(CONFIGS / f"{config}.yaml", overrides, run)
    lines = (run / "validation.jsonl").read_text().splitlines()
    validations = [json.loads(line) for line in lines]
    assert [row["epoch"] for row in validations] == [1, 2]
    for row in validations:
        assert 0 <= row[score] < 2
    assert json.loads((run / "evaluation.json").read_text())["samples"]
    threshold = max(row[score] for row in validations)
    capsys.readouterr()
    compare = ["scaling", "--compare", str(run), str(run), "--threshold", str(threshold), "--json"]
    assert command(compare) == 0
    assert json.loads(capsys.readouterr().out)


def test_what_packed_weights_of_residual_blocks_save_at_a_link_is_said_of_a_run(tmp_path, capsys):
    """Zhuang et al.: bits by building block, top-5 errors of seven classes, and the gain."""
    transfer = {"precision": "adaptive", "units": "block", "threshold": 1.0, "interval": 6}
    sections = {
        "split": {"train": 0.6, "dev": 0.4, "test": 0},
        "specimen": tiny.CONFIG["specimen"] | {"thickness_angstrom": [4, 8, 12, 16, 20, 24, 28]},
        "scan": {"shape": [2, 2]},
        "target": {"at": "scan"},
        "network": {
            "kind": "resnet50",
            "unit": "basic",
            "input_shape": [1, 32, 48],
            "classes": 7,
            "units": [1, 1],
            "width": 4,
        },
        "training": {
            "task": "classify",
            "epochs": 2,
            "batch_size": 4,
            "classify": {"label": "thickness"},
            "validation": {"every_epochs": 1},
            "inputs": {"layout": "pattern", "window": [1, 1]},
            "optimizer": {"kind": "momentum", "learning_rate": 1e-2, "lars": "none"},
            "exchange": {"kind": "sharded", "groups": 0, "transfer": transfer},
        },
    }
    run = tmp_path / "run"
    train(tiny.write_config(tmp_path, **sections), [], run)
    rows = [json.loads(line) for line in (run / "transfer.jsonl").read_text().splitlines()]
    bits = rows[-1]["bits"]
    first_bits = rows[0]["bits"]
    assert max(first_bits.values()) < 32  # and so packed
    for name, bits_of_layer in first_bits.items():
        assert bits[name] > bits_of_layer
    block = []
    for name, bits_of_layer in bits.items():
        if name.startswith("conv3_block1"):
            block.append(bits_of_layer)
    assert len(block) > 1
    assert len(set(block)) == 1
    top_5 = [json.loads(line) for line in (run / "validation.jsonl").read_text().splitlines()]
    for row in top_5:
        assert 0 <= row["top5_error"] <= row["error"]
    capsys.readouterr()
    assert command(["transfer", str(run), "--gigabytes-per-s", "1e-6", "--json"]) == 0
    slow = json.loads(capsys.readouterr().out)
    assert command(["transfer", str(run), "--gigabytes-per-s", "1000", "--json"]) == 0
    fast = json.loads(capsys.readouterr().out)
    for one, other in zip(slow["epochs"], fast["epochs"], strict=True):
        assert one["weight_bytes"] == other["weight_bytes"] <= one["whole_bytes"]
    assert slow["epochs"][0]["weight_bytes"] < slow["epochs"][0]["whole_bytes"]
    assert slow["epochs"][0]["gain"] > 0
    assert command(["transfer", str(run), "--gigabytes-per-s", "12.5"]) == 0
    assert "gain" in capsys.readouterr().out
