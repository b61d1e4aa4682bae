"""Thermal amplitudes from CIF files, and displacements by them."""

from pathlib import Path

import ase
import ase.build
import numpy as np
import pytest
from cif_files import HM, KEYS, anisotropic, cif, hexagonal

import namsa
from namsa.base.errors import InputError
from namsa.crystals.displacements import displace_atoms

SITES = (
    "Sr1 Sr2+ 0 0 0 0.5 {first}\nLa1 La3+ 0 0 0 0.5 {second}\nO1 O2- 0.3333 0.6667 0.5 1 {third}"
)
CIF = cif(hexagonal(4, 6), f"{HM} 'P 6 m m'", SITES, (*KEYS, "{column}")) + anisotropic(
    "U", "O1 0.02 0.02 0.005 0.01 0 0"
)


def read(folder: Path, column: str, *values: str) -> dict[str, float]:
    path = folder / "x.cif"
    path.write_text(
        CIF.format(column=column, **dict(zip(("first", "second", "third"), values, strict=True)))
    )
    atoms = namsa.read_cif(path).atoms
    amplitudes = atoms.arrays["rms_displacement_angstrom"]
    assert len(atoms) == 4
    amplitudes_by_symbol = {
        symbol: set(amplitudes[atoms.symbols == symbol].round(9).tolist())
        for symbol in set(atoms.symbols)
    }
    assert all(len(values) == 1 for values in amplitudes_by_symbol.values())
    return {symbol: values.pop() ** 2 for symbol, values in amplitudes_by_symbol.items()}


def test_isotropic_and_anisotropic_displacements_are_read(tmp_path: Path) -> None:
    # In hexagonal axes U_11 = U_22 = 2 U_12 is isotropic in the plane; U_eq is a third of the
    # trace.
    trace = {"Sr": 0.008, "La": 0.01, "O": (0.02 + 0.02 + 0.005) / 3}
    assert read(tmp_path, "U_iso_or_equiv", "0.008(1)", "0.010", "?") == pytest.approx(
        trace, rel=1e-6
    )
    b_factors = [f"{8 * np.pi**2 * u:.6f}" for u in (0.008, 0.01, 0.004)]
    assert read(tmp_path, "B_iso_or_equiv", *b_factors) == pytest.approx(
        trace | {"O": 0.004}, rel=1e-4
    )


def test_values_that_are_no_displacement_count_as_not_given(tmp_path: Path) -> None:
    mean_squares = read(tmp_path, "U_iso_or_equiv", "-0.01", "abc", "0")
    assert np.isnan(mean_squares["Sr"])
    assert np.isnan(mean_squares["La"])
    assert mean_squares["O"] == 0
    cell = namsa.make_supercell(
        namsa.read_cif(tmp_path / "x.cif").atoms,
        zone_axis=(0, 0, 1),
        lateral_angstrom=(8, 8),
        thickness_angstrom=6,
    )
    with pytest.raises(InputError, match="no thermal displacement .* for La, Sr"):
        displace_atoms(cell.atoms, "cif", np.random.default_rng(0))


def test_each_atom_moves_by_its_own_amplitude(tmp_path: Path) -> None:
    read(tmp_path, "U_iso_or_equiv", "0.04", "0.04", "0.0025")
    crystal = namsa.read_cif(tmp_path / "x.cif").atoms
    size = {"zone_axis": (0, 0, 1), "lateral_angstrom": (30, 30), "thickness_angstrom": 30}
    for kind in ("crystal", "vacancies", "boundary", "amorphous_layer"):
        atoms = namsa.make_specimen(crystal, kind, **size).atoms
        phonons = namsa.FrozenPhonons(rms_angstrom="cif")
        moved = displace_atoms(atoms, phonons.displacement_angstrom(), np.random.default_rng(1))
        sides = atoms.cell.lengths()
        offset = moved.positions - atoms.positions
        offset -= sides * np.round(offset / sides)
        oxygen = (atoms.symbols == "O") & (atoms.positions[:, 2] > 15)
        assert np.sqrt(np.mean(offset[oxygen] ** 2)) == pytest.approx(
            np.sqrt(0.015), rel=0.1
        )  # by its tensor
        heavy = (atoms.symbols == "Sr") & (atoms.positions[:, 2] > 15)
        assert np.sqrt(np.mean(offset[heavy] ** 2)) == pytest.approx(0.2, rel=0.1)


