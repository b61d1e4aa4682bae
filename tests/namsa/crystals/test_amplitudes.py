"""Thermal amplitudes from CIF files, and displacements by them."""

from pathlib import Path

import numpy as np
import pytest

import namsa
from namsa.crystals.sites import displace_atoms
from namsa.errors import InputError

CIF = """data_x
_cell_length_a 4.0
_cell_length_b 4.0
_cell_length_c 6.0
_cell_angle_alpha 90
_cell_angle_beta 90
_cell_angle_gamma 120
_symmetry_space_group_name_H-M 'P 6 m m'
loop_
_atom_site_label
_atom_site_type_symbol
_atom_site_fract_x
_atom_site_fract_y
_atom_site_fract_z
_atom_site_occupancy
_atom_site_{column}
Sr1 Sr2+ 0 0 0 0.5 {first}
La1 La3+ 0 0 0 0.5 {second}
O1 O2- 0.3333 0.6667 0.5 1 {third}
loop_
_atom_site_aniso_label
_atom_site_aniso_U_11
_atom_site_aniso_U_22
_atom_site_aniso_U_33
_atom_site_aniso_U_12
_atom_site_aniso_U_13
_atom_site_aniso_U_23
O1 0.02 0.02 0.005 0.01 0 0
"""


def read(folder: Path, column: str, *values: str) -> dict[str, float]:
    path = folder / "x.cif"
    path.write_text(CIF.format(column=column, **dict(zip(("first", "second", "third"), values, strict=True))))
    atoms = namsa.read_cif(path).atoms
    amplitudes = atoms.arrays["rms_displacement_angstrom"]
    assert len(atoms) == 4
    found = {symbol: set(amplitudes[atoms.symbols == symbol].round(9).tolist()) for symbol in set(atoms.symbols)}
    assert all(len(values) == 1 for values in found.values())
    return {symbol: values.pop() ** 2 for symbol, values in found.items()}


def test_isotropic_and_anisotropic_displacements_are_read(tmp_path: Path) -> None:
    # In hexagonal axes U_11 = U_22 = 2 U_12 is isotropic in the plane; U_eq is a third of the trace.
    trace = {"Sr": 0.008, "La": 0.01, "O": (0.02 + 0.02 + 0.005) / 3}
    assert read(tmp_path, "U_iso_or_equiv", "0.008(1)", "0.010", "?") == pytest.approx(trace, rel=1e-6)
    b_factors = [f"{8 * np.pi**2 * u:.6f}" for u in (0.008, 0.01, 0.004)]
    assert read(tmp_path, "B_iso_or_equiv", *b_factors) == pytest.approx(trace | {"O": 0.004}, rel=1e-4)


def test_values_that_are_no_displacement_count_as_not_given(tmp_path: Path) -> None:
    found = read(tmp_path, "U_iso_or_equiv", "-0.01", "abc", "0")
    assert np.isnan(found["Sr"])
    assert np.isnan(found["La"])
    assert found["O"] == 0
    cell = namsa.make_supercell(
        namsa.read_cif(tmp_path / "x.cif").atoms, zone_axis=(0, 0, 1), lateral_angstrom=(8, 8), thickness_angstrom=6
    )
    with pytest.raises(InputError, match="no thermal displacement .* for La, Sr"):
        displace_atoms(cell.atoms, "cif", np.random.default_rng(0))


def test_each_atom_moves_by_its_own_amplitude(tmp_path: Path) -> None:
    read(tmp_path, "U_iso_or_equiv", "0.04", "0.04", "0.0025")
    crystal = namsa.read_cif(tmp_path / "x.cif").atoms
    size = {"zone_axis": (0, 0, 1), "lateral_angstrom": (30, 30), "thickness_angstrom": 30}
    for kind in ("crystal", "vacancies", "boundary", "amorphous_layer"):
        atoms = namsa.make_specimen(crystal, kind, **size).atoms
        moved = displace_atoms(atoms, namsa.FrozenPhonons(rms_angstrom="cif").displacement_angstrom(), _rng())
        sides = atoms.cell.lengths()
        offset = moved.positions - atoms.positions
        offset -= sides * np.round(offset / sides)
        oxygen = (atoms.symbols == "O") & (atoms.positions[:, 2] > 15)
        assert np.sqrt(np.mean(offset[oxygen] ** 2)) == pytest.approx(0.05, rel=0.1)
        heavy = (atoms.symbols == "Sr") & (atoms.positions[:, 2] > 15)
        assert np.sqrt(np.mean(offset[heavy] ** 2)) == pytest.approx(0.2, rel=0.1)


def _rng() -> np.random.Generator:
    return np.random.default_rng(1)
