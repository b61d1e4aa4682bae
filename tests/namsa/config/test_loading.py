"""Configurations: overrides, and errors that name every fault and the nearest known key."""

import pytest
from pydantic import ValidationError

from namsa import InputError
from namsa.config.loading import dump_yaml, read_yaml, validate
from namsa.config.simulation import SimulationConfig, load_config

MINIMAL = "simulation: {grid_shape: [64, 80]}\nnetwork: {anything: 1}\ntraining: {goes: 2}\n"


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(MINIMAL)
    return file


def test_overrides_set_values_in_sections(path):
    config = load_config(path, ["microscope.energy_ev=80e3", "scan.shape=[3, 5]", "materials.builtin=[Si]"])
    assert config.microscope.energy_ev == 80e3
    assert config.scan.shape == (3, 5)
    assert config.materials.builtin == ("Si",)


def test_the_tree_is_frozen_and_survives_writing_and_reading(path):
    config = load_config(path, ["specimen.frozen_phonons={rms_angstrom: {Si: 0.07}}"])
    with pytest.raises(ValidationError, match="frozen"):
        config.seed = 3
    path.write_text(dump_yaml(config))
    assert load_config(path) == config


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("microscope.energy_kev=200", "unknown key microscope.energy_kev; did you mean energy_ev"),
        ("microscop={}", "did you mean microscope"),
        ("microscope.defocus=100", "unknown key microscope.defocus; give aberrations.C10 in Å, which is −defocus"),
        ("microscope.energy_ev=200", "microscope.energy_ev.*10000.*in eV"),
        ("microscope.energy_ev=2e8", "microscope.energy_ev.*1000000"),
        ("microscope.energy_ev=.nan", "microscope.energy_ev.*finite"),
        ("simulation.sampling_angstrom=0.1", "at most one of grid_shape and sampling_angstrom"),
        ("split.train=0.5", "must be 1"),
        ("name=a/b", "name"),
        ("seed", "section.key=value"),
        ("seed.deeper.still=1", "configuration|value, not a section|seed"),
        ("scan.shape=[1", "not a YAML value"),
        ("microscope.energy_ev=1; microscope.semiangle_mrad=-1", "energy_ev.*semiangle_mrad"),
    ],
)
def test_faults_are_named_all_at_once(path, override, message):
    with pytest.raises(InputError, match=message):
        load_config(path, override.split("; "))


@pytest.mark.parametrize("text", ["- a\n", "a: [1", "{}"])
def test_files_without_a_configuration_are_refused(tmp_path, text):
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(InputError):
        load_config(file)
    with pytest.raises(InputError, match="cannot read"):
        read_yaml(tmp_path / "absent.yaml")


def test_samples_hash_depends_on_what_determines_a_samples_bits(path):
    base = load_config(path).samples_hash()
    for setting in ("microscope.semiangle_mrad=21", "seed=1", "specimen.max_strain=0.01"):
        assert load_config(path, [setting]).samples_hash() != base
    assert load_config(path, ["simulation.engine=auto"]).samples_hash() == base  # its default, written or not
    assert load_config(path, ["materials.limit=3", "data.directory=elsewhere"]).samples_hash() == base


def test_validate_reports_the_section_of_a_nested_fault():
    with pytest.raises(InputError, match=r"specimen\.zone_axes\.0"):
        validate(SimulationConfig, {"simulation": {"grid_shape": [4, 4]}, "specimen": {"zone_axes": [[0, 0]]}}, "x")