def _vibrating() -> ase.Atoms:
    """A triclinic crystal of one atom that vibrates along [2 1 0] only, and of one that has no
    tensor.
    """
    cell = [[4.0, 0, 0], [0.4, 5.0, 0], [0.3, -0.2, 6.0]]
    atoms = ase.Atoms("SiO", scaled_positions=[(0, 0, 0), (0.5, 0.5, 0.5)], cell=cell, pbc=True)
    along = np.array([2, 1, 0]) @ atoms.cell.array
    along /= np.linalg.norm(along)
    tensors = np.full((2, 3, 3), np.nan)
    tensors[0] = 0.04 * np.outer(along, along)
    atoms.set_array("displacement_tensor_angstrom2", tensors)
    atoms.set_array("rms_displacement_angstrom", np.array([np.nan, 0.05]))
    return atoms


@pytest.mark.parametrize("zone_axis", [(0, 0, 1), (2, 1, 0), (1, 0, 0), (1, -2, 1)])
def test_an_anisotropic_atom_moves_along_its_own_axes_whatever_the_zone_axis(zone_axis):
    crystal = _vibrating()
    with pytest.warns(namsa.SimulationWarning):
        cell = namsa.make_supercell(
            crystal,
            zone_axis=zone_axis,
            lateral_angstrom=(60, 60),
            thickness_angstrom=60,
            max_strain=0.1,
        )
    moved = (
        displace_atoms(cell.atoms, "cif", np.random.default_rng(1)).positions - cell.atoms.positions
    )
    moved -= np.round(moved / cell.atoms.cell.lengths()) * cell.atoms.cell.lengths()
    silicon = moved[cell.atoms.symbols == "Si"]
    sides = cell.matrix @ crystal.cell.array
    direction = (
        np.array([2, 1, 0])
        @ crystal.cell.array
        @ np.linalg.inv(sides)
        @ np.diag(cell.atoms.cell.lengths())
    )
    direction /= np.linalg.norm(direction)
    tensor = silicon.T @ silicon / len(silicon)
    assert tensor == pytest.approx(
        0.04 * np.outer(direction, direction), abs=0.003 + 0.04 * cell.strain
    )
    oxygen = moved[cell.atoms.symbols == "O"]
    assert np.sqrt((oxygen**2).mean(axis=0)) == pytest.approx([0.05] * 3, rel=0.06)


def test_isotropic_tensors_move_atoms_as_their_amplitude_does():
    atoms = ase.Atoms("Si4", positions=np.eye(4, 3) * 4 + 1, cell=[8, 8, 8], pbc=True)
    by_tensor = atoms.copy()
    atoms.set_array("rms_displacement_angstrom", np.full(4, 0.1))
    by_tensor.set_array("displacement_tensor_angstrom2", np.tile(0.01 * np.eye(3), (4, 1, 1)))
    first, second = (
        displace_atoms(crystal, "cif", np.random.default_rng(2)).positions
        for crystal in (atoms, by_tensor)
    )
    np.testing.assert_allclose(first, second, atol=1e-12)


def test_atoms_of_one_site_move_together_by_their_mean_tensor():
    atoms = ase.Atoms("CuAu", positions=[(4, 4, 4), (4, 4, 4)], cell=[8, 8, 8], pbc=True)
    atoms.set_array("occupancy", np.array([0.25, 0.75]))
    atoms.set_array(
        "displacement_tensor_angstrom2", np.array([np.diag([0.04, 0, 0]), np.diag([0, 0.04, 0])])
    )
    moves = []
    for seed in range(600):
        positions = displace_atoms(atoms, "cif", np.random.default_rng(seed)).positions
        np.testing.assert_array_equal(positions[0], positions[1])
        moves.append(positions[0] - 4)
    assert np.mean(np.square(moves), axis=0) == pytest.approx([0.01, 0.03, 0], abs=0.004)


