"""YAML of people: the values of JSON, within bounds; each fault is one short line with its place."""

import time

import pytest
import yaml
from paths import CONFIGS, DATA

from namsa import InputError
from namsa.config.loading import read_yaml, validate
from namsa.config.simulation import SimulationConfig, load_config
from namsa.config.yaml_text import parse_yaml

NINE_TO_THE_TENTH = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{key}: &{key} [{', '.join([f'*{chr(ord(key) - 1)}'] * 9)}]\n" for key in "bcdefghij"
)


@pytest.mark.parametrize("path", [*CONFIGS.rglob("*.yaml"), DATA / "tiny.yaml"], ids=lambda path: path.stem)
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
    started = time.monotonic()
    with pytest.raises(InputError, match=message) as caught:
        parse_yaml(text, "x.yaml")
    assert str(caught.value).startswith("x.yaml is not valid YAML: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    assert time.monotonic() - started < 10


def test_large_files_are_refused_before_they_are_parsed(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(InputError, match="more than 1 MiB"):
        read_yaml(path)
    path.write_bytes(b"a: \xff")
    with pytest.raises(InputError, match=r"byte 3 is 0xff.*UTF-8"):
        read_yaml(path)


@pytest.mark.parametrize(
    "override",
    ["name=2024-13-45", "seed=" + "9" * 5000, "scan.shape=" + "[" * 5000, ".".join("a" * 100) + "=1", "seed=!!int x"],
    ids=range(5),
)
def test_overrides_with_odd_values_are_refused_in_one_short_line(tmp_path, override):
    path = tmp_path / "x.yaml"
    path.write_text("simulation: {grid_shape: [64, 80]}\n")
    with pytest.raises(InputError, match="--set ") as caught:
        load_config(path, [override])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_the_first_faults_are_named_and_the_others_counted():
    tree = {"simulation": {"grid_shape": [64, 80]}, "specimen": {"thickness_angstrom": ["x"] * 500}}
    with pytest.raises(InputError, match=r"; and 49\d more$") as caught:
        validate(SimulationConfig, tree, "x.yaml")
    assert str(caught.value).count("specimen.thickness_angstrom.") == 10
    with pytest.raises(InputError, match=r"; and \d+ more$") as caught:
        validate(SimulationConfig, {"x" * 5000: 1} | {f"{i}" * 5000: "x" * 5000 for i in range(1, 500)}, "x.yaml")
    assert len(str(caught.value)) < 1300
