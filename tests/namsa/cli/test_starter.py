"""`namsa init`: the folder is complete, its parts fit together, and nothing is replaced."""

import json

import pytest

import namsa
from namsa.cli import parser
from namsa.cli.commands import starter
from namsa.config.simulation import load_config


def test_the_folder_has_a_configuration_for_its_crystal_and_a_notebook_without_outputs(tmp_path, monkeypatch, capsys):
    assert parser.main(["init", str(tmp_path / "a" / "new")]) == 0
    folder = tmp_path / "a" / "new"
    assert sorted(path.name for path in folder.iterdir()) == sorted(starter.NAMES)
    assert capsys.readouterr().out.startswith(f"{folder}: README.md, ")
    monkeypatch.chdir(folder)
    config = load_config("starter.yaml")
    (path,) = config.materials.cif
    assert namsa.read_cif(path).atoms.get_chemical_formula() == "O3SrTi"
    (folder / "starter.yaml").write_text("name: mine\nsimulation: {sampling_angstrom: auto}\n")
    assert parser.main(["init", "."]) == 0  # again: nothing is replaced
    assert load_config("starter.yaml").name == "mine"
    cells = json.loads((folder / "first_hour.ipynb").read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)


def test_its_first_command_simulates(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parser.main(["init", "."]) == 0
    less = ["--set", "scan.shape=[2, 3]", "--set", "specimen.thickness_angstrom=[4]"]
    assert parser.main(["simulate", "starter.yaml", "--out", "SrTiO3.h5", *less]) == 0
    assert namsa.read_sample("SrTiO3.h5").cbed.shape == (6, 49, 49)


def test_with_simulate_it_asks_for_the_same(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("namsa.cli.commands.simulate.simulate", asked.append)
    assert parser.main(["init", str(tmp_path), "--simulate"]) == 0
    (options,) = asked
    assert (options.config, options.crystal) == (tmp_path / "starter.yaml", tmp_path / "SrTiO3.cif")
    assert options.out == tmp_path / "SrTiO3.h5"


@pytest.mark.parametrize("name", ["full", "file"])
def test_a_folder_that_is_not_empty_and_a_file_are_refused(name, tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    assert parser.main(["init", str(tmp_path / name)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path / name} is ")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "full", "mine.txt"]
