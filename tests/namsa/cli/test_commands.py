"""Commands that begin a folder of one's own, that write for other programs, and that take their
crystals.
"""

import io
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager

import h5py
import numpy as np
import pytest
import yaml

import namsa
from namsa.cli import parser, start
from namsa.cli.commands import starter
from namsa.cli.parser import main
from namsa.config.simulation import load_config

CONFIG = {
    "name": "small",
    "materials": {"builtin": ["Si-227-cF8"]},
    "specimen": {"lateral_angstrom": [9, 9], "thickness_angstrom": [6]},
    "microscope": {"energy_ev": 200e3, "semiangle_mrad": 20, "aberrations": {"C10": -30.0}},
    "scan": {"shape": [4, 5], "step_angstrom": [0.5, 0.5]},
    "simulation": {"sampling_angstrom": 0.25},
}
POSCAR = (
    "NaCl\n1.0\n3.98 0 0\n0 3.98 0\n0 0 5.63\nNa Cl\n2 2\nDirect\n0 0 0\n.5 .5 .5\n.5 .5 0\n0 0 "
    ".5\n"
)


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(CONFIG))
    return "small.yaml"


def test_a_compressed_stack_is_exported_with_what_its_provenance_says(config, tmp_path, capsys):
    assert main(["simulate", config, "--out", "cell.h5", "--compression", "gzip"]) == 0
    assert (
        main(["export", "cell.h5", "--to", "phaser", "--out", "phaser", "--iterations", "3"]) == 0
    )
    printed = capsys.readouterr()
    assert "cd phaser && phaser run phaser.yaml" in printed.out
    assert "beyond the simulation's band limit of" in printed.err  # there is no detector
    plan = yaml.safe_load((tmp_path / "phaser/phaser.yaml").read_text())
    assert plan["init"]["scan"] == {
        "type": "raster",
        "shape": [4, 5],
        "step_size": [0.5, 0.5],
        "rotation": 0.0,
    }
    assert plan["engines"][0]["niter"] == 3
    with (
        h5py.File(tmp_path / "cell.h5") as stack,
        h5py.File(tmp_path / "phaser/patterns.h5") as copy,
    ):
        data = next(iter(stack.values()))["cbed/data"]
        assert data.compression == "gzip"
        np.testing.assert_array_equal(copy["patterns"], data)
    assert (
        main(
            ["export", "cell.h5", "--to", "py4dstem", "--out", "other", "--defocus-angstrom", "50"]
        )
        == 0
    )
    assert (
        '"C10": -47' in (tmp_path / "other/parameters.json").read_text()
    )  # in the middle of the specimen


@pytest.mark.parametrize("options", [[], ["--tiles"]])
def test_an_exported_dataset_says_that_its_patterns_end_at_the_band_limit(
    config, tmp_path, capsys, options
):
    detector = {"pixel_mrad": 3.5, "shape": [16, 20]}  # only corners are beyond
    (tmp_path / config).write_text(
        yaml.safe_dump(CONFIG | {"detector": detector, "data": {"tiles": [1, 1, 2, 1]}})
    )
    assert main(["dataset", config, "--out", "data"]) == 0
    assert main(["export", "data", "--out", "all.h5", *options]) == 0
    warned = capsys.readouterr().err
    assert "warning: of 1 sample, as Si-227-cF8-001-6A: " in warned
    assert "lie beyond the simulation's band limit of" in warned


