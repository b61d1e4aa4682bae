"""Crystals of handbooks as programs and databases write them: numbers of atoms and densities from
the literature.
"""

import re
import warnings
from pathlib import Path

import pytest
from cif_files import (
    HM,
    UNTYPED,
    cif,
    cubic,
    density,
    rhombohedral,
    tetragonal,
)
from literature_crystals import CRYSTALS, SI, Z

import namsa
from namsa import InputError, SimulationWarning


def read(folder: Path, text: str, name: str = "made.cif") -> namsa.Material:
    path = folder / name
    path.write_bytes(text.encode())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SimulationWarning)
        return namsa.read_crystal(path)


@pytest.mark.parametrize("name", CRYSTALS)
def test_a_crystal_has_the_atoms_and_the_density_of_the_literature(
    tmp_path: Path, name: str
) -> None:
    cell, symmetry, sites, count, expected = CRYSTALS[name]
    atoms = read(tmp_path, cif(cell, symmetry, sites)).atoms
    assert len(atoms) == count
    assert density(atoms) == pytest.approx(expected, rel=0.015)


HEAD = cif(cubic(4), f"{HM} 'P 1'", "{label} 0 0 0", ("label", "fract_x", "fract_y", "fract_z"))
TYPED = cif(cubic(4), f"{HM} 'P 1'", "A1 {label} 0 0 0")


NO_ELEMENTS = (
    "T1",
    "Va",
    "Vac1",
    "DUM",
    "Bq",
    "Un1",
    "H2O",
    "T1(o)",
    "X1",
    "M1",
    "OH",
    "Wat",
    "NH4",
    "Al/Si",
    "Oa",
    "CA1",
    "CO",
)
NO_TYPES = ("T", "Va", "X", "Fe/Mg", "H2O", "OH-", "Uani", "M1")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        *((HEAD.format(label=label), rf"{re.escape(label)}: .*") for label in NO_ELEMENTS),
        *((TYPED.format(label=symbol), f"A1: '{symbol}'") for symbol in NO_TYPES),
    ],
)
def test_a_label_or_type_that_names_no_element_or_several_is_refused_by_name(
    tmp_path: Path, text: str, named: str
) -> None:
    with pytest.raises(InputError, match=rf"atom site {named} names no element"):
        read(tmp_path, text)


LABELS = {
    "Fe1": "Fe",
    "O1A": "O",
    "SiT1": "Si",
    "OA": "O",
    "FE1": "Fe",
    "2H": "H",
    "D1": "H",
    "H2A": "H",
}
TYPES = {
    "CA": "Ca", "AL": "Al", "NB": "Nb", "IN": "In", "fe": "Fe", "2H": "H", "7Li": "Li", "D": "H",
    "Cval": "C",
    "Siva": "Si", "Fe3+": "Fe", "O2-": "O", "O-2": "O", "Na1": "Na",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "label", "element"),
    [*((HEAD, *pair) for pair in LABELS.items()), *((TYPED, *pair) for pair in TYPES.items())],
)
def test_a_label_begins_with_its_element_and_a_type_is_one_in_any_letters_isotope_and_charge(
    tmp_path: Path, text: str, label: str, element: str
) -> None:
    assert read(tmp_path, text.format(label=label)).atoms.symbols[0] == element


def test_the_formula_decides_between_elements_of_one_and_two_letters(tmp_path: Path) -> None:
    for formula, element in (("C", "C"), ("CA", "Ca"), ("Ca1", "Ca")):
        text = cif(cubic(4), f"{HM} 'P 1'\n_chemical_formula_sum {formula}", "CA1 0 0 0", UNTYPED)
        assert read(tmp_path, text).atoms.symbols[0] == element


def test_an_origin_that_nothing_decides_is_refused_with_the_choices(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"F d -3 m:1: 16 atoms, 4.66 g/cm³; F d -3 m:2: 8 atoms, 2.33 g/cm³"
    ):
        read(tmp_path, cif(SI, f"{HM} 'F d -3 m'", "Si Si .125 .125 .125"))


OPERATIONS = "loop_\n_symmetry_equiv_pos_as_xyz\n"


def test_written_operations_are_taken_unless_they_contradict_what_else_the_file_says(
    tmp_path: Path,
) -> None:
    salt = "Na Na 0 0 0\nCl Cl .5 .5 .5"
    named = f"{HM} 'F m -3 m'\n_chemical_formula_sum 'Cl Na'{Z} 4\n{OPERATIONS}"
    for centring in ("x,y,z", "x,y,z\nx,1/2+y,1/2+z\n1/2+x,y,1/2+z\n1/2+x,1/2+y,z"):
        assert len(read(tmp_path, cif(cubic(5.6402), named + centring, salt)).atoms) == 8
    with pytest.raises(InputError, match="form no group"):
        read(tmp_path, cif(cubic(5.6402), f"{OPERATIONS}x,y,z\nz,x,y", salt))
    with pytest.raises(
        InputError, match="does not decide|do not decide"
    ):  # an asymmetric unit, or all atoms
        read(tmp_path, cif(cubic(5.6402), f"{HM} 'F m -3 m'\n{OPERATIONS}x,y,z", salt))


