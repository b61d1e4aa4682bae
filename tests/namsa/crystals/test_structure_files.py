"""Crystals and trajectories in the plain-text formats of ASE: what is read, what is refused, what
is simulated.
"""

import time

import ase
import ase.build
import ase.io
import ase.spacegroup
import ase.units
import numpy as np
import pytest

from namsa import InputError, SimulationWarning
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
MUSTEM = """SrTiO3
3.905 3.905 3.905 90 90 90
300
3
Sr
1 38 1 0.006
0 0 0
Ti
1 22 1 0.004
0.5 0.5 0.5
O
3 8 1 0.008
0.5 0.5 0
0.5 0 0.5
0 0.5 0.5
"""


def quartz():
    """A hexagonal crystal, whose atoms are not where another setting would have them."""
    basis = [(0.47, 0, 1 / 3), (0.413, 0.267, 0.786)]
    cell = [4.916, 4.916, 5.405, 90, 90, 120]
    return ase.spacegroup.crystal(["Si", "O"], basis, spacegroup=152, cellpar=cell)


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"mustem"}))
def test_a_crystal_is_the_same_in_every_format(tmp_path, name):
    path = tmp_path / f"quartz{FORMATS[name][0]}"
    ase.io.write(path, quartz(), format="proteindatabank" if name == "pdb" else name)
    material = read_crystal(path)
    assert (material.name, material.formula) == ("quartz", "SiO2")
    assert (material.space_group, material.kind, material.snapshots) == ("P3_121", "file", ())
    atoms = material.atoms
    expected = quartz()
    np.testing.assert_allclose(atoms.cell.cellpar(), expected.cell.cellpar(), atol=2e-3)
    for atom in expected:
        same = []
        for other in atoms:
            if other.number == atom.number:
                same.append(other)
        offsets = atoms.cell.scaled_positions(
            np.array([a.position for a in same])
        ) - expected.cell.scaled_positions(atom.position)
        assert abs(offsets - np.round(offsets)).max(axis=1).min() < 1e-3


def test_vasp_files_are_known_by_their_names_also_in_a_configuration(tmp_path):
    for name in ("POSCAR", "CONTCAR_relaxed", "SrTiO3.poscar"):
        (tmp_path / name).write_text(POSCAR)
        config = Materials(files=(tmp_path / name,))
        assert [
            (material.formula, material.space_group) for material in select_materials(config)
        ] == [("SrTiO3", "Pm-3m")]
        assert source_files(config) == [tmp_path / name]


def test_occupancies_are_taken(tmp_path):
    atoms = ase.Atoms("AuCu", positions=[[0, 0, 0], [0, 0, 0]], cell=[4, 4, 4], pbc=True)
    atoms.set_array("occupancy", np.array([0.25, 0.75]))
    ase.io.write(tmp_path / "alloy.xyz", atoms, format="extxyz")
    material = read_crystal(tmp_path / "alloy.xyz")
    assert material.atoms.arrays["occupancy"].tolist() == [0.25, 0.75]
    assert material.formula == "Cu0.75Au0.25"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{}", "no crystal's file that is read"),
        ("a.traj", "", "no crystal's file that is read"),
        ("a.py", "", "no crystal's file that is read"),
        ("a.pckl", "", "no crystal's file that is read"),
        ("a.db", "", "no crystal's file that is read"),
        ("a.xyz", "1\nno cell\nAu 0 0 0\n", "no cell of three lattice vectors"),
        ("a.xyz", '1\nLattice="4 0 0 0 4 0 0 0 4"\n79 0 0 0\n', "called 79.* Z:I:1"),
        ("a.xyz", '1\nLattice="4 0 0 0 4 0 0 0 4"\nD 0 0 0\n', "D is no element .*H"),
        ("a.xyz", "Si\n4 4 4\n14 0 0 0 1 0.1\n", "end with -1"),
        ("a.xyz", "Si\n4 4 4\n14 0 0 0 1\n-1\n", "line 3, 14 0 0 0 1, must be"),
        ("a.xtl", "GaAs\nCELL\n", "no file of muSTEM"),
        ("a.xtl", MUSTEM.replace("1 38", "99 38"), "line 6, 99 38 1 0.006, must be"),
        ("a.xtl", MUSTEM.replace("1 38", "1 380"), "380 is no atomic number"),
        ("a.xtl", MUSTEM.replace("0.5 0.5 0.5", "0.5 0.5"), "0.5 0.5 must be three"),
        ("a.xyz", '1\nLattice="4 0 0 0 4 0 0 0 4"\nAu 0 0 nan\n', "not finite"),
        (
            "a.xyz",
            '1\nLattice="4 0 0 0 4 0 0 0 4"\nAu 0 0 0\n' + "1\nno cell\nAu 0 0 0\n",
            "frame 1: it gives no cell",
        ),
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


