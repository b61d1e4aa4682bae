"""The experiments that ship are valid, and editors are given the schema of today's
configuration.
"""

import json

import pytest
from paths import CONFIGS
from tiny import write_config

from fcdensenet.config import NetworkConfig
from fcdensenet.count import count
from namsa import InputError
from namsa.physics.detector import pixels
from namsa.physics.grid import Grid
from namsa.physics.optics import wavelength_angstrom
from train.experiment.conditions import conditions, describe_edge, describe_unchecked
from train.experiment.experiment import Experiment, load
from train.experiment.registry import kinds
from train.optimization.loop import learning_rate
from train.tasks.estimate.quantities import quantity_ranges

HIGHEST_RATE = 0.0226  # that LARS before Adam took at a batch of 4,096, where 1.024 diverged
FE_200_ANGSTROM = 442.0, 2637.0  # mean and maximum of the projected density of iron, e/Å²


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_experiments_are_valid(path):
    assert load(path).name


def test_the_schema_is_that_of_the_code():
    """Written by CONTRIBUTING.md's command."""
    assert json.loads((CONFIGS / "schema.json").read_text()) == json.loads(
        json.dumps(Experiment.model_json_schema())
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["network.input_shape=[256, 24, 28]"], r"set it to \[256, 24, 24\]"),
        (["training.inputs.layout=detector"], r"set it to \[576, 16, 16\]"),
        (["target.at=grid"], "the target's shape"),
        (["training.inputs.coordinates=true"], "coordinates are for layout detector"),
        (["network.grwoth=3"], "unknown key network.grwoth; did you mean growth"),
        (["training.epocs=3"], "unknown key training.epocs; did you mean epochs"),
        (
            ["training.inputs.dose_electrons_per_pattern=[500, 100]"],
            r"\[500.0, 100.0\] falls: give \[low, high\]",
        ),
        (["detector=null"], "give detector or simulation.grid_shape"),
        (
            ["training.loss.likelihood=laplace"],
            "output_channels is 1, and training.loss.likelihood laplace needs 2",
        ),
        (
            ["network.output_channels=2"],
            "output_channels is 2, and training.loss.likelihood none needs 1",
        ),
        (
            ["training.inputs.layout=detector", "training.inputs.channels=polar"],
            "set training.inputs.layout=scan",
        ),
        (
            ["training.inputs.channels=polar"],
            r"layout scan, channels polar.*set it to \[\d+, 24, 24\]",
        ),
        (["training.inputs.channels=binned"], r"channels binned by 2.*set it to \[64, 24, 24\]"),
        (["training.inputs.guess=dpc"], r"layout scan, guess dpc.*set it to \[257, 24, 24\]"),
        (
            ["training.inputs.channels=binned", "training.inputs.bin_pixels=3"],
            "3 does not divide the detector's 16×16",
        ),
        (
            ["training.inputs={normalisation: log, power: 1}"],
            "power 1 is for normalisation power, not log",
        ),
        (
            ["training.inputs.imperfections.source_size_angstrom=[0.9, 0.2]"],
            r"give \[least, most\], not \[0.9, 0.2\]",
        ),
        (["training.inputs.imperfections.hot_pixels=[0, 0.5]"], "at most 0.2"),
        (["training.inputs.imperfections.source_angstrom=[0, 1]"], "source_angstrom"),
    ],
)
def test_what_does_not_go_together_is_told_with_the_remedy(overrides, message):
    with pytest.raises(InputError, match=message):
        load(CONFIGS / "quickstart.yaml", overrides)


@pytest.mark.parametrize(
    "noise",
    [
        "detector.electrons_per_pattern=1000",
        "detector.dose_electrons_per_angstrom2=1000",
        "variation={rule: grid, electrons_per_pattern: [100, 1000]}",
    ],
)
def test_noise_upon_noise_is_refused(noise):
    dose = "training.inputs.dose_electrons_per_pattern=300"
    load(CONFIGS / "quickstart.yaml", [dose])
    load(CONFIGS / "quickstart.yaml", [noise])
    with pytest.raises(
        InputError, match="draws noise on samples that .* gives noise already.*unset one"
    ):
        load(CONFIGS / "quickstart.yaml", [dose, noise])


