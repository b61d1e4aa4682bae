"""Estimates of time, memory and disk against the measured ones, and the setup of a sample against
its simulation.
"""

import json
import os
import re
import shutil
import time
from dataclasses import replace

import ase.build
import numpy as np
import pytest

from namsa.cli import parser as cli
from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.crystals.select import select_materials
from namsa.dataset import estimate, records, sample_setup
from namsa.dataset.entries import build_entries
from namsa.dataset.estimate import estimate_sample
from namsa.dataset.simulate_entry import simulate_entry
from namsa.dataset.workload import count_workload, hdf5_bytes, memory_bytes, record_bytes
from namsa.engines.rates import Rates, measure_rates
from namsa.io import hdf5

CONFIG = {
    "materials": {"builtin": ["Si-227-cF8", "Ag-225-cF4", "MgAl2O4-227-cF56"]},
    "split": {"train": 1, "dev": 0, "test": 0},
    "specimen": {
        "zone_axes": [[0, 0, 1]],
        "thickness_angstrom": [20],
        "lateral_angstrom": [10, 14],
    },
    "scan": {"shape": [8, 10]},
    "simulation": {"grid_shape": [72, 100], "backend": "cpu"},
    "detector": {"shape": [14, 12], "pixel_mrad": 5},
    "target": {"at": "scan"},
}
ROCKSALT = Material(
    "NaCl", "NaCl", "Fm-3m", ase.build.bulk("NaCl", "rocksalt", 5.64, cubic=True), "test"
)
RATES = Rates(1e-11, 2e-11, 1e-10, 1e-9, 1e-7)


def case(**sections):
    """Returns (workload, config, material, entry)."""
    tree = CONFIG | {
        name: CONFIG.get(name, {}) | values if values else None for name, values in sections.items()
    }
    config = SimulationConfig.model_validate(tree)
    entry = build_entries(config, (ROCKSALT,))[0]
    return count_workload(config, ROCKSALT, entry), config, ROCKSALT, entry


def test_counts_are_those_of_the_sample():
    workload, *rest = case()
    provenance = simulate_entry(*rest).provenance
    assert (workload.work.slices, workload.atoms) == (provenance["slices"], provenance["atoms"])
    assert list(workload.grid.shape) == provenance["grid_shape"]
    assert list(workload.grid.extent_angstrom) == pytest.approx(provenance["extent_angstrom"])
    assert (workload.work.probes, workload.work.rows, workload.work.coherent) == (
        80,
        8,
        provenance["coherent_probes"],
    )
    assert workload.pattern_shape == (14, 12)
    assert workload.elements == 2
    thick = {"thickness_angstrom": [80]}
    phonons = {"rms_angstrom": 0.08, "configurations": 3}
    perfect, shaken = (
        case(specimen=specimen)[0] for specimen in (thick, thick | {"frozen_phonons": phonons})
    )
    assert perfect.distinct_slices < 20 < shaken.distinct_slices
    workload = case(microscope={"focal_spread_angstrom": 40.0, "focal_points": 5})[0]
    assert workload.work.coherent == 5


def test_counts_the_thermal_configurations_that_the_simulation_takes():
    """The number follows the accuracy, on which samples then depend; their provenance has it."""

    def chosen(accuracy, configurations="auto"):
        phonons = {"rms_angstrom": 0.08, "configurations": configurations}
        return case(specimen={"frozen_phonons": phonons}, simulation={"accuracy": accuracy})

    workload, config, *rest = chosen(0.02)
    provenance = simulate_entry(config, *rest).provenance
    assert workload.configurations == provenance["frozen_phonons"]["configurations"] > 2
    assert chosen(0.2)[0].configurations == 1
    assert chosen(0.2)[1].samples_hash() != config.samples_hash()
    assert chosen(0.2, 2)[1].samples_hash() == chosen(0.02, 2)[1].samples_hash()


@pytest.mark.parametrize(
    "more",
    [
        {"scan": {"shape": [16, 10]}},
        {"specimen": {"thickness_angstrom": [40]}},
        {"specimen": {"frozen_phonons": {"rms_angstrom": 0.08, "configurations": 2}}},
        {"microscope": {"focal_spread_angstrom": 40.0, "focal_points": 5}},
    ],
)
def test_more_to_do_takes_longer(more):
    few, many = (estimate_sample(case(**sections)[0], RATES) for sections in ({}, more))
    for method, seconds in few.seconds_by_method.items():
        assert many.seconds_by_method[method] > seconds
    assert many.seconds == many.seconds_by_method[many.method]
    assert many.memory_bytes >= few.memory_bytes
    assert many.disk_bytes >= few.disk_bytes


def test_the_method_follows_from_the_counts_and_not_from_the_rates():
    few = case()[0]
    many = case(scan={"shape": [100, 100]}, specimen={"thickness_angstrom": [100]})[0]
    assert (few.method, many.method) == ("multislice", "prism")
    wrong = RATES._replace(propagation=1e-20)
    assert estimate_sample(many, wrong).method == "prism"


