"""A configuration is refused before anything is simulated where its network, inputs and task do not fit."""

import pytest
from needs_kind import needs
from tiny import write_config

from namsa.errors import InputError
from train.experiment.experiment import load
from train.tasks.estimate.quantities import quantity_ranges

NETWORK = {"kind": "resnet50", "input_shape": [1, 32, 48], "classes": 2, "units": [1, 1], "width": 4}
TRAINING = {"task": "classify", "epochs": 1, "inputs": {"layout": "pattern"}}


@pytest.fixture
def config(tmp_path):
    return write_config(tmp_path, target={"at": "scan"}, network=NETWORK, training=TRAINING)


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
        ("training.task=embed", "kind resnet50 has no latent numbers of a pattern"),
        ("training.task=forecast", "Input should be 'density', 'classify', 'segment', 'embed' or 'estimate'"),
        ("training.inputs.layout=scan", "is about patterns, and training.inputs.layout is scan"),
        ("network.units=[1, 1, 1, 1, 1]", r"patterns of \[32, 48\] pixels are too small .* 64 pixels are the least"),
        ("network.input_shape=[1, 48, 48]", r"a pattern is \[1, 32, 48\]: set it"),
        ("training.inputs.window=[3, 1]", r"larger than scan.shape \[2, 3\]"),
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


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.inputs.layout=detector", "task embed is about patterns, and training.inputs.layout is detector"),
        ("network.latent=1536", "patterns of 1536 pixels are too small for 1536 latent numbers"),
        ("network.input_shape=[1, 32, 32]", r"a pattern is \[1, 32, 48\]: set it"),
        ("training.embed.materials=1", "training.embed.materials"),
    ],
)
def test_what_does_not_fit_an_embedding_is_named(config, override, message):
    network = "network={kind: cvae, input_shape: [1, 32, 48], filters: [2], hidden: 4}"
    assert load(config, ["training.task=embed", network]).training.task == "embed"
    with pytest.raises(InputError, match=message):
        load(config, ["training.task=embed", network, override])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("network={kind: unet3d, input_shape: [3, 8, 32, 48]}", "kind unet3d gives no numbers of a volume"),
        ("training.inputs.layout=scan", "takes a scan as a volume, and training.inputs.layout is scan"),
        ("network.outputs=4", "network.outputs is 4, and 2 quantities with training.loss.likelihood none need 2"),
        ("training.loss.likelihood=laplace", "likelihood laplace need 4: set it to 4"),
        ("training.loss.relative=true", "relative is for densities"),
        pytest.param(
            "training.split.ways=2",
            "split.axis is y, and samples of the task estimate are divided along z: set it to z",
            marks=needs("parts", "division"),
        ),
        ("training.estimate.quantities=[defocus_angstrom, defocus_angstrom]", "has a name twice"),
        (
            "variation.defocus_angstrom=[5, 5]",
            "defocus_angstrom, which is 5 in all samples: give variation.defocus_ang",
        ),
        ("variation={rule: grid, defocus_angstrom: [0, 9]}", "specimen_tilt_x_mrad, which is 0 in all samples: give"),
        ("network.input_shape=[3, 2, 32, 32]", r"a volume is \[3, 2, 32, 48\]: set it"),
        ("training.inputs.window=[2, 4]", r"a volume is \[4, 2, 32, 48\]"),
        ("training.inputs.channels=polar", "layout volume has detector pixels"),
        ("training.inputs={layout: volume, channels: binned, bin_pixels: 5}", "5 does not divide the detector's 32×48"),
        ("training.inputs.coordinates=true", "coordinates and held_out_positions are not for layout volume"),
    ],
)
def test_what_does_not_fit_an_estimation_is_named(config, override, message):
    overrides = [
        "training={task: estimate, epochs: 1, inputs: {layout: volume}}",
        "training.estimate.quantities=[defocus_angstrom, specimen_tilt_x_mrad]",
        "network={kind: cosmoflow, input_shape: [3, 2, 32, 48], outputs: 2}",
        "variation={rule: random, configurations: 2, defocus_angstrom: [-5, 9], specimen_tilt_mrad: [2, 6]}",
    ]
    found = load(config, overrides)
    ranges = {"defocus_angstrom": (-5, 9), "specimen_tilt_x_mrad": (-6, 6)}
    assert quantity_ranges(found, found.training.estimate.quantities) == ranges
    with pytest.raises(InputError, match=message):
        load(config, [*overrides, override])