@pytest.mark.parametrize(
    "directed",
    [
        "microscope.aberrations={C12: 20, phi12: 0.3}",
        "microscope.specimen_tilt_mrad=[0, 2]",
        "variation={rule: grid, beam_tilt_mrad: [[0, 0], [0, 2]]}",
        "variation={rule: grid, specimen_tilt_mrad: [[0, 4], [4, 0]]}",
        "variation={rule: grid, C12_angstrom: [[10, 0.3]]}",
    ],
)
def test_a_microscope_with_a_direction_is_refused_before_samples_are_made_to_be_mirrored(directed):
    load(CONFIGS / "quickstart.yaml", [directed, "training.inputs.augment=false"])
    load(
        CONFIGS / "quickstart.yaml",
        ["variation={rule: grid, defocus_angstrom: [0, 50], beam_tilt_mrad: [[0, 0]]}"],
    )
    with pytest.raises(
        InputError, match="mirrored samples are not true ones: set training.inputs.augment=false"
    ):
        load(CONFIGS / "quickstart.yaml", [directed, "training.inputs.augment=true"])


@pytest.fixture(scope="module")
def training():
    return load(CONFIGS / "paper.yaml").training


@pytest.mark.parametrize(
    ("ranks", "highest"), [(6, 6e-4), (768, 2.77e-3), (6144, 7.84e-3), (27_600, 0.0166)]
)
def test_the_rate_holds_at_every_number_of_ranks(training, ranks, highest):
    rates = []
    for epoch in range(200):
        rates.append(
            learning_rate(training.schedule, training.optimizer.learning_rate, ranks, epoch)
        )
    assert max(rates) == pytest.approx(highest, rel=1e-2)
    assert highest < HIGHEST_RATE


def test_the_huber_loss_of_the_target_is_quadratic_at_first_and_linear_for_large_errors_at_the_end(
    training,
):
    mean, most = (
        value / training.inputs.density_scale_e_per_angstrom2 for value in FE_200_ANGSTROM
    )
    assert mean == pytest.approx(1, abs=0.5)
    at_the_end = training.loss.huber_delta * training.loss.huber_delta_decay ** (2000 / 14)
    assert at_the_end < most < training.loss.huber_delta


@pytest.mark.parametrize("steps_per_epoch", [14, 55])
def test_training_ends_after_2000_steps_of_any_number_of_nodes(training, steps_per_epoch):
    assert training.steps == 2000 < training.epochs * steps_per_epoch


def test_the_transitions_of_the_network_have_no_normalisation_if_it_is_switched_off():
    config = NetworkConfig(input_shape=(2, 16, 24), layers=(1, 1, 1), growth=3, first_filters=4)
    bare = config.model_copy(update={"transition_norm": False})
    channels = 4 + 3  # of the transition, each with a factor, a shift, and two moving averages
    assert count(config).parameters - count(bare).parameters == 4 * channels


@pytest.mark.parametrize(
    ("config", "overrides", "symmetric"),
    [
        ("quickstart.yaml", [], True),
        ("quickstart.yaml", ["detector={shape: [16, 16], binning: 3}"], False),
        ("quickstart.yaml", ["detector={shape: [16, 16], binning: 2}"], False),
        (
            "quickstart.yaml",
            ["detector={shape: [15, 15]}", "network.input_shape=[225, 24, 24]"],
            True,
        ),
        ("summit.yaml", [], True),
        ("paper.yaml", [], False),  # an even number of the grid's own pixels is not centred
    ],
)
def test_the_detector_is_where_the_simulation_puts_it(config, overrides, symmetric):
    experiment = load(CONFIGS / config, overrides)
    trained = conditions(experiment)
    cell = experiment.specimen.lateral_angstrom
    rows = pixels(
        Grid((512, 512), cell),
        wavelength_angstrom(experiment.microscope.energy_ev),
        experiment.detector,
    )
    assert trained.detector_shape == tuple(row.count for row in rows)
    assert trained.pixel_mrad == pytest.approx([row.size_mrad for row in rows])
    assert trained.first_edge == pytest.approx([row.edge for row in rows])
    assert trained.symmetric == symmetric


def test_a_scan_that_fills_the_cell_has_the_step_of_the_smallest():
    assert conditions(load(CONFIGS / "paper.yaml")).scan_step_angstrom == (3.125, 3.125)
    assert conditions(load(CONFIGS / "quickstart.yaml")).scan_step_angstrom == (0.4, 0.4)


