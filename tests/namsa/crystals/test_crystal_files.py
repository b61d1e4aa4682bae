"""Crystals of handbooks as programs and databases write them: numbers of atoms and densities from
the literature.
"""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from cif_files import (
    HALL,
    HM,
    NUMBER,
    UNTYPED,
    cif,
    cubic,
    density,
    hexagonal,
    rhombohedral,
    tetragonal,
)

import namsa
from namsa import InputError, SimulationWarning


def read(folder: Path, text: str, name: str = "made.cif") -> namsa.Material:
    path = folder / name
    path.write_bytes(text.encode())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SimulationWarning)
        return namsa.read_crystal(path)


BADDELEYITE = (5.1505, 5.2116, 5.3173, 90, 99.23, 90)
ZIRCONIA = {
    "Zr": (0.2754, 0.0395, 0.2083),
    "O1": (0.0700, 0.3317, 0.3447),
    "O2": (0.4496, 0.7569, 0.4792),
}


def zirconia(change=lambda *place: place) -> str:
    """Returns the sites of baddeleyite, P 1 21/c 1 with 5.1505, 5.2116, 5.3173 Å and 99.23°, in
    another setting.
    """
    return "\n".join(
        f"{label} {label.rstrip('12')} " + " ".join(f"{value:.6f}" for value in change(*place))
        for label, place in ZIRCONIA.items()
    )


def _oblique() -> tuple[float, ...]:
    """Returns the cell of baddeleyite with c' = −a − c."""
    a = 5.1505
    b = 5.2116
    c = 5.3173
    beta = np.radians(99.23)
    length = np.sqrt(a * a + c * c + 2 * a * c * np.cos(beta))
    angle = np.degrees(np.arccos(-(a + c * np.cos(beta)) / length))
    return (a, b, float(length), 90, float(angle), 90)


SI = cubic(5.431)
ALUMINA = ("Al Al 0 0 0.35216\nO O 0.30624 0 0.25", 30, 3.99)
ALUMINA_R = ("Al Al 0.35216 0.35216 0.35216\nO O 0.55624 0.94376 0.25", 30, 3.99)
ZINCITE = ("Zn Zn .333 .667 0\nO O .333 .667 .3819", 4, 5.67)
RUTILE = ("Ti Ti4+ 0 0 0\nO O2- 0.3053 0.3053 0", 6, 4.25)
SALT = ("Na Na 0 0 0\nCl Cl .5 .5 .5", 8, 2.16)
DEUTERIDE = ("Li 7Li 0 0 0\nD 2H .5 .5 .5", 8, 0.78)
PHOSPHORUS = ("P P 0 0.10168 0.08056", 8, 2.69)
TENORITE = ("Cu Cu .25 .25 0\nO O 0 .4184 .25", 8, 6.51)
ANATASE_1 = ("Ti Ti 0 0 0\nO O 0 0 .2081", 12, 3.89)
ANATASE_2 = ("Ti Ti 0 .75 .125\nO O 0 .25 .1669", 12, 3.89)
SPINEL_1 = ("Mg Mg 0 0 0\nAl Al .625 .625 .625\nO O .3874 .3874 .3874", 56, 3.58)
SPINEL_2 = ("Mg Mg .125 .125 .125\nAl Al .5 .5 .5\nO O .2624 .2624 .2624", 56, 3.58)
GARNET = ("Mg Mg .125 0 .25\nAl Al 0 0 0\nSi Si .375 0 .25\nO O .0329 .0502 .6534", 160, 3.56)
P21_A = (5.3173, 5.2116, 5.1505, 90, 99.23, 90)
P1121_A = (5.3173, 5.1505, 5.2116, 90, 90, 99.23)
Z = "\n_cell_formula_units_Z"
EIGHTH = ("Si Si .125 .125 .125", 8, 2.33)
ORIGIN = ("Si Si 0 0 0", 8, 2.33)