@pytest.mark.parametrize(("stored", "camera"), [("float16", {"binning": 1}), ("float32", None)])
def test_disk_is_what_the_record_and_the_hdf5_file_take(tmp_path, stored, camera):
    workload, *rest = case(data={"dtype": stored}, detector=camera, scan={"shape": [30, 30]})
    sample = simulate_entry(*rest)
    assert record_bytes(workload) == pytest.approx(len(records.encode(sample, stored)), rel=0.02)
    hdf5.write_samples(tmp_path / "a.h5", [(rest[-1].id, sample)])
    assert hdf5_bytes(workload) == pytest.approx((tmp_path / "a.h5").stat().st_size, rel=0.02)


def test_memory_holds_patterns_and_transmissions():
    workload = replace(case()[0], distinct_slices=50)
    assert memory_bytes(workload) > 80 * 14 * 12 * 4 + 50 * 72 * 100 * 8


@pytest.mark.slow
def test_time_is_about_what_it_takes():
    workload, config, material, entry = case(
        specimen={"thickness_angstrom": [100], "lateral_angstrom": [14, 14]},
        simulation={"grid_shape": [150, 180]},
    )

    def ratio():
        """Returns estimated over measured time. They are measured one after the other; the machine
        may be shared.
        """
        expected = estimate_sample(workload, measure_rates(workload)).seconds_by_method[
            "multislice"
        ]
        start = time.perf_counter()
        simulate_entry(config, material, entry)
        return expected / (time.perf_counter() - start)

    assert any(1 / 3 < ratio() < 3 for _ in range(5))