def test_conditions_that_no_file_contains_are_described():
    overrides = ["variation={rule: random, configurations: 2, defocus_angstrom: [-50, 100]}"]
    overrides += [
        "training.inputs.dose_electrons_per_pattern=[100, 1000]",
        "microscope.aberrations={C30: 1.0e+4}",
    ]
    experiment = load(CONFIGS / "quickstart.yaml", overrides)
    line = describe_unchecked(experiment, experiment.training.inputs)
    for words in (
        "thickness 20 to 40 Å",
        "defocus -50 to 100 Å",
        "{'C30': 10000.0}",
        "at 100 to 1000 electrons",
    ):
        assert words in line


def test_another_edge_of_the_aperture_than_that_of_the_training_is_said():
    experiment = load(CONFIGS / "quickstart.yaml")
    assert describe_edge("", experiment) is None
    assert describe_edge("intensity", experiment) is None
    assert "amplitude of these patterns" in describe_edge("amplitude", experiment)


def test_varied_conditions_are_described_by_their_magnitudes():
    base = ["specimen.thickness_angstrom=[60]", "simulation.method=scatter"]
    ranges = "thickness_angstrom: [15, 60], C12_angstrom: [0, 30], specimen_tilt_mrad: [0, 10]"
    drawn = load(
        CONFIGS / "quickstart.yaml",
        [*base, f"variation={{rule: random, configurations: 2, {ranges}}}"],
    )
    line = describe_unchecked(drawn, drawn.training.inputs)
    assert "thickness 15 to 60 Å, defocus 0 Å" in line
    assert line.endswith("without noise, specimen tilt 0 to 10 mrad, C12 0 to 30 Å")
    lists = (
        "thickness_angstrom: [20, 40], C12_angstrom: [[5, 1], [30, -2]], beam_tilt_mrad: [[0, 0], "
        "[3, -4]]"
    )
    base.append("training.inputs.augment=false")
    listed = load(CONFIGS / "quickstart.yaml", [*base, f"variation={{rule: grid, {lists}}}"])
    line = describe_unchecked(listed, listed.training.inputs)
    assert "thickness 20 to 40 Å" in line
    assert line.endswith("without noise, beam tilt 0 to 5 mrad, C12 5 to 30 Å")


# ---- Network, inputs and task

NETWORK = {
    "kind": "resnet50",
    "input_shape": [1, 32, 48],
    "classes": 2,
    "units": [1, 1],
    "width": 4,
}
TRAINING = {"task": "classify", "epochs": 1, "inputs": {"layout": "pattern"}}


@pytest.fixture
def of_patterns(tmp_path):
    return write_config(tmp_path, target={"at": "scan"}, network=NETWORK, training=TRAINING)


def test_a_sample_gives_as_many_images_as_its_window_has_positions(of_patterns):
    assert load(of_patterns).images_per_sample() == 6
    windowed = load(of_patterns, ["training.inputs.window=[1, 2]"])
    assert windowed.window_shapes() == ((1, 2, 32, 48), (1, 2))
    assert windowed.images_per_sample() == 2


