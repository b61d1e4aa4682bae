"""`python -m train describe`: its output for every kind, and its errors."""

import json

import pytest
from paths import CONFIGS

from fcdensenet.__main__ import main as fcdensenet
from train.__main__ import main as train

NEIGHBOURS = CONFIGS / "neighbours"


@pytest.mark.parametrize("path", sorted(NEIGHBOURS.glob("*.yaml")), ids=lambda path: path.stem)
def test_json_sums_its_layers(path, capsys):
    assert train(["describe", str(path), "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    layers = described["layers"]
    assert described["parameters"] == sum(layer["parameters"] for layer in layers) >= described["trainable"]
    assert described["conv_weights"] == sum(layer["weights"] for layer in layers) > 0
    assert described["forward_flop"] == sum(layer["forward_flop"] for layer in layers)
    assert described["step_flop"] == 3 * described["forward_flop"]
    assert described["memory_bytes"] > described["activation_bytes"]["float32"]


def test_it_counts_fcdensenet_as_fcdensenet_does(capsys):
    assert train(["describe", str(CONFIGS / "paper.yaml"), "--json"]) == 0
    ours = json.loads(capsys.readouterr().out)
    assert fcdensenet(["describe", str(CONFIGS / "paper.yaml"), "--json"]) == 0
    theirs = json.loads(capsys.readouterr().out)
    shared = ours.keys() & theirs.keys()
    assert {"parameters", "step_flop", "activation_bytes", "layers"} <= shared
    assert {key: ours[key] for key in shared} == {key: theirs[key] for key in shared}
    assert ours["trainable"] == theirs["trainable_parameters"]


def test_the_table_shows_kernels_of_any_rank(capsys):
    assert train(["describe", str(NEIGHBOURS / "cosmoflow.yaml"), "--set", "network.input_shape=[1, 8, 8, 8]"]) == 0
    shown = capsys.readouterr().out
    assert "conv 3×3×3" in shown
    assert "weights of 7 convolutions" in shown
    assert "…" not in shown


def test_a_fault_is_one_line_with_exit_code_2(capsys):
    assert train(["describe", str(NEIGHBOURS / "unet3d.yaml"), "--set", "network.kind=resnet"]) == 2
    error = capsys.readouterr().err
    assert "network.kind is resnet" in error
    assert error.count("\n") == 1