@pytest.fixture
def config(tmp_path, monkeypatch):
    """The configuration's file, alone in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text(json.dumps(CONFIG), encoding="utf-8")  # JSON is YAML
    return "a.yaml"


def test_dry_run_of_one_sample(config, tmp_path, capsys):
    assert cli.main(["simulate", config, "--dry-run", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["probes"] == 80
    assert result["seconds"] == result["seconds_by_method"][result["method"]] > 0
    assert cli.main(["simulate", config, "--dry-run"]) == 0
    text = re.sub(" *\n", "\n", capsys.readouterr().out)
    assert "plane waves" in text
    assert "1 per pattern, 1 configuration\n" in text  # singular
    assert [path.name for path in tmp_path.iterdir()] == ["a.yaml"]


def test_dry_run_of_a_dataset(config, tmp_path, capsys):
    command = ["dataset", config, "--out", "data", "--rank", "1", "--size", "4", "--dry-run"]
    assert cli.main([*command, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["samples"], result["sampled"], result["skipped"]) == (3, 3, 0)
    assert result["seconds_per_rank"] == result["seconds"] / 4
    assert result["disk_bytes"] == pytest.approx(3 * result["costliest"]["disk_bytes"], rel=0.1)
    assert cli.main(command) == 0
    assert "3 (0 skipped)" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["a.yaml"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--json", "--out", "a.h5"], "--json goes with --dry-run"),
        (["--set", "microscope.semiangle_mrad=150", "--dry-run"], "semiangle_mrad 150"),
    ],
)
def test_json_without_a_dry_run_and_one_of_what_cannot_be_are_bad_input(
    config, run, words, message
):
    code, line = run(["simulate", config, *words])
    assert (code, message in line) == (2, True)
    assert os.listdir() == ["a.yaml"]


def test_what_exceeds_the_memory_is_refused_before_work_begins(config, run):
    large = ["--set", "scan.shape=[30000, 30000]", "--set", "detector=null"]
    for words in (["simulate", config], ["dataset", config, "--out", "data"]):
        code, line = run([*words, *large])
        assert code == 2
        assert re.search(
            r"900000000 positions?: 90\.0 GB of memory, and [\d.]+ GB are available", line
        )


def test_a_sample_that_is_expected_to_exceed_the_memory_runs_by_force(config, capsys, monkeypatch):
    for module in ("namsa.cli.commands.simulate", "namsa.dataset.factory"):
        monkeypatch.setattr(f"{module}.available_memory_bytes", lambda: 10**6)
    for words in (
        ["simulate", config, "--out", "stack.h5"],
        ["dataset", config, "--out", "data", "--limit", "1"],
    ):
        assert cli.main(words) == 2
        assert "--force tries it nevertheless" in capsys.readouterr().err
        assert cli.main([*words, "--force"]) == 0


ENDLESS = {
    "scan.shape": "[500, 500]",
    "specimen.frozen_phonons": "{rms_angstrom: 0.08, configurations: 10000}",
    "simulation.slice_thickness_angstrom": "0.01",
    "simulation.method": "multislice",
}


def test_work_of_years_is_refused_with_the_numbers(config, capsys, tmp_path, monkeypatch):
    more = [f"--set={key}={value}" for key, value in ENDLESS.items()]
    monkeypatch.setattr(estimate, "measure_rates", lambda workload: RATES)
    for words in (
        ["simulate", config],
        ["dataset", config, "--out", "data", "--time-limit", "600"],
    ):
        assert cli.main([*words, *more]) == 2
        line = capsys.readouterr().err
        assert re.search(
            r"error: .*: the simulation is expected to take [\d.e+]+ days.*the limit is 30 days: ",
            line,
        )
        assert "--force tries it nevertheless" in line
    assert not list(tmp_path.rglob("*.h5"))
    assert not list(tmp_path.rglob("*.lmdb"))


def test_the_time_is_that_of_all_samples_unless_it_is_limited(config, run, monkeypatch):
    words = ["dataset", config, "--out", "data"]
    monkeypatch.setattr(estimate, "SLOW_RATES", RATES)
    monkeypatch.setattr(estimate, "measure_rates", lambda workload: RATES)
    tree = SimulationConfig.model_validate(CONFIG)
    materials = select_materials(tree.materials)
    entries = {entry.material: entry for entry in build_entries(tree, materials)}
    one = max(
        estimate_sample(count_workload(tree, material, entries[material.name]), RATES).seconds
        for material in materials
    )
    monkeypatch.setattr(estimate, "LONGEST_SECONDS", 1.2 * one)
    code, line = run(words)
    assert (code, "the limit is" in line) == (2, True)
    assert cli.main([*words, "--time-limit", "0"]) == 0
    assert cli.main([*words, "--limit", "1"]) == 0
    assert cli.main([*words, "--force"]) == 0


def test_a_stack_that_the_disk_has_no_room_for_is_not_simulated(config, run, tmp_path, monkeypatch):
    free = shutil.disk_usage(tmp_path)._replace(free=1000)
    code, line = run(["simulate", config, "--out", "none/stack.h5"])
    assert (code, "--out none/stack.h5: there is no folder" in line) == (2, True)
    monkeypatch.setattr("namsa.dataset.disk_space.shutil.disk_usage", lambda path: free)
    monkeypatch.setattr("namsa.cli.commands.simulate.simulate_entry", None)
    code, line = run(["simulate", config, "--out", "stack.h5"])
    assert code == 1
    assert ". has 1e-06 GB free, the samples to come take about" in line
    assert "name another folder with --out" in line
    assert not (tmp_path / "stack.h5").exists()


# ---- The setup of a sample
# ------------------------------------------------------------------------------------------

SETUP = {
    "split": {"train": 1, "dev": 0, "test": 0},
    "specimen": {"thickness_angstrom": [12], "lateral_angstrom": [5, 11]},
    "scan": {"shape": [2, 3], "step_angstrom": [0.5, 0.7], "origin_angstrom": "random"},
    "simulation": {"sampling_angstrom": 0.2},
    "detector": {"shape": [8, 6], "pixel_mrad": 8},
    "microscope": {"chromatic_aberration_mm": 1.0, "energy_spread_ev": 3.0},
    "variation": {"rule": "grid", "defocus_angstrom": [50], "electrons_per_pattern": [1000]},
}


def setup_of(**sections):
    """Returns (setup, config, material, entry) of the first sample of the configuration."""
    config = SimulationConfig.model_validate(SETUP | sections)
    entry = build_entries(config, (ROCKSALT,))[0]
    return sample_setup.make_sample_setup(config, ROCKSALT, entry), config, ROCKSALT, entry


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {
            "scan": {"shape": [16, 24]},
            "microscope": {"source_size_angstrom": 0.5},
        },  # the scan is its own average
        {
            "scan": {"shape": [2, 3]},
            "microscope": {"source_size_angstrom": 0.5, "source_points": 3},
        },
    ],
)
def test_the_setup_is_that_of_the_simulated_sample(sections):
    setup, *sample = setup_of(**sections)
    provenance = simulate_entry(*sample).provenance
    np.testing.assert_array_equal(setup.positions_angstrom, provenance["positions_angstrom"])
    assert list(setup.grid.shape) == provenance["grid_shape"]
    assert list(setup.grid.extent_angstrom) == provenance["extent_angstrom"]
    assert setup.thickness_angstrom == provenance["thickness_angstrom"]
    assert setup.fit.atoms == provenance["atoms"]
    assert len(setup.coherent_modes()) == provenance["coherent_probes"]
    assert setup.config.microscope.aberrations == provenance["aberrations"] == {"C10": -50.0}


def test_no_atom_is_placed_before_the_supercell_is_asked_for(monkeypatch):
    monkeypatch.setattr(sample_setup, "fill_cell", None)
    setup = setup_of()[0]
    with pytest.raises(TypeError):
        setup.supercell()


def test_positions_from_a_file_have_no_scan_axes(tmp_path):
    positions = np.array([[1.0, 2.0], [3.0, 4.5], [0.5, 0.25]])
    np.save(tmp_path / "scan.npy", positions)
    setup = setup_of(scan={"file": tmp_path / "scan.npy"})[0]
    assert setup.scan_axes is None
    np.testing.assert_array_equal(setup.positions_angstrom, positions)