@pytest.mark.parametrize(
    ("sites", "count", "message"),
    [
        (
            "Na1 Na 0 0 0 1\nNa2 Na 0 0 0 1\nCl1 Cl .5 .5 .5 1",
            2,
            "Na1, Na2 are on one place more than once",
        ),
        (
            "Na1 Na 0 0 0 1\nNa2 Na 1 0 1 1\nCl1 Cl .5 .5 .5 1",
            2,
            "Na1, Na2 are on one place more than once",
        ),
        (
            "Na1 Na 0 0 .333 1\nNa2 Na 0 0 .334 1\nCl1 Cl .5 .5 .5 1",
            2,
            "Na1 and Na2 are the same within their digits",
        ),
        (
            "Na1 Na 0 0 0 1\nK1 K 0 0 0 1\nCl1 Cl .5 .5 .5 1",
            0,
            "atom sites Na1, K1 share one place",
        ),
        (
            "Na1 Na 0 0 0 1\nNa2 Na .04 0 0 1\nCl1 Cl .5 .5 .5 1",
            0,
            r"atom site Na1 .* and atom site Na2 .* overlap",
        ),
    ],
)
def test_a_site_that_is_there_twice_counts_once_or_is_named(
    tmp_path: Path, sites: str, count: int, message: str
) -> None:
    path = tmp_path / "made.cif"
    path.write_text(cif(cubic(4.2), f"{HM} 'P 1'", sites))
    if count:
        with pytest.warns(SimulationWarning, match=message):
            assert len(namsa.read_crystal(path).atoms) == count
    else:
        with pytest.raises(InputError, match=message):
            namsa.read_crystal(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: (
            text.replace("data_made", "DATA_made")
            .replace("loop_", "LOOP_")
            .replace("_cell", "_CELL")
        ),
        lambda text: text.replace("\n", "\r"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace(
            "data_made", "data_made\n_publ_section_comment\n;\ndata_other\n_atom_site_label\n;"
        ),
        lambda text: text.replace("_atom_site_", "_atom_site.").replace("_cell_", "_cell."),
        lambda text: (
            "\ufeffdata_global\n_journal_name_full 'Zeitschrift für Kristallographie'\n" + text
        ),
        lambda text: text + "loop_\n_geom_bond_distance\n2.82(1)\n2.82(1)\n",
    ],
    ids=("capitals", "CR", "CRLF", "data in a text", "points", "other block", "other loop"),
)
def test_all_ways_to_write_a_cif_are_read(tmp_path: Path, change) -> None:
    text = cif(cubic(5.6402), f"{HM} 'F m -3 m'", "Na Na 0 0 0\nCl Cl .5 .5 .5")
    assert len(read(tmp_path, change(text)).atoms) == 8


def test_a_primitive_cell_becomes_the_conventional_one_unless_it_is_taken_as_it_is(
    tmp_path: Path,
) -> None:
    path = tmp_path / "silicon.cif"
    path.write_text(
        cif(rhombohedral(3.8403, 60), f"{HM} 'P 1'", "Si Si 0 0 0 .5\nSi Si .25 .25 .25 .5")
    )
    with pytest.warns(
        SimulationWarning,
        match="2 atoms is not a conventional one: .* 5.431×5.431×5.431 Å with 8 atoms",
    ):
        atoms = namsa.read_crystal(path).atoms
    assert atoms.cell.cellpar() == pytest.approx(cubic(5.431), abs=1e-3)
    assert atoms.arrays["occupancy"].tolist() == [0.5] * 8
    kept = namsa.read_crystal(path, as_is=True)
    assert len(kept.atoms) == 2
    assert kept.atoms.cell.angles() == pytest.approx([60, 60, 60])


def test_other_settings_and_multiples_of_the_conventional_cell_are_kept(tmp_path: Path) -> None:
    for cell, sites, count in (
        (
            (5.431, 5.431, 10.862, 90, 90, 90),
            [(x, y, z / 2 + k / 2) for x, y, z in _DIAMOND for k in (0, 1)],
            16,
        ),
        (
            tetragonal(3.8403, 5.431),
            [(0, 0, 0), (0.5, 0.5, 0.5), (0, 0.5, 0.25), (0.5, 0, 0.75)],
            8,
        ),  # smaller
    ):
        rows = "\n".join(f"Si Si {x} {y} {z}" for x, y, z in sites)
        assert len(read(tmp_path, cif(cell, f"{HM} 'P 1'", rows)).atoms) == count


_DIAMOND = [
    (x + d, y + d, z + d)
    for d in (0, 0.25)
    for x, y, z in ((0, 0, 0), (0, 0.5, 0.5), (0.5, 0, 0.5), (0.5, 0.5, 0))
]
