"""Crystals of handbooks in the settings that programs and databases write, as text of CIF."""

from collections.abc import Callable

import numpy as np
from cif_files import (
    HALL,
    HM,
    NUMBER,
    cubic,
    hexagonal,
    rhombohedral,
    tetragonal,
)

BADDELEYITE = (5.1505, 5.2116, 5.3173, 90, 99.23, 90)
ZIRCONIA = {
    "Zr": (0.2754, 0.0395, 0.2083),
    "O1": (0.0700, 0.3317, 0.3447),
    "O2": (0.4496, 0.7569, 0.4792),
}


def _as_written(x: float, y: float, z: float) -> tuple[float, ...]:
    return x, y, z


def zirconia(change: Callable[[float, float, float], tuple[float, ...]] = _as_written) -> str:
    """Returns the sites of baddeleyite, P 1 21/c 1 with 5.1505, 5.2116, 5.3173 Å and 99.23°, in
    another setting.
    """
    lines = []
    for label, place in ZIRCONIA.items():
        coordinates = " ".join(f"{value:.6f}" for value in change(*place))
        lines.append(f"{label} {label.rstrip('12')} {coordinates}")
    return "\n".join(lines)


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
