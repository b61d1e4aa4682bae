"""The experiments that ship are valid, and editors are given the schema of today's configuration."""

import json

import pytest
from paths import CONFIGS

from namsa import InputError
from train.experiment.experiment import Experiment, load


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
