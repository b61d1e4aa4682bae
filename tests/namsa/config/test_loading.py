"""Configurations: YAML within bounds, overrides, presets, errors that name every fault and the
nearest known key.
"""

import json
import time
from pathlib import Path
from typing import Annotated, Literal, get_args

import numpy as np
import pytest
import yaml
from paths import CONFIGS, DATA, ROOT
from pydantic import BaseModel, Field, ValidationError

import namsa
from namsa import InputError
from namsa.cli.commands.schema import key_tables
from namsa.config.instrument import Detector, Microscope
from namsa.config.loading import dump_yaml, read_yaml, validate
from namsa.config.presets import DETECTORS, MICROSCOPES
from namsa.config.simulation import SimulationConfig, load_config
from namsa.config.yaml_text import parse_yaml
from namsa.physics.optics import wavelength_angstrom

MINIMAL = "simulation: {grid_shape: [64, 80]}\nnetwork: {anything: 1}\ntraining: {goes: 2}\n"


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(MINIMAL)
    return file


def test_overrides_set_values_in_sections(path):
    config = load_config(
        path, ["microscope.energy_ev=80e3", "scan.shape=[3, 5]", "materials.builtin=[Si]"]
    )
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
        (
            "microscope.defocus=100",
            "unknown key microscope.defocus; give aberrations.C10 in Å, which is −defocus",
        ),
        ("microscope.energy_ev=200", "microscope.energy_ev.*10000.*in eV"),
        ("microscope.energy_ev=2e8", "microscope.energy_ev.*1000000"),
        ("microscope.energy_ev=.nan", "microscope.energy_ev.*finite"),
        ("simulation.sampling_angstrom=0.1", "at most one of grid_shape and sampling_angstrom"),
        ("split.train=0.5", "must be 1"),
        ("name=a/b", "name"),
        ("seed", "section.key=value"),
        (".".join("a" * 100) + "=1", r"--set a.a.*\.\.\..*: write it as --set section.key=value"),
        ("seed.deeper.still=1", "configuration|value, not a section|seed"),
        ("scan.shape=[1", "--set scan.shape.* is not a YAML value"),
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
    assert (
        load_config(path, ["simulation.engine=auto"]).samples_hash() == base
    )  # its default, written or not
    assert (
        load_config(path, ["materials.limit=3", "data.directory=elsewhere"]).samples_hash() == base
    )


# ---- YAML of people

NINE_TO_THE_TENTH = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{key}: &{key} [{', '.join([f'*{chr(ord(key) - 1)}'] * 9)}]\n" for key in "bcdefghij"
)


@pytest.mark.parametrize(
    "path", [*CONFIGS.rglob("*.yaml"), DATA / "tiny.yaml"], ids=lambda path: path.stem
)
def test_shipped_configurations_read_as_pyyaml_reads_them(path):
    text = path.read_text(encoding="utf-8")
    assert parse_yaml(text, "x") == yaml.safe_load(text)