PDB = """CRYST1    5.640    5.640    5.640  90.00  90.00  90.00 {group:11s}   4
HETATM    1 NA   NA  A   1       0.000   0.000   0.000  1.00  0.00          NA+
HETATM    2 CL   CL  A   2       2.820   2.820   2.820  1.00  0.00          CL-
END
"""


def test_structures_of_prismatic_and_mustem_are_read_with_occupancies_and_amplitudes(tmp_path):
    (tmp_path / "sto.xtl").write_text(MUSTEM)
    material = read_crystal(tmp_path / "sto.xtl")
    assert (material.formula, material.space_group) == ("SrTiO3", "Pm-3m")
    squares = material.atoms.arrays["rms_displacement_angstrom"] ** 2
    assert squares.tolist() == pytest.approx([0.006, 0.004, 0.008, 0.008, 0.008])
    (tmp_path / "alloy.xyz").write_text(
        "AuCu\n4 4 5\n79 1 1 2 0.25 0.1\n29 1 1 2 0.75 0.08\n29 3 3 4.5 1 0.08\n-1\n"
    )
    atoms = read_crystal(tmp_path / "alloy.xyz", as_is=True).atoms
    assert atoms.cell.lengths().tolist() == [4, 4, 5]
    assert atoms.numbers.tolist() == [79, 29, 29]
    assert atoms.positions[2].tolist() == [3, 3, 4.5]
    assert atoms.arrays["occupancy"].tolist() == [0.25, 0.75, 1]
    assert atoms.arrays["rms_displacement_angstrom"].tolist() == pytest.approx([0.1, 0.08, 0.08])


def test_slabs_are_read_in_their_cell_and_said_to_be_repeated(tmp_path):
    """Extended XYZ with `pbc="T T F"`, SLAB of XSF, and a number with the sign U+2212."""
    (tmp_path / "a.xyz").write_text(
        '1\nLattice="4 0 0 0 4 0 0 0 9" pbc="T T F"\nAu \u22120.5 0 4\n', encoding="utf-8"
    )
    (tmp_path / "a.xsf").write_text(
        "SLAB\nPRIMVEC\n4 0 0\n0 4 0\n0 0 9\nPRIMCOORD\n1 1\n79 3.5 0 4\n"
    )
    for name in ("a.xyz", "a.xsf"):
        with pytest.warns(SimulationWarning, match="not periodic along c"):
            atoms = read_crystal(tmp_path / name, as_is=True).atoms
        assert atoms.cell.lengths().tolist() == [4, 4, 9]
        assert atoms.positions[0].tolist() == pytest.approx([3.5, 0, 4])


def test_a_pdb_file_is_expanded_by_its_space_group(tmp_path):
    path = tmp_path / "salt.pdb"
    for group, formula in (("F m -3 m", "Na4Cl4"), ("P 1", "NaCl"), ("", "NaCl")):
        path.write_text(PDB.format(group=group))
        atoms = read_crystal(path).atoms
        assert sorted(atoms.symbols) == sorted(ase.Atoms(formula).symbols)
    path.write_text(PDB.format(group="Q 1"))
    with pytest.raises(InputError, match="space group Q 1 is not known"):
        read_crystal(path)


def test_an_atom_of_a_pdb_file_without_an_element_has_that_of_its_columns(tmp_path):
    """Of CA, the alpha carbon of proteins begins one column later than calcium."""
    path = tmp_path / "x.pdb"
    for name, symbol in ((" CA ", "C"), ("CA  ", "Ca")):
        path.write_text(
            "CRYST1   20.000   20.000   20.000  90.00  90.00  90.00 P 1           1\n"
            f"ATOM      1 {name} ALA A   1       1.000   2.000   3.000  1.00  0.00\n"
        )
        assert read_crystal(path).atoms.symbols[0] == symbol


