"""Crystals in the plain-text formats of ASE: what is read, and what is refused."""

import ase
import ase.io
import ase.spacegroup
import numpy as np
import pytest

from namsa import InputError
from namsa.config.materials import Materials
from namsa.crystals import structure_files
from namsa.crystals.select import select_materials, source_files
from namsa.crystals.structure_files import FORMATS, read_crystal

POSCAR = """SrTiO3
1.0
3.905 0 0
0 3.905 0
0 0 3.905
Sr Ti O
1 1 3
Direct
0 0 0
0.5 0.5 0.5
0.5 0.5 0
0.5 0 0.5
0 0.5 0.5
"""


def quartz():
    """A hexagonal crystal, whose atoms are not where another setting would have them."""
    return ase.spacegroup.crystal(
        ["Si", "O"],
        [(0.47, 0, 1 / 3), (0.413, 0.267, 0.786)],
        spacegroup=152,
        cellpar=[4.916, 4.916, 5.405, 90, 90, 120],
    )


@pytest.mark.parametrize("name", FORMATS)
def test_a_crystal_is_the_same_in_every_format(tmp_path, name):
    path = tmp_path / f"quartz{FORMATS[name][0]}"
    ase.io.write(path, quartz(), format="proteindatabank" if name == "pdb" else name)
    material = read_crystal(path)
    assert (material.name, material.formula, material.space_group, material.kind) == (
        "quartz",
        "SiO2",
        "P3_121",
        "file",
    )
    found, expected = material.atoms, quartz()
    np.testing.assert_allclose(found.cell.cellpar(), expected.cell.cellpar(), atol=2e-3)
    for atom in expected:
        same = [other for other in found if other.number == atom.number]
        offsets = found.cell.scaled_positions(np.array([a.position for a in same])) - expected.cell.scaled_positions(
            atom.position
        )
        assert abs(offsets - np.round(offsets)).max(axis=1).min() < 1e-3


def test_vasp_files_are_known_by_their_names(tmp_path):
    for name in ("POSCAR", "CONTCAR_relaxed", "SrTiO3.poscar"):
        (tmp_path / name).write_text(POSCAR)
        assert read_crystal(tmp_path / name).space_group == "Pm-3m"


def test_occupancies_are_taken(tmp_path):
    atoms = ase.Atoms("AuCu", positions=[[0, 0, 0], [0, 0, 0]], cell=[4, 4, 4], pbc=True)
    atoms.set_array("occupancy", np.array([0.25, 0.75]))
    ase.io.write(tmp_path / "alloy.xyz", atoms, format="extxyz")
    material = read_crystal(tmp_path / "alloy.xyz")
    assert material.atoms.arrays["occupancy"].tolist() == [0.25, 0.75]
    assert material.formula == "Cu0.75Au0.25"


def test_a_configuration_takes_files(tmp_path):
    (tmp_path / "POSCAR").write_text(POSCAR)
    config = Materials(files=(tmp_path / "POSCAR",))
    assert [material.formula for material in select_materials(config)] == ["SrTiO3"]
    assert source_files(config) == [tmp_path / "POSCAR"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{}", "no crystal's file that is read"),
        ("a.traj", "", "no crystal's file that is read"),
        ("a.py", "", "no crystal's file that is read"),
        ("a.pckl", "", "no crystal's file that is read"),
        ("a.db", "", "no crystal's file that is read"),
        ("a.xyz", "1\nno cell\nAu 0 0 0\n", "no cell that is periodic"),
        ("a.xyz", '1\nLattice="4 0 0 0 4 0 0 0 4" pbc="T T F"\nAu 0 0 0\n', "no cell that is periodic"),
        ("a.xyz", '1\nLattice="4 0 0 0 4 0 0 0 4"\nAu 0 0 nan\n', "not finite"),
        ("a.xyz", '1\nLattice="4 0 0 0 4 0 0 0 4"\nAu 0 0 0\n' + "1\nno cell\nAu 0 0 0\n", "frame 1: it gives no cell"),
        ("a.xyz", '2\nLattice="4 0 0 0 4 0 0 0 4"\nAu 0 0 0\nAu 0 0 0.1\n', "overlap"),
        ("a.xyz", '1\nLattice="4 0 0 0 4 0 0 0 4"\nX 0 0 0\n', "atomic number 0"),
        ("a.xyz", '1\nLattice="0.1 0 0 0 4 0 0 0 4"\nAu 0 0 0\n', "its sides must lie within"),
        ("a.xyz", '1\nLattice="0 4 0 4 0 0 0 0 4"\nAu 0 0 0\n', "left-handed"),
        ("a.xyz", "999999999999\n\nAu 0 0 0\n", "number 999999999999"),
        ("a.xyz", "", "structures|cannot be read"),
        ("POSCAR", POSCAR.replace("Sr Ti O\n", ""), "name the elements"),
        ("POSCAR", POSCAR.replace("1 1 3", "1 1 999999999999"), "number 999999999999"),
        ("POSCAR", POSCAR.replace("Direct", ""), "cannot be read as vasp"),
        ("POSCAR", "", "name the elements"),
        ("a.cube", "one\ntwo\n999999999 0 0 0\n", "cannot be read as a cube"),
        ("a.pdb", "ATOM\n", "structures|cannot be read|no cell"),
        ("a.gen", "1e9 F\n", "cannot be read as gen"),
        ("a.xsf", "CRYSTAL\nPRIMVEC\n1 0 0\n", "cannot be read as xsf"),
    ],
)
def test_other_files_are_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_crystal(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_poscar_does_not_make_its_neighbours_read(tmp_path, monkeypatch):
    """ASE looks for elements in a POTCAR beside it."""
    (tmp_path / "POSCAR").write_text(POSCAR.replace("Sr Ti O", "A B C"))
    (tmp_path / "POTCAR").write_text("TITEL = PAW Sr\nTITEL = PAW Ti\nTITEL = PAW O\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="cannot be read as vasp"):
        read_crystal(tmp_path / "POSCAR")


def test_large_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(structure_files, "LARGEST_FILE_BYTES", 100)
    (tmp_path / "POSCAR").write_text(POSCAR)
    with pytest.raises(InputError, match="MiB"):
        read_crystal(tmp_path / "POSCAR")
