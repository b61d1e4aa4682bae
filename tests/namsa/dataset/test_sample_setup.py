"""SampleSetup: the geometry and the microscope of a sample, as its simulation uses them."""

import ase.build
import numpy as np
import pytest

from namsa.config.simulation import SimulationConfig
from namsa.crystals.material import Material
from namsa.dataset import sample_setup
from namsa.dataset.entries import build_entries
from namsa.dataset.simulate_entry import simulate_entry

ROCKSALT = Material("NaCl", "NaCl", "Fm-3m", ase.build.bulk("NaCl", "rocksalt", 5.64, cubic=True), "test")
CONFIG = {
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
    config = SimulationConfig.model_validate(CONFIG | sections)
    entry = build_entries(config, (ROCKSALT,))[0]
    return sample_setup.make_sample_setup(config, ROCKSALT, entry), config, ROCKSALT, entry


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"scan": {"shape": [16, 24]}, "microscope": {"source_size_angstrom": 0.5}},  # the scan is its own average
        {"scan": {"shape": [2, 3]}, "microscope": {"source_size_angstrom": 0.5, "source_points": 3}},
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
