"""CIF files: their symmetry, their sites, and hostile ones, which are refused at once."""

import time
from pathlib import Path

import numpy as np
import pytest
from ase.neighborlist import neighbor_list
from cif_files import HM, KEYS, UNTYPED, cif, cubic, density
from paths import DATA
from pymatgen.symmetry.groups import SpaceGroup

from namsa import InputError, SimulationWarning
from namsa.crystals.cif import read_cif
from namsa.crystals.structure_files import read_crystal


def assert_refused(path: Path, message: str, seconds: float = 10) -> None:
    """`read_cif` refuses it in one short line with its name, and at once."""
    started = time.process_time()
    with pytest.raises(InputError, match=message) as caught:
        read_cif(path)
    assert time.process_time() - started < seconds
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def made(
    tmp_path: Path, sites: str, symmetry: str = f"{HM} 'P 1'", cell: tuple[float, ...] = cubic(4)
) -> Path:
    """A CIF with rows of label, x, y, z, occupancy."""
    path = tmp_path / "made.cif"
    path.write_text(cif(cell, symmetry, sites, UNTYPED))
    return path


def test_monoclinic_cif_is_expanded_by_its_symmetry() -> None:
    material = read_cif(DATA / "baddeleyite.cif")
    assert (material.name, material.formula, material.space_group) == (
        "baddeleyite",
        "ZrO2",
        "P2_1/c",
    )
    assert material.source.endswith("baddeleyite.cif")
    assert material.atoms.symbols.formula.count() == {"Zr": 4, "O": 8}
    assert material.atoms.cell.cellpar() == pytest.approx([5.1505, 5.2116, 5.3173, 90, 99.23, 90])
    assert density(material.atoms) == pytest.approx(5.81, abs=0.01)
    assert "occupancy" not in material.atoms.arrays
    # Seven oxygens about each zirconium: baddeleyite's mark.
    i = neighbor_list("i", material.atoms, {("Zr", "O"): 2.4})
    assert np.all(np.bincount(i, minlength=12)[material.atoms.symbols == "Zr"] == 7)


def test_triclinic_cif_has_octahedra_and_tetrahedra() -> None:
    material = read_cif(DATA / "kyanite.cif")
    assert (material.formula, material.space_group, len(material.atoms)) == ("Al2SiO5", "P-1", 32)
    for symbol, neighbours in (("Al", 6), ("Si", 4)):
        i = neighbor_list("i", material.atoms, {(symbol, "O"): 2.2})
        assert np.all(np.bincount(i, minlength=32)[material.atoms.symbols == symbol] == neighbours)


def test_a_mixed_site_becomes_several_atoms_at_one_position() -> None:
    material = read_cif(DATA / "mixed_perovskite.cif")
    atoms = material.atoms
    shares = {"Sr": [0.7], "Ba": [0.3], "Ti": [1.0], "O": [0.99] * 3}
    for symbol, expected in shares.items():
        assert atoms.arrays["occupancy"][atoms.symbols == symbol] == pytest.approx(expected)
    assert atoms.positions[atoms.symbols == "Sr"] == pytest.approx(
        atoms.positions[atoms.symbols == "Ba"]
    )
    assert material.space_group == "Pm-3m"
    assert material.formula == "Ba0.3Sr0.7Ti1O2.97"


def test_ions_isotopes_rounded_thirds_and_other_data_blocks_are_accepted(tmp_path: Path) -> None:
    path = made(tmp_path, "A Fe2+ 0 0 0 0.4\nB Fe3+ 0 0 0 0.6\nC D .5 .5 .5 1")
    path.write_text(
        path.read_text().replace("_atom_site_label", "_atom_site_label\n_atom_site_type_symbol")
    )
    atoms = read_cif(path).atoms
    assert sorted(atoms.symbols) == ["Fe", "H"]
    assert "occupancy" not in atoms.arrays
    path = made(tmp_path, "Na1 0.3333 0.6667 0.2500(3) 0.3334\nK1 0.3333 0.6667 0.25 0.6667")
    path.write_text("\ufeffdata_global\n_journal_name ?\n\n" + path.read_text())
    atoms = read_cif(path).atoms
    assert atoms.get_scaled_positions() == pytest.approx(np.tile([1 / 3, 2 / 3, 1 / 4], (2, 1)))
    assert atoms.arrays["occupancy"].sum() == pytest.approx(1)


SITES = "Na1 0 0 0 1\nCl1 .5 .5 .5 1"