def test_a_specimen_of_turned_parts_vibrates_isotropically():
    cubic = ase.build.bulk("Au", cubic=True)
    cubic.set_array("displacement_tensor_angstrom2", np.tile(np.diag([0.03, 0.0, 0.0]), (4, 1, 1)))
    made = namsa.make_specimen(
        cubic, "twin", zone_axis=(1, 1, 0), lateral_angstrom=(12, 12), thickness_angstrom=6
    )
    assert "displacement_tensor_angstrom2" not in made.atoms.arrays
    np.testing.assert_allclose(made.atoms.arrays["rms_displacement_angstrom"], 0.1)


THREEFOLD = f"{HM} 'P 3'\nloop_\n_symmetry_equiv_pos_as_xyz\nx,y,z\n-y,x-y,z\n-x+y,-x,z"
ANISOTROPIC = cif(
    hexagonal(5, 7),
    THREEFOLD,
    "Si1 Si 0.30 0.10 0.25 0.02\nO1 O 0 0 0 0.01",
    (*KEYS[:5], "U_iso_or_equiv"),
)
U = np.array([[0.04, 0.015, 0.004], [0.015, 0.02, -0.003], [0.004, -0.003, 0.01]])


@pytest.mark.parametrize("name", ["U", "B", "beta"])
def test_anisotropic_displacements_of_a_file_give_its_debye_waller_factors(tmp_path, name):
    """exp(−2π² Σ U_ij a*_i a*_j h_i h_j) of the file is exp(−2π² g·T·g) of the tensor, with g in
    Cartesian axes.
    """
    cell = np.array([[5.0, 0, 0], [-2.5, 5 * np.sqrt(0.75), 0], [0, 0, 7.0]])
    star = np.linalg.inv(cell).T
    lengths = np.linalg.norm(star, axis=1)
    scale = {"U": 1.0, "B": 8 * np.pi**2, "beta": 2 * np.pi**2 * np.outer(lengths, lengths)}[name]
    values = [(U * scale)[int(i) - 1, int(j) - 1] for i, j in ("11", "22", "33", "12", "13", "23")]
    path = tmp_path / "a.cif"
    path.write_text(
        ANISOTROPIC + anisotropic(name, "Si1 " + " ".join(f"{value:.6f}" for value in values))
    )
    atoms = namsa.read_cif(path).atoms
    tensors = atoms.arrays["displacement_tensor_angstrom2"]
    assert np.isnan(tensors[atoms.symbols == "O"]).all()
    silicon = np.flatnonzero(atoms.symbols == "Si")
    places = atoms.get_scaled_positions()[silicon]
    atom_index = silicon[np.argmin(np.abs(places - (0.3, 0.1, 0.25)).max(axis=1))]
    reciprocal = np.linalg.inv(atoms.cell.array).T
    for h in ([1, 0, 0], [0, 1, 0], [0, 0, 1], [1, -2, 3], [2, 1, -1]):
        exponent = np.einsum("i,j,ij,i,j", h, h, U, lengths, lengths)
        assert h @ reciprocal @ tensors[atom_index] @ (h @ reciprocal) == pytest.approx(
            exponent, rel=1e-3
        )
    # The three-fold axis turns the tensor by 120° from one image to the next.
    turns = []
    for a in np.radians([0, 120, 240]):
        turns.append(np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]]))
    for index in silicon:
        centre = atoms.positions[atom_index]
        moved = [turn @ centre for turn in turns]
        offsets = [np.linalg.solve(atoms.cell.array.T, m - atoms.positions[index]) for m in moved]
        turn = turns[int(np.argmin([np.abs(o - np.round(o)).max() for o in offsets]))]
        np.testing.assert_allclose(tensors[index], turn @ tensors[atom_index] @ turn.T, atol=1e-6)


def test_a_tensor_that_is_no_mean_square_counts_as_not_given(tmp_path):
    path = tmp_path / "a.cif"
    path.write_text(ANISOTROPIC + anisotropic("U", "Si1 0.01 0.01 0.01 0.05 0 0"))
    atoms = namsa.read_cif(path).atoms
    assert "displacement_tensor_angstrom2" not in atoms.arrays
    silicon = atoms.symbols == "Si"
    np.testing.assert_allclose(atoms.arrays["rms_displacement_angstrom"][silicon], np.sqrt(0.02))
