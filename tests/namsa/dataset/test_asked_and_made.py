"""A specimen that is made in place of the requested one is named, and a dry run and the exit code
say what cannot be made.
"""

import json
import re
import warnings

import numpy as np
import pytest

import namsa
from namsa.base.errors import InputError, SimulationWarning
from namsa.cli.parser import main
from namsa.dataset.indexed import IndexedSamples
from namsa.dataset.shards import Dataset

CONFIG = """
materials: {builtin: [Al-225-cF4]}
split: {train: 1, dev: 0, test: 0}
specimen: {zone_axes: [[0, 0, 1]], thickness_angstrom: [8], lateral_angstrom: [8, 8]}
scan: {shape: [2, 2], step_angstrom: [0.5, 0.5]}
simulation: {sampling_angstrom: 0.25}
detector: {shape: [6, 8], pixel_mrad: 8}
"""
ALUMINIUM = namsa.builtin_materials(["Al"])[0]


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(CONFIG)
    return "c.yaml"


def test_a_thickness_or_strain_far_from_what_was_asked_draws_a_warning():
    arguments = {"zone_axis": (3, 3, 5), "lateral_angstrom": (8, 8)}
    with pytest.warns(
        SimulationWarning,
        match=r"26\.56 Å thick and not 10 Å: .* along \[3 3 5\], which is 26\.56 Å",
    ):
        cell = namsa.make_supercell(ALUMINIUM.atoms, thickness_angstrom=10, **arguments)
    assert cell.atoms.cell.lengths()[2] == pytest.approx(np.sqrt(43) * 4.05, rel=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        namsa.make_supercell(ALUMINIUM.atoms, thickness_angstrom=53, **arguments)
    atoms = ALUMINIUM.atoms.copy()
    cell = atoms.cell.array.copy()
    cell[1, 0] = 0.1
    atoms.set_cell(cell, scale_atoms=True)
    with pytest.warns(
        SimulationWarning, match=r"strained by 1\.2\d% to make its cell right-angled"
    ):
        namsa.make_supercell(
            atoms, zone_axis=(0, 0, 1), lateral_angstrom=(4, 4), thickness_angstrom=8
        )


@pytest.mark.filterwarnings("always::namsa.SimulationWarning")  # which the command prints
def test_thickness_period_and_strain_are_printed_and_stored(config, capsys):
    changed = [
        config,
        "--set",
        "specimen.zone_axes=[[1,1,2]]",
        "--set",
        "specimen.thickness_angstrom=[6]",
    ]
    assert main(["simulate", *changed, "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert "9.92 Å thick (6 Å requested), period 9.92 Å, strain 0.00%" in printed.out
    assert "warning: the specimen is 9.92 Å thick and not 6 Å" in printed.err
    assert main(["simulate", *changed, "--out", "a.h5"]) == 0
    printed = capsys.readouterr()
    assert "9.92 Å thick (6 Å requested), period 9.92 Å, strain 0.00%" in printed.err
    assert any("and not 6 Å" in text for text in namsa.read_sample("a.h5").provenance["warnings"])


@pytest.mark.parametrize("command", ["simulate", "dataset"])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["microscope.aberrations={Cs: 1.0e+7}"], "unknown aberration 'Cs'; did you mean C30"),
        (["microscope.aberrations={C11: 1}"], "unknown aberration 'C11'"),
        (["microscope.semiangle_mrad=60"], "does not fit the grid"),
        (["microscope.specimen_tilt_mrad=[80, 80]"], "specimen_tilt_mrad is"),
        (["microscope.source_size_angstrom=500"], "needs more than 64 quadrature points"),
        (
            ["detector={max_angle_mrad: 200}"],
            "beyond the grid's band limit of .*: use pixels of .* Å or less",
        ),
        (
            ["detector={shape: [4, 40], pixel_mrad: 4}"],
            "the detector reaches 8.*: use pixels of .* Å or less",
        ),
        (
            ["detector={pixel_mrad: 0.5}"],
            "finer than the reciprocal grid.*: use a cell of .* Å or more",
        ),
        (["detector={pixel_mrad: 0.02}"], "Is it in rad. Then give pixel_mrad 20"),
        (["specimen.frozen_phonons={rms_angstrom: {Cu: 0.1}}"], "no displacement is given for Al"),
        (
            ["specimen.frozen_phonons={rms_angstrom: cif}"],
            "gives no thermal displacement .* for Al",
        ),
        (
            [
                "scan.step_angstrom=null",
                "scan.shape=[1, 1]",
                "detector.dose_electrons_per_angstrom2=5",
            ],
            "a dose needs a",
        ),
        (
            [
                "simulation.engine=fused",
                "simulation={grid_shape: [34, 32]}",
                "simulation.engine=fused",
            ],
            "does not support",
        ),
    ],
)
def test_a_dry_run_refuses_what_the_run_refuses(config, capsys, command, settings, message):
    options = []
    for setting in settings:
        for word in ("--set", setting):
            options.append(word)
    dry = [
        command,
        config,
        *options,
        "--dry-run",
        *(["--out", "data"] if command == "dataset" else []),
    ]
    assert main(dry) == 2
    refused = capsys.readouterr().err
    assert re.search(message, refused)
    if command == "simulate":
        assert main(["simulate", config, *options, "--out", "a.h5"]) == 2
        assert capsys.readouterr().err.splitlines()[-1] == refused.splitlines()[-1]