CRYSTALS = {
    # two origins: the name, a suffix, Hall symbols, a number
    "Si 1": (SI, f"{HM} 'F d -3 m'\n_chemical_formula_sum Si{Z} 8", *EIGHTH),
    "Si 2": (SI, f"{HM} 'F d -3 m'\n_chemical_formula_sum Si{Z} 8", *ORIGIN),
    "Si 3": (SI, f"{HM} 'F d -3 m :2'", *EIGHTH),
    "Si 4": (SI, f"{HM} 'Fd-3m:1'", *ORIGIN),
    "Si 5": (SI, "_symmetry_space_group_name_H-M 'F d -3 m Z'", *EIGHTH),
    "Si 6": (SI, "_symmetry_space_group_name_H-M 'F d -3 m S'", *ORIGIN),
    "Si 7": (SI, f"{HALL} '-F 4vw 2vw 3'", *EIGHTH),
    "Si 8": (SI, f"{HALL} 'F 4d 2 3 -1d'", *ORIGIN),
    "Si 9": (SI, f"{NUMBER} 227\n_exptl_crystal_density_diffrn 2.33", *EIGHTH),
    "Si 10": (SI, f"_symmetry_Int_Tables_number 227\n_chemical_formula_sum Si8{Z} 1", *EIGHTH),
    "Si 11": (SI, f"{HM} 'F 41/d -3 2/m :2'", *EIGHTH),
    "Si 12": (SI,
    f"{HM} 'F D 3 M'\n_chemical_formula_sum SI{Z} 8\n_exptl_crystal_density_diffrn 2.33", *EIGHTH),
    "Si 14": (SI, f"{HM} 'F d -3 m'\n_exptl_crystal_density_meas 2.3(1)", *EIGHTH),
    "Si 13": (SI, f"{HM} 'F d -3 m O2'", *EIGHTH),
    "anatase 1": (tetragonal(3.785, 9.514),
    f"{HM} 'I 41/a m d'\n_chemical_formula_sum 'O2 Ti'{Z} 4", *ANATASE_1),
    "anatase 2": (tetragonal(3.785, 9.514),
    f"{HM} 'I 41/a m d'\n_chemical_formula_sum 'O2 Ti'{Z} 4", *ANATASE_2),
    "anatase 3": (tetragonal(3.785, 9.514), f"{HM} 'I41/amdS'", *ANATASE_1),
    "FeSe 1": (
        tetragonal(3.7734, 5.5258),
        f"{HM} 'P 4/n m m'\n_chemical_formula_sum 'Fe Se'{Z} 2",
        "Fe Fe 0 0 0\nSe Se 0 .5 .2672",
        4,
        5.69,
    ),
    "FeSe 2": (
        tetragonal(3.7734, 5.5258),
        f"{NUMBER} 129\n_chemical_formula_sum 'Fe Se'{Z} 2",
        "Fe Fe .75 .25 0\nSe Se .25 .25 .2672",
        4,
        5.69,
    ),
    "spinel 1": (cubic(8.0832), f"{HM} 'F d -3 m'\n_chemical_formula_sum 'Al2 Mg O4'{Z} 8",
    *SPINEL_1),
    "spinel 2": (cubic(8.0832), f"{HM} 'F d 3 m'\n_chemical_formula_sum 'Al2 Mg O4'", *SPINEL_2),
    "cuprite": (
        cubic(4.2696),
        f"{HM} 'P n -3 m'\n_chemical_formula_sum 'Cu2 O'{Z} 2",
        "Cu Cu 0 0 0\nO O .25 .25 .25",
        6,
        6.11,
    ),
    # rhombohedral lattices in both kinds of axes
    "alumina 1": (hexagonal(4.7589, 12.991), f"{HM} 'R -3 c :H'", *ALUMINA),
    "alumina 2": (hexagonal(4.7589, 12.991), f"{HM} 'R -3 c'", *ALUMINA),
    "alumina 3": (hexagonal(4.7589, 12.991), f"{HM} 'R -3 c H'", *ALUMINA),
    "alumina 4": (hexagonal(4.7589, 12.991), f"""{HALL} '-R 3 2"c'""", *ALUMINA),
    "alumina 5": (hexagonal(4.7589, 12.991), f"{NUMBER} 167", *ALUMINA),
    "alumina 6": (hexagonal(4.7589, 12.991), f"{HM} 'R -3 2/c'", *ALUMINA),
    "alumina 7": (rhombohedral(5.1284, 55.28), f"{HM} 'R -3 c :R'", *ALUMINA_R),
    "alumina 8": (rhombohedral(5.1284, 55.28), f"{HM} 'R-3c'", *ALUMINA_R),
    "alumina 9": (rhombohedral(5.1284, 55.28), f"{HALL} '-P 3* 2n'", *ALUMINA_R),
    "bismuth 1": (hexagonal(4.546, 11.862), f"{HM} 'R -3 m'", "Bi Bi 0 0 .2339", 6, 9.81),
    "bismuth 2": (rhombohedral(4.7458, 57.23), f"{HM} 'R -3 m R'", "Bi Bi .2339 .2339 .2339", 6,
    9.81),
    # cubic names, old and new
    "salt 1": (cubic(5.6402), f"{HM} 'F m -3 m'", *SALT),
    "salt 2": (cubic(5.6402), f"{HM} 'F m 3 m'", *SALT),
    "salt 3": (cubic(5.6402), f"{HM} Fm-3m", *SALT),
    "salt 4": (cubic(5.6402), f"{HM} 'F m -3 m (225)'", *SALT),
    "salt 5": (cubic(5.6402), f"{HM} 'F 4/m -3 2/m'", *SALT),
    "salt 6": (cubic(5.6402), f"{HALL} '-F 4 2 3'", *SALT),
    "salt 7": (cubic(5.6402), f"{NUMBER} 225", *SALT),
    "lithium deuteride": (cubic(4.0681), f"{HM} 'F m -3 m'\n_chemical_formula_sum 'D Li'",
    *DEUTERIDE),
    "tungsten": (cubic(3.1652), f"{HM} 'I m -3 m'", "W W 0 0 0", 2, 19.25),
    "GaAs": (cubic(5.6533), f"{HM} 'F -4 3 m'", "Ga Ga 0 0 0\nAs As .25 .25 .25", 8, 5.32),
    "pyrite 1": (cubic(5.418), f"{HM} 'P a 3'", "Fe Fe 0 0 0\nS S .3848 .3848 .3848", 12, 5.01),
    "pyrite 2": (cubic(5.418), f"{HM} 'P 21/a -3'", "Fe Fe 0 0 0\nS S .3848 .3848 .3848", 12, 5.01),
    "garnet": (cubic(11.456), f"{HM} 'I a 3 d'\n_chemical_formula_sum 'Al2 Mg3 O12 Si3'{Z} 8",
    *GARNET),
    # hexagonal names, screw axes in all ways to write them, thirds of three digits
    **{
        f"zincite {name}": (hexagonal(3.2498, 5.2066), f"{HM} '{name}'", *ZINCITE)
        for name in ("P 63 m c", "P63mc", "P6_3mc", "P6(3)mc", "P 6_3 m c")
    },
    "magnesium": (hexagonal(3.2094, 5.2107), f"{HM} 'P 63/m m c'", "Mg Mg .333 .667 .25", 2, 1.74),
    "magnesium full": (hexagonal(3.2094, 5.2107), f"{HM} 'P 63/m 2/m 2/c'",
    "Mg Mg .3333 .6667 .2500", 2, 1.74),
    "magnesium of two digits": (hexagonal(3.2094, 5.2107), f"{HM} P63/mmc", "Mg Mg .33 .67 .25", 2,
    1.74),
    "graphite": (hexagonal(2.464, 6.711), f"{NUMBER} 194", "C C 0 0 .25\nC C .33333 .66667 .25", 4,
    2.26),
    "quartz": (
        hexagonal(4.9134, 5.4052),
        f"{HM} 'P 32 2 1'",
        "Si Si .4697 0 .6667\nO O .4135 .2669 .7858",
        9,
        2.65,
    ),
    "rutile 1": (tetragonal(4.5937, 2.9587), f"{HM} 'P 42/m n m'", *RUTILE),
    "rutile 2": (tetragonal(4.5937, 2.9587), f"{HM} 'P4_2/mnm'", *RUTILE),
    "rutile 3": (tetragonal(4.5937, 2.9587), f"{HM} 'P 42/m 21/n 2/m'", *RUTILE),
    "rutile 4": (tetragonal(4.5937, 2.9587), f"{NUMBER} 136", *RUTILE),
    # orthorhombic settings
    "perovskite Pbnm": (
        (5.3796, 5.4423, 7.6401, 90, 90, 90),
        f"{HM} 'P b n m'",
        "Ca Ca -.00676 .03602 .25\nTi Ti 0 .5 0\nO O .0714 .4838 .25\nO O .7108 .2888 .0371",
        20,
        4.04,
    ),
    "perovskite Pnma": (
        (5.4423, 7.6401, 5.3796, 90, 90, 90),
        f"{HM} 'P 21/n 21/m 21/a'",
        "Ca Ca .03602 .25 -.00676\nTi Ti .5 0 0\nO O .4838 .25 .0714\nO O .2888 .0371 .7108",
        20,
        4.04,
    ),
    "phosphorus 1": ((3.3136, 10.478, 4.3763, 90, 90, 90), f"{HM} 'C m c a'", *PHOSPHORUS),
    "phosphorus 2": ((3.3136, 10.478, 4.3763, 90, 90, 90), f"{HM} 'C m c e'", *PHOSPHORUS),
    "phosphorus 3": ((3.3136, 10.478, 4.3763, 90, 90, 90), f"{HM} Cmca", *PHOSPHORUS),
    # monoclinic settings of one crystal
    "zirconia P21/c": (BADDELEYITE, f"{HM} 'P 21/c'", zirconia(), 12, 5.81),
    "zirconia P2(1)/c": (BADDELEYITE, f"{HM} 'P2(1)/c'", zirconia(), 12, 5.81),
    "zirconia 14": (BADDELEYITE, f"{NUMBER} 14", zirconia(), 12, 5.81),
    "zirconia P21/a": (P21_A, f"{HM} 'P 1 21/a 1'", zirconia(lambda x, y, z: (z, -y, x)), 12, 5.81),
    "zirconia P21/n": (_oblique(), f"{HM} 'P 21/n'", zirconia(lambda x, y, z: (x - z, -y, -z)), 12,
    5.81),
    "zirconia P1121/a": (P1121_A, f"{HM} 'P 1 1 21/a'", zirconia(lambda x, y, z: (z, x, y)), 12,
    5.81),
    **{
        f"tenorite {name}": ((4.6837, 3.4226, 5.1288, 90, 99.54, 90), f"{HM} '{name}'", *TENORITE)
        for name in ("C 1 2/c 1", "C2/c", "C 2/c")
    },
    "tenorite Hall": ((4.6837, 3.4226, 5.1288, 90, 99.54, 90), f"{HALL} '-C 2yc'", *TENORITE),
    # cells that are not conventional ones
    "primitive silicon": (rhombohedral(3.8403, 60), f"{HM} 'P 1'", "Si Si 0 0 0\nSi Si .25 .25 .25",
    8, 2.33),
    "primitive tungsten": (rhombohedral(2.7412, 109.4712), f"{HM} 'P 1'", "W W 0 0 0", 2, 19.25),
    "primitive aluminium": (rhombohedral(2.8637, 60), f"{NUMBER} 1", "Al Al 0 0 0", 4, 2.70),
    # disorder
    "alloy": (cubic(3.753), f"{HM} 'F m -3 m'", "Cu Cu 0 0 0 .75\nAu Au 0 0 0 .25", 8, 12.2),
    "heavy water": (cubic(4.0681), f"{HM} 'F m -3 m'",
    "Li Li 0 0 0 1\nD D .5 .5 .5 .7\nH H .5 .5 .5 .3", 8, 0.78),
    "split site": (cubic(4.01), f"{HM} 'P m -3 m'",
    "Ba Ba 0 0 0 1\nTi Ti .53 .5 .5 .1667\nO O .5 .5 0 1", 10, 6.0),
    "rounded formula": (
        cubic(5.6553),
        f"{HM} 'F -4 3 m'\n_chemical_formula_sum 'Al0.58 As Ga0.42'{Z} 4",
        "Al Al 0 0 0 .5825\nGa Ga 0 0 0 .4175\nAs As .25 .25 .25 1",
        12,
        4.40,
    ),
    "default occupancy": (cubic(5.6402), f"{HM} 'F m -3 m'", "Na Na 0 0 0 .\nCl Cl .5 .5 .5 .", 8,
    2.16),
}  # fmt: skip


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