@pytest.mark.slow
@pytest.mark.parametrize(("probes", "kept"), [(0, None), (15, "12 patterns")])
def test_an_interrupted_simulation_says_what_is_kept_and_continues(
    config, tmp_path, capsys, monkeypatch, probes, kept
):
    monkeypatch.setattr("namsa.engines.interface.HOST_BATCH_BYTES", 1)
    monkeypatch.setattr("namsa.io.stack_file._UNIT_BYTES", 1)
    monkeypatch.setattr("namsa.io.stack_file.os.cpu_count", lambda: 4)
    monkeypatch.setattr("namsa.io.stack_file.BATCH_SECONDS", 0.0)

    @contextmanager
    def interrupting():
        computed = []

        def on_progress(stage, done, total):
            if stage == "probes":
                computed.append(done)
                if len(computed) > probes:
                    raise KeyboardInterrupt

        yield on_progress

    command = ["simulate", config, "--out", "cell.h5", "--set", "simulation.method=multislice"]
    with monkeypatch.context() as patch:
        patch.setattr("namsa.cli.commands.simulate.stage_bars", interrupting)
        assert main(command) == 130
    line = capsys.readouterr().err.splitlines()[-1]
    if kept is None:
        assert line.startswith("interrupted before the first patterns were written")
        assert not (tmp_path / "cell.h5.unfinished").exists()
    else:
        assert f"what was computed of {kept} is kept in cell.h5.unfinished" in line
        assert line.endswith("and the same command continues from there")
    assert main(command) == 0
    continued = f"{kept} of an interrupted run were kept" in capsys.readouterr().err
    assert continued == (kept is not None)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_commands_print_where_stdout_is_not_utf_8(config, monkeypatch, encoding):
    """Characters that the encoding lacks are replaced; JSON stays the same value."""

    def printed(*words):
        stdout = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stdout)
            start.replace_what_cannot_be_printed()
            assert main(list(words)) == 0
        stdout.flush()
        return stdout.buffer.getvalue().decode(encoding)

    simulated = ["simulate", config, "--set", "simulation.method=multislice"]
    table = printed(*simulated, "--dry-run")
    assert ("6 Å" if encoding == "latin-1" else "6 ?") in table
    as_json = printed(*simulated, "--dry-run", "--json")
    assert "Å" in json.loads(as_json)["specimen"]
    printed(*simulated, "--out", "cell.h5")
    assert "cell.h5" in printed("info", "cell.h5")


@pytest.mark.slow
def test_a_process_prints_where_stdout_is_not_utf_8(config):
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "namsa", "simulate", config, "--dry-run"]
    ended = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (ended.returncode, b"Traceback" in ended.stderr) == (0, False)
    assert "6 ?" in ended.stdout.decode("ascii")


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
        (["inspect", "scan.h5", "--out", "new/c.json"], "there is no folder"),
        (["parallax", "scan.h5", "--out", "x.doc"], "x.doc does not end as a picture"),
        (
            ["simulate", "small.yaml", "--crystal", "smal.cif"],
            "cannot read the crystal smal.cif: No such file or directory; did you mean small.cif?",
        ),
        (
            ["simulate", "small.yaml", "--crystal", "a.json"],
            "a.json is no crystal's file that is read",
        ),
        (["export", "scan.h5", "--to", "phaser", "--out", "x"], "--energy-ev"),
        (
            ["export", "scan.h5", "--to", "phaser", "--out", "x", "--pixel-mrad", "1", "2", "3"],
            "3 numbers",
        ),
    ],
)
def test_bad_input_is_one_line(config, tmp_path, arguments, message, run):
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        file["scan"] = np.ones((2, 2, 4, 4))
    (tmp_path / "small.cif").touch()
    code, line = run(arguments)
    assert (code, message in line) == (2, True), line
    assert not (tmp_path / "x").exists()


# ---- namsa init


def test_the_folder_has_a_configuration_for_its_crystal_and_a_notebook_without_outputs(
    tmp_path, monkeypatch, capsys
):
    assert parser.main(["init", str(tmp_path / "a" / "new")]) == 0
    folder = tmp_path / "a" / "new"
    assert sorted(path.name for path in folder.iterdir()) == sorted(starter.NAMES)
    assert capsys.readouterr().out.startswith(f"{folder}: README.md, ")
    monkeypatch.chdir(folder)
    config = load_config("starter.yaml")
    (path,) = config.materials.cif
    assert namsa.read_cif(path).atoms.get_chemical_formula() == "O3SrTi"
    (folder / "starter.yaml").write_text("name: mine\nsimulation: {sampling_angstrom: auto}\n")
    shutil.rmtree("configs")  # which a folder of 0.1 lacks
    assert parser.main(["init", "."]) == 0  # again: nothing is replaced
    assert load_config("starter.yaml").name == "mine"
    assert (folder / "configs" / "quickstart.yaml").is_file()
    cells = json.loads((folder / "first_hour.ipynb").read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        assert not cell.get("outputs")


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