@pytest.mark.parametrize(
    ("sites", "symmetry", "message"),
    [
        (SITES, "", "neither symmetry operations nor a space group"),
        (SITES, "_space_group_name_H-M_alt 'P q 3'", "space group P q 3 is not known"),
        (
            SITES,
            "_space_group_IT_number 1\n_chemical_formula_sum 'Na2 Cl'",
            "Incorrect stoichiometry",
        ),
        (SITES, "_space_group_IT_number 1\n_chemical_formula_sum 'Na Cl H'", "Missing elements H"),
        (SITES, "loop_\n_symmetry_equiv_pos_as_xyz\n'x,y,z'\n'-x,q,z'", "does not fit the cell"),
        ("Na1 0 0 0 0.7\nK1 0 0 0 0.4\nCl1 .5 .5 .5 1", None, "ccupancy 1.1"),
        ("Na1 0 0 0 ?", None, r"site Na1: occupancy \?"),
        ("Na1 0 0 0 -0.5\nCl1 .5 .5 .5 1", None, "site Na1: occupancy -0.5"),
        ("Na1 0 0 0 0\nCl1 .5 .5 .5 1", None, "site Na1: occupancy 0"),
        ("Na1 0 ? 0 1", None, "site Na1: coordinate y"),
        ("Na1 0 0 . 1", None, "site Na1: coordinate z"),
        ("Xx1 0 0 0 1\nCl1 .5 .5 .5 1", None, "'Xx1' names no element"),
        ("OH1 0 0 0 1\nCl1 .5 .5 .5 1", None, "OH1: .OH1. names no element"),
        ("Na1 0 0 0 1\nCl1 .05 0 0 1", None, r"\(Na\).*\(Cl\).*overlap"),
        ("Na1 0 0 0 1\nCl1 .5 .5 .5", None, "too few or too many values"),
        ("", None, "."),
    ],
)
def test_an_ambiguous_cif_is_refused(
    tmp_path: Path, sites: str, symmetry: str | None, message: str, recwarn: pytest.WarningsRecorder
) -> None:
    assert_refused(
        made(tmp_path, sites) if symmetry is None else made(tmp_path, sites, symmetry), message
    )
    assert not recwarn.list


def test_oxygen_and_hydrogen_of_an_oxyhydride_share_a_site_unless_it_is_a_proton(
    tmp_path: Path,
) -> None:
    sites = "O1 O2- 0 0 0 .8\nH1 H1- 0 0 0 .2\nNa1 Na1+ .5 .5 .5 1"
    path = tmp_path / "oxyhydride.cif"
    path.write_text(cif(cubic(4), f"{HM} 'P 1'", sites))
    with pytest.warns(SimulationWarning, match=r"share a site \(O1 0.8, H1 0.2\)"):
        material = read_cif(path)
    assert material.atoms.arrays["occupancy"].tolist() == [1, 0.8, 0.2]
    path.write_text(cif(cubic(4), f"{HM} 'P 1'", sites.replace("H1-", "H1+")))
    assert_refused(path, "site H1: positive hydrogen on an oxygen's site")


def test_sites_that_are_dummies_are_no_atoms(tmp_path: Path) -> None:
    keys = (*KEYS, "calc_flag")
    path = tmp_path / "dummies.cif"
    atoms_alone = "Na1 Na 0 0 0 1 d\nCl1 Cl .5 .5 .5 1 d"
    path.write_text(cif(cubic(4), f"{HM} 'P 1'", f"{atoms_alone}\nCg1 C ? ? ? 1 dum", keys))
    with pytest.warns(SimulationWarning, match="1 atom site with the flag dum"):
        assert read_cif(path).formula == "NaCl"
    path.write_text(cif(cubic(4), f"{HM} 'P 1'", "Na1 Na 0 0 0 1 dum", keys))
    assert_refused(path, "all of its atom sites are dummies")


def test_a_magnetic_structure_has_the_operations_without_the_reversal_of_time(
    tmp_path: Path,
) -> None:
    operations = "loop_\n_space_group_symop_magn_operation.xyz\nx,y,z,+1\n-x,-y,-z,-1"
    centrings = "loop_\n_space_group_symop_magn_centering.xyz\nx,y,z,+1\nx+1/2,y+1/2,z,-1"
    path = tmp_path / "iron.mcif"
    path.write_text(
        cif((5, 6, 7, 80, 85, 95), f"{operations}\n{centrings}", "Fe1 Fe .1 .2 \u2212.3 1"),
        encoding="utf-8",
    )
    with pytest.warns(SimulationWarning, match="its moments are left out"):
        places = read_crystal(path, as_is=True).atoms.get_scaled_positions()
    expected = [[0.1, 0.2, 0.7], [0.9, 0.8, 0.3], [0.6, 0.7, 0.7], [0.4, 0.3, 0.3]]
    assert sorted(places.round(6).tolist()) == sorted(expected)


@pytest.mark.parametrize(
    "content", [b"", b"not a crystal\n", b"\x00\xff\xfe\x93NUMPY", b"data_x\n_cell_length_a 4\n"]
)
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.cif"
    path.write_bytes(content)
    assert_refused(path, r"other\.cif.*one structure.*not 0")


