"""The experiments that ship are valid, and editors are given the schema of today's configuration."""

import json

import pytest
from paths import CONFIGS

from fcdensenet.config import NetworkConfig
from fcdensenet.count import count
from namsa import InputError
from namsa.config.instrument import Detector
from namsa.physics.detector import pixels
from namsa.physics.grid import Grid
from namsa.physics.optics import wavelength_angstrom
from train.experiment.conditions import conditions, describe_unchecked
from train.experiment.experiment import Experiment, load
from train.optimization.loop import learning_rate

HIGHEST_RATE = 0.0226  # that LARS before Adam took at a batch of 4,096, where 1.024 diverged
FE_200_ANGSTROM = 442.0, 2637.0  # mean and maximum of the projected density of iron, e/Å²


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_experiments_are_valid(path):
    assert load(path).name


def test_the_schema_is_that_of_the_code():
    """Written by CONTRIBUTING.md's command."""
    assert json.loads((CONFIGS / "schema.json").read_text()) == json.loads(json.dumps(Experiment.model_json_schema()))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("network.input_shape=[256, 24, 28]", r"set it to \[256, 24, 24\]"),
        ("training.inputs.layout=detector", r"set it to \[576, 16, 16\]"),
        ("target.at=grid", "the target's shape"),
        ("training.inputs.coordinates=true", "coordinates are for layout detector"),
        ("network.grwoth=3", "unknown key network.grwoth; did you mean growth"),
        ("training.epocs=3", "unknown key training.epocs; did you mean epochs"),
        ("training.inputs.dose_electrons_per_pattern=[500, 100]", r"\[500.0, 100.0\] falls: give \[low, high\]"),
        ("detector=null", "give detector or simulation.grid_shape"),
        ("training.loss.likelihood=laplace", "output_channels is 1, and training.loss.likelihood laplace needs 2"),
        ("network.output_channels=2", "output_channels is 2, and training.loss.likelihood none needs 1"),
    ],
)
def test_what_does_not_go_together_is_told_with_the_remedy(override, message):
    with pytest.raises(InputError, match=message):
        load(CONFIGS / "quickstart.yaml", [override])


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
    with pytest.raises(InputError, match="draws noise on samples that .* gives noise already.*unset one"):
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
    load(CONFIGS / "quickstart.yaml", ["variation={rule: grid, defocus_angstrom: [0, 50], beam_tilt_mrad: [[0, 0]]}"])
    with pytest.raises(InputError, match="mirrored samples are not true ones: set training.inputs.augment=false"):
        load(CONFIGS / "quickstart.yaml", [directed, "training.inputs.augment=true"])


@pytest.fixture(scope="module")
def training():
    return load(CONFIGS / "paper.yaml").training


@pytest.mark.parametrize(("ranks", "highest"), [(6, 6e-4), (768, 2.77e-3), (6144, 7.84e-3), (27_600, 0.0166)])
def test_the_rate_holds_at_every_number_of_ranks(training, ranks, highest):
    rates = [learning_rate(training.schedule, training.optimizer.learning_rate, ranks, epoch) for epoch in range(200)]
    assert max(rates) == pytest.approx(highest, rel=1e-2)
    assert highest < HIGHEST_RATE


def test_the_huber_loss_of_the_target_is_quadratic_at_first_and_linear_for_large_errors_at_the_end(training):
    mean, most = (value / training.inputs.density_scale_e_per_angstrom2 for value in FE_200_ANGSTROM)
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
        ("quickstart.yaml", ["detector={shape: [15, 15]}", "network.input_shape=[225, 24, 24]"], True),
        ("summit.yaml", [], True),
        ("paper.yaml", [], False),  # an even number of the grid's own pixels is not centred
    ],
)
def test_the_detector_is_where_the_simulation_puts_it(config, overrides, symmetric):
    experiment = load(CONFIGS / config, overrides)
    trained, cell = conditions(experiment), experiment.specimen.lateral_angstrom
    detector = experiment.detector or Detector(shape=experiment.simulation.grid_shape)
    grid = Grid((512, 512), cell)
    if experiment.detector is None:
        detector = None
    rows = pixels(grid, wavelength_angstrom(experiment.microscope.energy_ev), detector)
    assert trained.detector_shape == tuple(row.count for row in rows)
    assert trained.pixel_mrad == pytest.approx([row.size_mrad for row in rows])
    assert trained.first_edge == pytest.approx([row.edge for row in rows])
    assert trained.symmetric == symmetric


def test_a_scan_that_fills_the_cell_has_the_step_of_the_smallest():
    assert conditions(load(CONFIGS / "paper.yaml")).scan_step_angstrom == (3.125, 3.125)
    assert conditions(load(CONFIGS / "quickstart.yaml")).scan_step_angstrom == (0.4, 0.4)


def test_conditions_that_no_file_contains_are_described():
    overrides = ["variation={rule: random, configurations: 2, defocus_angstrom: [-50, 100]}"]
    overrides += ["training.inputs.dose_electrons_per_pattern=[100, 1000]", "microscope.aberrations={C30: 1.0e+4}"]
    experiment = load(CONFIGS / "quickstart.yaml", overrides)
    line = describe_unchecked(experiment, experiment.training.inputs)
    for part in ("thickness 20 to 40 Å", "defocus -50 to 100 Å", "{'C30': 10000.0}", "at 100 to 1000 electrons"):
        assert part in line


def test_varied_conditions_are_described_by_their_magnitudes():
    base = ["specimen.thickness_angstrom=[60]", "simulation.method=scatter"]
    ranges = "thickness_angstrom: [15, 60], C12_angstrom: [0, 30], specimen_tilt_mrad: [0, 10]"
    drawn = load(CONFIGS / "quickstart.yaml", [*base, f"variation={{rule: random, configurations: 2, {ranges}}}"])
    line = describe_unchecked(drawn, drawn.training.inputs)
    assert "thickness 15 to 60 Å, defocus 0 Å" in line
    assert line.endswith("without noise, specimen tilt 0 to 10 mrad, C12 0 to 30 Å")
    lists = "thickness_angstrom: [20, 40], C12_angstrom: [[5, 1], [30, -2]], beam_tilt_mrad: [[0, 0], [3, -4]]"
    base.append("training.inputs.augment=false")
    listed = load(CONFIGS / "quickstart.yaml", [*base, f"variation={{rule: grid, {lists}}}"])
    line = describe_unchecked(listed, listed.training.inputs)
    assert "thickness 20 to 40 Å" in line
    assert line.endswith("without noise, beam tilt 0 to 5 mrad, C12 5 to 30 Å")