def test_a_cube_in_angstroms_is_in_angstroms(tmp_path):
    atoms = quartz()
    path = tmp_path / "quartz.cube"
    ase.io.write(path, atoms, format="cube")
    in_bohr = read_crystal(path).atoms.cell.lengths()
    np.testing.assert_allclose(in_bohr, atoms.cell.lengths(), atol=1e-3)
    lines = path.read_text().splitlines()
    lines[3:6] = [f"-{line.strip()}" for line in lines[3:6]]
    path.write_text("\n".join(lines))
    in_angstrom = read_crystal(path).atoms.cell.lengths()
    np.testing.assert_allclose(in_angstrom, atoms.cell.lengths() / ase.units.Bohr, atol=2e-3)


XYZ = '{count}\nLattice="4 0 0 0 4 0 0 0 4" Properties=species:S:1:pos:R:{columns}\nAu 0 0 0\n'


@pytest.mark.parametrize(
    "numeral", ["+999999999", "999_999_999", "9999999999", "９９９９９９９９", "-5"]
)
def test_numbers_that_would_be_counted_to_are_refused_at_once(tmp_path, numeral):
    frame = XYZ.format(count=1, columns=3)
    bounds = "ITEM: BOX BOUNDS pp pp pp\n0 4\n0 4\n0 4\nITEM: ATOMS element x y z\nAu 0 0 0\n"
    dump = f"ITEM: TIMESTEP\n0\nITEM: NUMBER OF ATOMS\n{numeral}\n{bounds}"
    texts = {
        "count.xyz": XYZ.format(count=numeral, columns=3),
        "columns.xyz": XYZ.format(count=1, columns=numeral),
        "quoted.xyz": XYZ.format(count=1, columns=numeral)
        .replace("species", '"species')
        .replace("\nAu", '"\nAu'),
        "second.xyz": frame + XYZ.format(count=numeral, columns=3),
        "POSCAR": POSCAR.replace("1 1 3", f"1 1 {numeral}"),
        "x.gen": f"{numeral} F\nAu\n1 1 0 0 0\n",
        "x.cube": f"one\ntwo\n{numeral} 0 0 0\n1 1 0 0\n1 0 1 0\n1 0 0 1\n79 0 0 0 0\n",
        "x.xsf": f"CRYSTAL\nPRIMVEC\n4 0 0\n0 4 0\n0 0 4\nPRIMCOORD\n{numeral} 1\n79 0 0 0\n",
        "x.dump": dump,
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        started = time.process_time()
        with pytest.raises(InputError) as caught:
            read_crystal(tmp_path / name)
        assert time.process_time() - started < 5, name
        assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read_are_left_out_on_request_and_named(tmp_path):
    (tmp_path / "bad.cif").write_text("data_x\n_cell_length_a 4\n")
    ase.io.write(tmp_path / "good.cif", quartz())
    with pytest.raises(InputError, match=r"bad\.cif: .*skip_unreadable: true leaves out"):
        select_materials(Materials(cif=(tmp_path,)))
    with pytest.warns(
        SimulationWarning, match=r"left out: .*bad\.cif: a CIF must hold one structure"
    ):
        chosen = select_materials(Materials(cif=(tmp_path,), skip_unreadable=True))
    assert [material.name for material in chosen] == ["good"]


def test_a_configuration_keeps_cells_as_they_are(tmp_path):
    (tmp_path / "Si.vasp").write_text(
        "Si\n5.431\n0 .5 .5\n.5 0 .5\n.5 .5 0\nSi\n2\nDirect\n0 0 0\n.25 .25 .25\n"
    )
    files = (tmp_path / "Si.vasp",)
    with pytest.warns(SimulationWarning, match="zone axes refer"):
        assert len(select_materials(Materials(files=files))[0].atoms) == 8
    assert len(select_materials(Materials(files=files, as_is=True))[0].atoms) == 2


def test_positions_that_no_crystal_has_are_a_warning(tmp_path):
    for position, message in (
        ("0 0 0.85", "0.35 Å apart"),
        ("4 4 28", "outside the cell, atom 1 .* by 20.0 Å"),
    ):
        (tmp_path / "x.xyz").write_text(
            f'2\nLattice="8 0 0 0 8 0 0 0 8"\nTi 0 0 0.5\nTi {position}\n'
        )
        with pytest.warns(SimulationWarning, match=message):
            read_crystal(tmp_path / "x.xyz")


# ---- Trajectories
# ------------------------------------------------------------------------------------------------
