"""The density by depth adds up to the projected density, and each bin has the electrons of its
atoms.
"""

import json
from dataclasses import replace

import ase
import numpy as np
import pytest
from ase.build import bulk
from fake_samples import config

import namsa
from namsa.config.specimen import FrozenPhonons
from namsa.crystals.material import Material
from namsa.dataset.entries import build_entries
from namsa.dataset.records import encode
from namsa.dataset.simulate_entry import simulate_entry
from namsa.dataset.workload import count_workload, hdf5_bytes, record_bytes
from namsa.figures.notebook import sample_html
from namsa.samples import sample_file
from namsa.view.info import describe_file

BINS = 3


def specimen() -> ase.Atoms:
    """Atoms of which some lie on faces of bins, and one below the cell by rounding."""
    z = [0.0, 1.0, 4.0, 4.0 - 1e-11, 7.9, 8.0, 11.5, -1e-12]
    rng = np.random.default_rng(3)
    positions = np.column_stack([rng.uniform(0, (7.0, 9.0), (len(z), 2)), z])
    atoms = ase.Atoms("OSiFeAuOSiFeC", positions=positions, cell=[7.0, 9.0, 12.0], pbc=True)
    atoms.set_array("occupancy", np.array([1, 1, 0.5, 1, 1, 1, 1, 0.25]))
    return atoms


def simulated(**options) -> namsa.Sample:
    beam = {
        "energy_ev": 200e3,
        "semiangle_mrad": 20,
        "positions_angstrom": [[1.0, 2.0]],
        "precision": "float64",
    }
    # Slices whose faces are not those of the bins.
    return namsa.simulate(
        specimen(), **beam, grid_shape=(30, 24), slice_thickness_angstrom=2.4, **options
    )


@pytest.mark.parametrize("phonons", [None, FrozenPhonons(rms_angstrom=0.3, configurations=3)])
def test_bins_add_up_to_the_projected_density(phonons):
    projected = simulated(frozen_phonons=phonons)
    divided = simulated(frozen_phonons=phonons, depth_bins=BINS)
    assert divided.density_by_depth.shape == (BINS, 30, 24)
    np.testing.assert_array_equal(divided.density, projected.density)
    np.testing.assert_array_equal(divided.cbed, projected.cbed)
    difference = abs(divided.density_by_depth.sum(axis=0) - projected.density)
    assert difference.max() < 1e-12 * projected.density.max()


def test_each_bin_has_the_electrons_of_its_atoms():
    sample = simulated(depth_bins=BINS)
    electrons = sample.density_by_depth.mean(axis=(1, 2)) * 63
    # By the numbers of the nuclei at 0, 1 and −1e-12 Å; 4, 4 − 1e-11 and 7.9; 8 and 11.5.
    assert electrons == pytest.approx([8 + 14 + 0.25 * 6, 0.5 * 26 + 79 + 8, 14 + 26], rel=1e-6)
    assert (sample.provenance["depth_bins"], "3 depth bins" in repr(sample)) == (BINS, True)


def test_one_bin_leaves_a_sample_as_it_was():
    plain = simulated()
    one = simulated(depth_bins=1)
    assert one.density_by_depth is None
    assert "depth_bins" not in one.provenance
    assert json.dumps(one.provenance) == json.dumps(plain.provenance)
    for bins in (0, 257, 2.5):
        with pytest.raises(namsa.InputError, match="depth_bins"):
            simulated(depth_bins=bins)


@pytest.fixture(scope="module")
def stored() -> namsa.Sample:
    """A sample of a dataset: a stack of two crystals, on a raster that is not square."""
    silver, gold = (
        Material(symbol, symbol, "Fm-3m", bulk(symbol, cubic=True), "test")
        for symbol in ("Ag", "Au")
    )
    settings = config(
        split={"train": 1, "dev": 0, "test": 0},
        specimen={"kinds": {"stack": 1}, "thickness_angstrom": [16], "lateral_angstrom": [8, 9]},
        scan={"shape": [3, 5]},
        simulation={"grid_shape": [32, 48], "precision": "float64"},
        target={"at": "scan", "depth_bins": 4},
    )
    entries = build_entries(settings, [silver, gold])
    kinds = {(entry.kind, entry.partner, entry.skipped) for entry in entries}
    assert kinds == {("stack", "Ag", None), ("stack", "Au", None)}
    material = replace(silver, partner=gold)
    entry = next(entry for entry in entries if entry.material == "Ag")
    workload = count_workload(settings, material, entry)
    assert (
        record_bytes(workload)
        >= len(encode(simulate_entry(settings, material, entry), "float16")) // 4096 * 4096
    )
    assert hdf5_bytes(workload) > hdf5_bytes(replace(workload, depth_bins=1))
    return simulate_entry(settings, material, entry)


def test_a_datasets_bins_are_band_limited_as_its_density(stored):
    assert stored.density_by_depth.shape == (4, 3, 5)
    assert (
        abs(stored.density_by_depth.sum(axis=0) - stored.density).max()
        < 1e-12 * stored.density.max()
    )
    means = stored.density_by_depth.mean(axis=(1, 2))
    gold_below = stored.provenance["kind_parameters"]["side"] == "exit"
    assert (means[-1] > 1.2 * means[0]) == gold_below


def test_files_and_their_descriptions_carry_the_bins(stored, tmp_path):
    stored.save(tmp_path / "sample.h5")
    read = sample_file.read_sample(tmp_path / "sample.h5")
    np.testing.assert_array_equal(read.density_by_depth, stored.density_by_depth)
    (described,) = describe_file(tmp_path / "sample.h5").contents
    axis = described.arrays["density_by_depth"].axes[0]
    assert (axis.name, axis.units) == ("depth", "Å")
    assert "the density is its sum" in sample_html(stored)