def test_aliases_and_merges_are_expanded():
    assert parse_yaml("{a: &a {x: 1, y: 2}, b: {<<: *a, x: 3}, c: [*a, *a]}", "x") == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 3, "y": 2},
        "c": [{"x": 1, "y": 2}, {"x": 1, "y": 2}],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", r"key a occurs twice.*\(line 3, column 1\)"),
        ("a: 2001-13-45", r"read as a date.*\(line 1, column 4\)"),
        ("{1: 2}", "key 1 is not text"),
        ("{No: 2}", "key No is read as true or false"),
        ("[1", r"expected ',' or ']'.*line 1"),
        ("!!binary x", "tagged !!binary"),
        ("!!set {a}", "tagged !!set"),
        ("!!python/object:os.system x", "tagged !!python/object"),
        ("!!int x", "tagged !!int"),
        ("!!bool x", "true or false"),
        ("!!str [a]", "tagged !!str"),
        ("[" * 5000, "more than 32 levels"),
        ("{a: " * 500, "more than 32 levels"),
        ("&a [*a]", "contains itself"),
        (NINE_TO_THE_TENTH, "more than 20000"),
        ("- 1\n" * 30000, "more than 20000"),
        ("9" * 5000, "more than 4096 characters"),
        ("9" * 50, "more than 64 bits"),
        ("0x" + "f" * 50, "more than 64 bits"),
        ("x" * 5000, "more than 4096 characters"),
        ("a\n\x01", r"x01.*line 2"),
        ('"\\ud800"', "half of a character"),
        ('"\\UFFFFFFFF"', "out of range"),
        ('"\\0"', "null character"),
        ("%YAML " + "9" * 5000 + ".1\n---\na", "out of range"),
        ("=", "write it in quotes"),
        ("a\n---\nb", "single document"),
    ],
    ids=range(27),
)
def test_faults_are_one_short_line_with_their_place(text, message):
    started = time.process_time()
    with pytest.raises(InputError, match=message) as caught:
        parse_yaml(text, "x.yaml")
    assert str(caught.value).startswith("x.yaml is not valid YAML: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    assert time.process_time() - started < 10


def test_large_files_are_refused_before_they_are_parsed(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(InputError, match="more than 1 MiB"):
        read_yaml(path)
    path.write_bytes(b"a: \xff")
    with pytest.raises(InputError, match=r"byte 3 is 0xff.*UTF-8"):
        read_yaml(path)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (
            {"frozen_phonons": {"rms_angstrom": 0.1, "configurations": 0}},
            "specimen.frozen_phonons.configurations: must be at least 1 or 'auto' (given 0); ",
        ),
        (
            {"frozen_phonons": {"b_factor_angstrom2": "cif"}},
            "specimen.frozen_phonons.b_factor_angstrom2: must be a number or a section, as "
            "{key: value} (given 'cif'); ",
        ),
        (
            {"frozen_phonons": {"rms_angstrom": {"Sr": -1}}},
            "specimen.frozen_phonons.rms_angstrom.Sr: must be at least 0 (given -1)",
        ),
        (
            {"thickness_angstrom": [-5]},
            "specimen.thickness_angstrom.0: must be at least 0.001 (given -5)",
        ),
        (
            {"zone_axes": [[1, 1, 1.5]]},
            "specimen.zone_axes.0.2: must be a whole number (given 1.5)",
        ),
        ({"kinds": {"nothing": 1}}, "specimen.kinds.nothing: must be 'crystal', "),
    ],
)
def test_a_value_has_one_message_without_words_of_pydantic(tree, message):
    with pytest.raises(InputError) as caught:
        validate(SimulationConfig, {"simulation": {}, "specimen": tree}, "x.yaml")
    assert str(caught.value).startswith(f"x.yaml: {message}")
    assert str(caught.value).count("specimen.") == 1


def test_the_first_faults_are_named_and_the_others_counted():
    tree = {"simulation": {"grid_shape": [64, 80]}, "specimen": {"thickness_angstrom": ["x"] * 500}}
    with pytest.raises(InputError, match=r"; and 49\d more$") as caught:
        validate(SimulationConfig, tree, "x.yaml")
    assert str(caught.value).count("specimen.thickness_angstrom.") == 10
    with pytest.raises(InputError, match=r"; and \d+ more$") as caught:
        validate(
            SimulationConfig,
            {"x" * 5000: 1} | {f"{i}" * 5000: "x" * 5000 for i in range(1, 500)},
            "x.yaml",
        )
    assert len(str(caught.value)) < 1300


# ---- Presets


@pytest.mark.parametrize(("section", "presets"), [(Detector, DETECTORS), (Microscope, MICROSCOPES)])
def test_a_section_takes_the_names_that_there_are(section, presets):
    literal, _ = get_args(section.model_fields["preset"].annotation)
    assert set(get_args(literal)) == set(presets)
    for name in presets:
        assert "preset" not in section(preset=name).model_dump()


def test_other_keys_override_a_preset_and_a_detector_reaches_the_angle_that_is_asked_for():
    assert Microscope(preset="corrected-300kv", semiangle_mrad=25) == Microscope(
        energy_ev=300e3, semiangle_mrad=25
    )
    assert Detector(preset="empad", max_angle_mrad=32) == Detector(shape=(128, 128), pixel_mrad=0.5)
    assert Detector(preset="arina", pixel_mrad=0.4) == Detector(shape=(192, 192), pixel_mrad=0.4)
    assert Detector(preset="merlin", shape=(64, 128), max_angle_mrad=32).pixel_mrad == 0.5


def test_the_uncorrected_probe_is_the_smallest_that_its_spherical_aberration_allows():
    """Aperture 1.41 (λ/C30)^¼ and underfocus √(C30 λ)."""
    probe = Microscope(preset="uncorrected-200kv")
    wavelength = wavelength_angstrom(200e3)
    spherical = probe.aberrations["C30"]
    assert probe.semiangle_mrad == pytest.approx(
        1.41e3 * (wavelength / spherical) ** 0.25, rel=1e-3
    )
    assert probe.aberrations["C10"] == pytest.approx(-np.sqrt(spherical * wavelength), abs=1)