def test_a_dataset_of_which_samples_failed_says_why_and_ends_with_1_and_a_dry_run_with_0(
    config, capsys
):
    assert main(["simulate", config, "--dry-run"]) == 0
    assert main(["dataset", config, "--out", "data", "--dry-run"]) == 0
    mixed = "materials={builtin: [Al-225-cF4, Cu-225-cF4]}"
    failing = ["--set", mixed, "--set", "specimen.frozen_phonons={rms_angstrom: {Al: 0.1}}"]
    for _ in range(2):  # also when nothing is tried again
        assert main(["dataset", config, "--out", "data", *failing]) == 1
        printed = capsys.readouterr()
        assert json.loads(printed.out.splitlines()[-1])["failed"] == 1
        assert (
            "error: 1 of 2 samples could not be simulated (1 sample: no displacement is given for "
            "Cu" in printed.err
        )
        assert "failed-*.jsonl says which" in printed.err
    assert main(["dataset", config, "--out", "whole", "--set", mixed]) == 0


def test_an_export_of_a_dataset_whose_samples_all_failed_says_how_many_and_why(config, capsys):
    failing = "specimen.frozen_phonons={rms_angstrom: {Al: 0.1}}"
    copper = "materials={builtin: [Cu-225-cF4]}"
    assert main(["dataset", config, "--out", "data", "--set", failing, "--set", copper]) == 1
    capsys.readouterr()
    assert main(["export", "data", "--out", "out.h5"]) == 2
    printed = capsys.readouterr()
    assert re.fullmatch(r"failed Cu-\S+: no displacement is given for Cu.*\n", printed.out)
    empty = (
        "data holds no samples: 1 sample could not be simulated (1 sample: no displacement is "
        "given for Cu"
    )
    assert empty in printed.err
    to_stemdl = ["export", "data", "--to", "stemdl", "--out"]
    commands = [
        [*to_stemdl, "batch_train_0.db"],
        [*to_stemdl, "batch_train_0.h5"],
        ["show", "data", "--out", "out.png"],
    ]
    for arguments in commands:
        assert main(arguments) == 2
        assert empty in capsys.readouterr().err
    with pytest.raises(InputError, match="1 sample could not be simulated"):
        IndexedSamples("data", split="train")


@pytest.mark.filterwarnings("always::namsa.SimulationWarning")  # which the command prints
def test_a_dataset_warns_once_of_thicknesses_and_its_samples_have_their_own(config, capsys):
    changed = [
        config,
        "--set",
        "specimen.zone_axes=[[1,1,2],[1,1,1]]",
        "--set",
        "specimen.thickness_angstrom=[5]",
    ]
    assert main(["dataset", *changed, "--out", "many"]) == 0
    lines = []
    for line in capsys.readouterr().err.splitlines():
        if "thick and not" in line:
            lines.append(line)
    assert len(lines) == 1
    assert lines[0].startswith("warning: 2 of 2 samples: the specimen is ")
    with Dataset("many") as dataset:
        texts = [dataset.read(name).provenance["warnings"] for name in dataset.ids]
    assert len({text for warned in texts for text in warned if "thick and not" in text}) == 2