CVAE = "network={kind: cvae, input_shape: [1, 32, 48], filters: [2], hidden: 4}"
JOBS = {
    "classify": [],
    "embed": ["training.task=embed", CVAE],
    "estimate": [
        "training={task: estimate, epochs: 1, inputs: {layout: volume}}",
        "training.estimate.quantities=[defocus_angstrom, specimen_tilt_x_mrad]",
        "network={kind: cosmoflow, input_shape: [3, 2, 32, 48], outputs: 2}",
        "variation={rule: random, configurations: 2, defocus_angstrom: [-5, 9], "
        "specimen_tilt_mrad: [2, 6]}",
    ],
}
WRONG = {
    "classify": [
        (
            "network={input_shape: [1, 32, 48], layers: [1, 1, 1]}",
            "kind fcdensenet gives no classes of a pattern",
        ),
        ("network.classes=null", "kind resnet50 without classes gives no classes"),
        ("training.task=density", "kind resnet50 gives no image of densities"),
        ("training.task=embed", "kind resnet50 has no latent numbers of a pattern"),
        (
            "training.task=forecast",
            "must be 'density', 'classify', 'segment', 'embed' or 'estimate'",
        ),
        ("training.inputs.layout=scan", "is about patterns, and training.inputs.layout is scan"),
        (
            "network.units=[1, 1, 1, 1, 1]",
            r"patterns of \[32, 48\] pixels are too small .* 64 pixels are the least",
        ),
        ("network.input_shape=[1, 48, 48]", r"a pattern is \[1, 32, 48\]: set it"),
        ("training.inputs.window=[3, 1]", r"larger than scan.shape \[2, 3\]"),
        ("training.classify.classes=[cubic, cubic]", "has a name twice"),
        ("training.classify.classes=[a, b, c]", "classes lists 3: set it to 3"),
        ("training.recompute=true", "recompute is for network.kind fcdensenet"),
        ("target.at=grid", "set target.at to scan"),
        ("training.validation.stop_at=0.1", "stop_at needs validations: set every_epochs"),
        ("training.optimizer={kind: momentum, lars: after}", "'after' is for kind adam"),
        (
            "network.kind=resnet",
            "network: write a section whose kind is one of fcdensenet, resnet50",
        ),
        ("network.growth=3", "unknown key network.growth"),
    ],
    "embed": [
        (
            "training.inputs.layout=detector",
            "task embed is about patterns, and training.inputs.layout is detector",
        ),
        ("network.latent=1536", "patterns of 1536 pixels are too small for 1536 latent numbers"),
        ("network.input_shape=[1, 32, 32]", r"a pattern is \[1, 32, 48\]: set it"),
        ("training.embed.materials=1", "training.embed.materials"),
    ],
    "estimate": [
        (
            "network={kind: unet3d, input_shape: [3, 8, 32, 48]}",
            "kind unet3d gives no numbers of a volume",
        ),
        (
            "training.inputs.layout=scan",
            "takes a scan as a volume, and training.inputs.layout is scan",
        ),
        (
            "network.outputs=4",
            "network.outputs is 4, and 2 quantities with training.loss.likelihood none need 2",
        ),
        ("training.loss.likelihood=laplace", "likelihood laplace need 4: set it to 4"),
        ("training.loss.relative=true", "relative is for densities"),
        ("training.estimate.quantities=[defocus_angstrom, defocus_angstrom]", "has a name twice"),
        (
            "variation.defocus_angstrom=[5, 5]",
            "defocus_angstrom, which is 5 in all samples: give variation.defocus_ang",
        ),
        (
            "variation={rule: grid, defocus_angstrom: [0, 9]}",
            "specimen_tilt_x_mrad, which is 0 in all samples: give",
        ),
        ("network.input_shape=[3, 2, 32, 32]", r"a volume is \[3, 2, 32, 48\]: set it"),
        ("training.inputs.window=[2, 4]", r"a volume is \[4, 2, 32, 48\]"),
        ("training.inputs.channels=polar", "layout volume has detector pixels"),
        (
            "training.inputs={layout: volume, channels: binned, bin_pixels: 5}",
            "5 does not divide the detector's 32×48",
        ),
        (
            "training.inputs.coordinates=true",
            "coordinates and held_out_positions are not for layout volume",
        ),
    ],
}
if "parts" in kinds("division"):
    WRONG["estimate"].append(
        ("training.split.ways=2", "split.axis is y, .* estimate are divided along z: set it to z")
    )


@pytest.mark.parametrize("job", JOBS)
def test_what_fits_is_loaded(of_patterns, job):
    training = load(of_patterns, JOBS[job]).training
    assert training.task == job
    if job == "estimate":
        ranges = {"defocus_angstrom": (-5, 9), "specimen_tilt_x_mrad": (-6, 6)}
        assert quantity_ranges(load(of_patterns, JOBS[job]), training.estimate.quantities) == ranges


@pytest.mark.filterwarnings("ignore:--set .* replaces the section:namsa.SimulationWarning")
@pytest.mark.parametrize(
    ("job", "override", "message"), [(job, *case) for job in WRONG for case in WRONG[job]]
)
def test_what_does_not_fit_is_named(of_patterns, job, override, message):
    with pytest.raises(InputError, match=message):
        load(of_patterns, [*JOBS[job], override])