def test_an_unknown_preset_is_refused_with_the_names_and_a_written_one_reads_back_as_the_same():
    with pytest.raises(namsa.InputError, match="empad"):
        validate(Detector, {"preset": "emapd"}, "detector")
    detector = Detector(preset="arina", max_angle_mrad=40)
    assert Detector(**yaml.safe_load(dump_yaml(detector))) == detector


def test_a_file_without_a_format_takes_the_name_of_a_detector(tmp_path):
    frames = np.zeros((4, 128, 128), "u2")
    frames.tofile(tmp_path / "a.bin")
    with namsa.read(
        tmp_path / "a.bin", dtype="u2", detector_shape="empad", scan_shape=(2, 2)
    ) as scan:
        assert scan.shape == (2, 2, 128, 128)


# ---- Tables of the keys


class Round(BaseModel):
    """A round aperture."""

    kind: Literal["round"] = "round"
    radius_mrad: float = Field(gt=0, le=200, description="radius | half of the diameter")


class Square(BaseModel):
    """A square aperture."""

    kind: Literal["square"] = "square"
    sides_mrad: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] = (1, 2)


class Lens(BaseModel):
    """A lens.

    Attributes:
        aperture: Left out here.
    """

    aperture: Round | Square | None = None
    other: Round
    names: dict[str, bool] = Field({}, description="what is on")
    seed: int = 0


def test_sections_have_a_table_each_with_values_defaults_and_meaning() -> None:
    assert key_tables(Lens.model_json_schema()) == (
        """A lens.

| key | value | default | meaning |
|---|---|---|---|
| `aperture` | section [aperture (round)](#aperture-round) or section [aperture (square)](#aperture-square) or null """  # noqa: E501
        """| `null` | one of these sections, chosen by its kind |
| `other` | section [aperture (round)](#aperture-round) | required | a round aperture |
| `names` | names, each with true or false | `{}` | what is on |
| `seed` | integer | `0` |  |

## aperture (round)

A round aperture.

| key | value | default | meaning |
|---|---|---|---|
| `kind` | `round` | `"round"` | chooses this section |
| `radius_mrad` | number, > 0, ≤ 200 | required | radius \\| half of the diameter |

## aperture (square)

A square aperture.

| key | value | default | meaning |
|---|---|---|---|
| `kind` | `square` | `"square"` | chooses this section |
| `sides_mrad` | list of 2: each integer, ≥ 1 | `[1, 2]` |  |
"""
    )


def test_every_key_of_an_experiment_says_what_it_is() -> None:
    rows = []
    for line in key_tables(json.loads((ROOT / "configs/schema.json").read_text())).splitlines():
        if "`" in line:
            rows.append(line)
    assert len(rows) > 300
    assert not [row for row in rows if row.endswith("|  |")]
    assert not [row for row in rows if "|  |" in row]  # no default, and not required


def test_the_page_of_the_configuration_has_the_keys_of_today() -> None:
    """Mend it by cutting the page after that line, and `namsa-train schema --markdown` after it."""
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    line = "<!-- The rest of this page is what `namsa-train schema --markdown` prints. -->\n\n"
    keys = json.loads((ROOT / "configs/schema.json").read_text())
    assert page.partition(line)[2] == key_tables(keys)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Detector(shape="10"), "Detector: shape: must be a list"),
        (lambda: Detector(response={"preset": "x"}), "Detector: response.preset: "),
        (lambda: namsa.Scan(file="a.csv", shape=(2, 2)), "Scan: give a file, or shape"),
        (lambda: Microscope(defocus=3), "Microscope: unknown key defocus; give aberrations.C10"),
        (SimulationConfig, "SimulationConfig: simulation: a value is needed"),
    ],
)
def test_sections_built_in_python_are_refused_in_one_line(build, message) -> None:
    with pytest.raises(InputError) as raised:
        build()
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)
    assert "pydantic" not in str(raised.value)


def test_a_configuration_that_is_missing_names_files_like_it(tmp_path, monkeypatch) -> None:
    with pytest.raises(InputError, match="No such file or directory: give the path of a .yaml"):
        load_config(tmp_path / "nothing")
    (tmp_path / "sto.yaml").write_text("{}")
    with pytest.raises(InputError, match="did you mean .*/sto.yaml"):
        load_config(tmp_path / "sto.yml")
    with pytest.raises(InputError, match="has sto.yaml$"):
        load_config(tmp_path / "nothing")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="directory: this folder has sto.yaml$"):
        load_config(Path("nothing"))
