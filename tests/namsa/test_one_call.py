"""A simulation of a crystal's file in one call, as of its supercell."""

import warnings

import ase
import ase.io
import numpy as np
import pytest
from ase.build import bulk
from ase.spacegroup import crystal

import namsa
from namsa import Detector, InputError
from namsa.physics.optics import wavelength_angstrom
from namsa.setup.settings import settings_of
from namsa.setup.specimen_size import LATERAL_ANGSTROM, needed_lateral_angstrom

MICROSCOPE = {"energy_ev": 100e3, "semiangle_mrad": 12.0}
SIZE = {"zone_axis": (1, 1, 0), "thickness_angstrom": 9.0, "lateral_angstrom": (5.0, 7.0)}
GRID = {"grid_shape": (48, 60), "positions_angstrom": [[0.5, 1.0], [2.0, 0.3]]}
WURTZITE = crystal(
    ["Ga", "N"],
    basis=[(1 / 3, 2 / 3, 0), (1 / 3, 2 / 3, 0.377)],
    spacegroup=186,
    cellpar=[3.19, 3.19, 5.19, 90, 90, 120],
)


@pytest.fixture
def path(tmp_path):
    ase.io.write(tmp_path / "GaN.cif", WURTZITE)
    return tmp_path / "GaN.cif"


@pytest.mark.parametrize("of", [str, lambda path: path, namsa.read_cif])
def test_a_file_in_one_call_is_its_supercell(path, of):
    one = namsa.simulate(of(path), **SIZE, **MICROSCOPE, **GRID)
    cell = namsa.make_supercell(namsa.read_cif(path).atoms, **SIZE)
    two = namsa.simulate(cell.atoms, **MICROSCOPE, **GRID)
    np.testing.assert_array_equal(one.cbed, two.cbed)
    added = {name: one.provenance[name] for name in one.provenance.keys() - two.provenance.keys()}
    assert added["formula"] == "GaN"
    assert added["source"] == "GaN.cif"
    assert added["zone_axis"] == [1, 1, 0]
    assert added["strain"] == pytest.approx(cell.strain)
    assert added["wanted_thickness_angstrom"] == 9.0
    assert {name: one.provenance[name] for name in two.provenance} == two.provenance


def test_what_is_simulated_in_one_call_is_saved_and_read(path, tmp_path):
    sample = namsa.simulate(path, **SIZE, **MICROSCOPE, **GRID)
    sample.save(tmp_path / "a.h5")
    assert namsa.read_sample(tmp_path / "a.h5").provenance == sample.provenance


def test_supercells_and_specimens_take_files(path):
    cell = namsa.make_supercell(path, **SIZE)
    atoms = namsa.read_cif(path).atoms
    np.testing.assert_array_equal(
        cell.atoms.positions, namsa.make_supercell(atoms, **SIZE).atoms.positions
    )
    of_file = namsa.make_specimen(str(path), "vacancies", seed=3, **SIZE)
    of_atoms = namsa.make_specimen(atoms, "vacancies", seed=3, **SIZE)
    np.testing.assert_array_equal(of_file.atoms.positions, of_atoms.atoms.positions)


def test_a_file_without_a_zone_axis_is_the_specimen(tmp_path):
    atoms = bulk("MgO", "rocksalt", 4.21, cubic=True)
    ase.io.write(tmp_path / "MgO.vasp", atoms)
    of_file = namsa.simulate(tmp_path / "MgO.vasp", **MICROSCOPE, **GRID)
    assert of_file.provenance["extent_angstrom"] == pytest.approx([4.21, 4.21])
    assert of_file.provenance["formula"] == "MgO"
    scattering = namsa.scatter(
        tmp_path / "MgO.vasp", energy_ev=100e3, max_angle_mrad=12, grid_shape=(48, 60)
    )
    again = scattering.simulate(semiangle_mrad=12, positions_angstrom=GRID["positions_angstrom"])
    np.testing.assert_allclose(again.cbed, of_file.cbed, atol=1e-6)


def test_snapshots_of_a_file_are_repeated_alike(tmp_path):
    states = []
    for seed in range(2):
        state = bulk("Si", cubic=True)
        state.rattle(0.05, seed=seed)
        states.append(state)
    ase.io.write(tmp_path / "run.extxyz", states)
    size = {"zone_axis": (0, 0, 1), "thickness_angstrom": 5, "lateral_angstrom": (5, 9)}
    sample = namsa.simulate(tmp_path / "run.extxyz", **size, **MICROSCOPE, **GRID)
    assert sample.provenance["snapshots"] == 2
    one = namsa.simulate(states[1], **size, **MICROSCOPE, **GRID)
    assert sample.provenance["atoms"] == one.provenance["atoms"] == 16


def test_the_default_size_holds_the_probe_and_resolves_the_detector():
    def side(**changes):
        return needed_lateral_angstrom(settings_of(MICROSCOPE | changes), 50.0)

    assert side() == LATERAL_ANGSTROM
    assert side(semiangle_mrad=0.0) == LATERAL_ANGSTROM
    assert side(aberrations={"C10": -2000.0}) > 2 * 2000 * 0.012
    fine = side(detector=Detector(pixel_mrad=1.0, max_angle_mrad=20))
    assert 1e3 * wavelength_angstrom(100e3) / fine <= 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample = namsa.simulate(
            WURTZITE,
            thickness_angstrom=10.38,
            positions_angstrom=[[0, 0]],
            aberrations={"C10": -300.0},
            energy_ev=100e3,
            semiangle_mrad=20.0,
            accuracy=0.5,
        )
    assert min(sample.provenance["extent_angstrom"]) > 2 * 300 * 0.02


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"zone_axis": (1, 0, 0)}, "without thickness_angstrom"),
        ({"lateral_angstrom": (9, 9)}, "without zone_axis and thickness_angstrom"),
        ({"zone_axis": (0, 0, 0), "thickness_angstrom": 10}, "zone axis"),
    ],
)
def test_half_of_a_size_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        namsa.simulate(bulk("Si", cubic=True), **arguments, **MICROSCOPE, **GRID)


@pytest.mark.parametrize(
    ("source", "message"),
    [("GaN", "GaN is no crystal's file"), (3, "not int"), (["a"], "snapshot 0 is str")],
)
def test_what_is_no_specimen_is_refused(source, message):
    with pytest.raises(InputError, match=message):
        namsa.simulate(source, **MICROSCOPE, **GRID)
    if source != ["a"]:
        with pytest.raises(InputError):
            namsa.make_supercell(source, **SIZE)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"zone_axis": "110"}, "give three integers, as"),
        ({"zone_axis": (1, 1)}, "give three integers, as"),
        ({"zone_axis": (1, 0.5, 0)}, "give three integers, as"),
        ({"zone_axis": (0, 0, 0)}, "is no direction"),
        ({"thickness_angstrom": "20"}, "thickness_angstrom is '20': give a number"),
    ],
)
def test_a_size_or_axis_of_another_kind_is_named(path, changed, message):
    with pytest.raises(InputError, match=message):
        namsa.simulate(path, **SIZE | changed, **MICROSCOPE, **GRID)
