"""The commands that write for other programs, and take their crystals."""

import h5py
import numpy as np
import pytest
import yaml

from namsa.cli.parser import main

CONFIG = {
    "name": "small",
    "materials": {"builtin": ["Si-227-cF8"]},
    "specimen": {"lateral_angstrom": [9, 9], "thickness_angstrom": [6]},
    "microscope": {"energy_ev": 200e3, "semiangle_mrad": 20, "aberrations": {"C10": -30.0}},
    "scan": {"shape": [4, 5], "step_angstrom": [0.5, 0.5]},
    "simulation": {"sampling_angstrom": 0.25},
}
POSCAR = "NaCl\n1.0\n3.98 0 0\n0 3.98 0\n0 0 5.63\nNa Cl\n2 2\nDirect\n0 0 0\n.5 .5 .5\n.5 .5 0\n0 0 .5\n"


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(CONFIG))
    return "small.yaml"


def test_a_compressed_stack_is_exported_with_what_its_provenance_says(config, tmp_path, capsys):
    assert main(["simulate", config, "--out", "cell.h5", "--compression", "gzip"]) == 0
    assert main(["export", "cell.h5", "--to", "phaser", "--out", "phaser", "--iterations", "3"]) == 0
    printed = capsys.readouterr()
    assert "cd phaser && phaser run phaser.yaml" in printed.out
    assert "beyond the simulation's band limit of" in printed.err  # there is no detector
    plan = yaml.safe_load((tmp_path / "phaser/phaser.yaml").read_text())
    assert plan["init"]["scan"] == {"type": "raster", "shape": [4, 5], "step_size": [0.5, 0.5], "rotation": 0.0}
    assert plan["engines"][0]["niter"] == 3
    with h5py.File(tmp_path / "cell.h5") as stack, h5py.File(tmp_path / "phaser/patterns.h5") as copy:
        data = next(iter(stack.values()))["cbed/data"]
        assert data.compression == "gzip"
        np.testing.assert_array_equal(copy["patterns"], data)
    assert main(["export", "cell.h5", "--to", "py4dstem", "--out", "other", "--defocus-angstrom", "50"]) == 0
    assert '"C10": -47' in (tmp_path / "other/parameters.json").read_text()  # in the middle of the specimen


@pytest.mark.parametrize("options", [[], ["--tiles"]])
def test_an_exported_dataset_says_that_its_patterns_end_at_the_band_limit(config, tmp_path, capsys, options):
    detector = {"pixel_mrad": 3.5, "shape": [16, 20]}  # only corners are beyond
    (tmp_path / config).write_text(yaml.safe_dump(CONFIG | {"detector": detector, "data": {"tiles": [1, 1, 2, 1]}}))
    assert main(["dataset", config, "--out", "data"]) == 0
    assert main(["export", "data", "--out", "all.h5", *options]) == 0
    warned = capsys.readouterr().err
    assert "warning: of 1 sample, as Si-227-cF8-001-6A: " in warned
    assert "lie beyond the simulation's band limit of" in warned


def test_a_poscar_is_simulated(config, tmp_path):
    (tmp_path / "POSCAR").write_text(POSCAR)
    assert main(["simulate", config, "--crystal", "POSCAR", "--out", "salt.h5"]) == 0
    with h5py.File(tmp_path / "salt.h5") as file:
        assert '"formula": "NaCl"' in next(iter(file.values())).attrs["provenance"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "missing.h5", "--to", "phaser", "--out", "x"], "there is no file missing.h5"),
        (["export", ".", "--out", "x.h5"], "holds no samples"),
        (["simulate", "small.yaml", "--crystal", "a.json"], "a.json is no crystal's file that is read"),
        (["export", "scan.h5", "--to", "phaser", "--out", "x"], "--energy-ev"),
        (["export", "scan.h5", "--to", "phaser", "--out", "x", "--pixel-mrad", "1", "2", "3"], "3 numbers"),
    ],
)
def test_bad_input_is_one_line(config, tmp_path, arguments, message, capsys):
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        file["scan"] = np.ones((2, 2, 4, 4))
    assert main(arguments) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "\n" not in error
    assert not (tmp_path / "x").exists()
