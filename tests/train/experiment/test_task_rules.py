"""A configuration is refused before anything is simulated where its network, inputs and task do not fit."""

import pytest
import yaml
from tiny import CONFIG

from namsa.errors import InputError
from train.experiment.experiment import load

NETWORK = {"kind": "resnet50", "input_shape": [1, 32, 48], "classes": 2, "units": [1, 1], "width": 4}
TRAINING = {"task": "classify", "epochs": 1, "inputs": {"layout": "pattern"}}


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "classes.yaml"
    path.write_text(yaml.safe_dump(CONFIG | {"target": {"at": "scan"}, "network": NETWORK, "training": TRAINING}))
    return path


def test_a_sample_gives_as_many_images_as_its_window_has_positions(config):
    assert load(config).images_per_sample() == 6
    windowed = load(config, ["training.inputs.window=[1, 2]"])
    assert windowed.window_shapes() == ((1, 2, 32, 48), (1, 2))
    assert windowed.images_per_sample() == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("network={input_shape: [1, 32, 48], layers: [1, 1, 1]}", "kind fcdensenet gives no classes of a pattern"),
        ("network.classes=null", "kind resnet50 without classes gives no classes"),
        ("training.task=density", "kind resnet50 gives no image of densities"),
        ("training.task=embed", "Input should be 'density' or 'classify'"),
        ("training.inputs.layout=scan", "is about patterns, and training.inputs.layout is scan"),
        ("network.units=[1, 1, 1, 1, 1]", r"patterns of \[32, 48\] pixels are too small .* 64 pixels are the least"),
        ("network.input_shape=[1, 48, 48]", r"a pattern is \[1, 32, 48\]: set it"),
        ("training.inputs.window=[3, 1]", r"larger than scan.shape \[2, 3\]"),
        ("training.inputs.held_out_positions=0.1", r"set window to \[1, 1\]"),
        ("training.classify.classes=[cubic, cubic]", "has a name twice"),
        ("training.classify.classes=[a, b, c]", "classes lists 3: set it to 3"),
        ("training.recompute=true", "recompute is for network.kind fcdensenet"),
        ("target.at=grid", "set target.at to scan"),
        ("training.validation.stop_at=0.1", "stop_at needs validations: set every_epochs"),
        ("training.optimizer={kind: momentum, lars: after}", "'after' is for kind adam"),
        ("network.kind=resnet", "network: write a section whose kind is one of fcdensenet, resnet50"),
        ("network.growth=3", "unknown key network.growth"),
    ],
)
def test_what_does_not_fit_is_named(config, override, message):
    with pytest.raises(InputError, match=message):
        load(config, [override])