def test_other_broken_missing_and_double_files_are_refused_by_name(tmp_path: Path) -> None:
    assert_refused(DATA / "broken.cif", r"broken\.cif: a loop_ has too few")
    assert_refused(tmp_path / "absent.cif", r"absent\.cif: No such file")
    path = made(tmp_path, SITES)
    path.write_text(path.read_text() * 2)
    assert_refused(path, "one structure with atom sites, not 2")
    other_sides = made(tmp_path, SITES, "_space_group_IT_number 221", (4, 4.3, 4, 90, 90, 90))
    assert_refused(other_sides, "does not fit the cell")


CIF = cif(cubic(5.0), f"{HM} 'P 1'", "Si1 Si 0 0 0")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("length_a 5.0", "length_a 0.05", r"sides \[0.05, 5.0, 5.0\] Å must lie within"),
        ("length_b 5.0", "length_b 1e9", "sides .* must lie within 0.99 to 1000 Å"),
        ("length_a 5.0", "length_a nan", "_cell_length_a nan is no number"),
        ("length_a 5.0", "length_a 1e400", "_cell_length_a 1e400 is no number"),
        ("length_a 5.0", "length_a ?", r"_cell_length_a \? is no number"),
        ("alpha 90", "alpha 0", "angles"),
        ("alpha 90", "alpha nan", "_cell_angle_alpha nan is no number"),
        ("alpha 90", "alpha 179.99", "too flat"),
        (
            "Si1 Si 0 0 0\n",
            "".join(f"Si{i} Si 0.{i:06} 0 0\n" for i in range(100_001)),
            "100001 atoms; give a cell of 1 to 100000 atoms, which the specimen repeats",
        ),
        (
            "Si1 Si 0 0 0\n",
            "".join(f"Si{i} Si 0.{i:04} 0 0\n" for i in range(500)),
            "less than 0.5 Å³ for each",
        ),
        ("data_made", "#" * 2**24, "more than 16 MiB"),
        ("Si1 Si", "Q1 " + "Q" * 5000, "names no element"),
    ],
    ids=range(12),
)
def test_hostile_cells_are_refused_at_once(tmp_path, old, new, message):
    path = tmp_path / "x.cif"
    path.write_text(CIF)
    assert read_cif(path).formula == "Si"
    path.write_text(CIF.replace(old, new))
    assert_refused(path, message)


def symmetric(sites: int, symbol: str, side: float) -> str:
    """Returns a CIF with sites in general positions of a space group."""
    operations = "".join(
        f"\n'{operation.as_xyz_str()}'" for operation in SpaceGroup(symbol).symmetry_ops
    )
    coordinates = np.random.default_rng(1).uniform(0, 0.5, (sites, 3))
    rows = "\n".join(f"Si{i} Si {x:.5f} {y:.5f} {z:.5f}" for i, (x, y, z) in enumerate(coordinates))
    return cif(cubic(side), f"{HM} 'P 1'\nloop_\n_symmetry_equiv_pos_as_xyz{operations}", rows)


def test_symmetry_that_makes_too_many_atoms_is_refused_before_they_are_compared(tmp_path):
    path = tmp_path / "x.cif"
    for sites, message in (
        (1000, "192 symmetry operations make more than 100000 atoms"),
        (9000, "are too many"),
    ):
        path.write_text(symmetric(sites, "Fm-3m", 900.0))
        assert_refused(path, message, seconds=5)


@pytest.mark.filterwarnings("ignore:.* atom .* Å apart:namsa.SimulationWarning")
def test_large_crystals_are_read_with_and_without_the_files_symmetry(tmp_path):
    path = tmp_path / "x.cif"
    path.write_text(symmetric(40, "Fm-3m", 900.0))
    with pytest.warns(SimulationWarning, match="symmetry is searched for in cells of up to 600"):
        crystal = read_cif(path)
    assert (len(crystal.atoms), crystal.space_group) == (40 * 192, "Fm-3m")
    path.write_text(symmetric(75, "P222", 60.0))
    started = time.process_time()
    crystal = read_cif(path)
    assert (len(crystal.atoms), crystal.space_group) == (300, "P222")
    assert time.process_time() - started < 10


def test_a_site_of_nearly_nothing_has_an_order(tmp_path):
    path = tmp_path / "x.cif"
    keys = "_atom_site_fract_z\n"
    sites = CIF.replace(keys, f"{keys}_atom_site_occupancy\n").replace(
        "Si1 Si 0 0 0\n", "Si1 Si 0 0 0 1\n"
    )
    path.write_text(f"{sites}O1 O 0.5 0.5 0.5 1e-9\nO2 O 0.5 0 0.5 1e-9\n")
    assert len(read_cif(path).atoms) == 3
