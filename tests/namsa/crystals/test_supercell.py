"""Supercells, thermal displacements and checks of atoms, against crystallography."""

import re
from typing import Any

import ase
import numpy as np
import pytest
from ase.build import bulk
from ase.neighborlist import neighbor_list
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oriented_crystals import LATERAL, orient, perovskite
from paths import DATA
from scipy.spatial.distance import pdist

from namsa.base.errors import InputError
from namsa.crystals import orient as orient_module
from namsa.crystals.cif import read_cif
from namsa.crystals.orient import CellFit, fit_cell
from namsa.crystals.sites import check_atoms

# strain is what right-angled cells of low symmetry have
pytestmark = [pytest.mark.filterwarnings("ignore:the crystal is strained:namsa.SimulationWarning")]

AXES = [(0, 0, 1), (1, 0, 0), (1, 1, 0), (1, 1, 1), (2, -1, 1)]


CRYSTALS = {
    "perovskite": perovskite(),
    "silicon": bulk("Si", cubic=True),
    "magnesium": bulk("Mg"),
    "bismuth": bulk("Bi"),
    "monoclinic": read_cif(DATA / "baddeleyite.cif").atoms,
    "triclinic": read_cif(DATA / "kyanite.cif").atoms,
}


def fit(
    atoms: ase.Atoms, zone_axis: tuple[int, int, int], max_strain: float, max_atoms: int
) -> CellFit:
    limits = {"max_strain": max_strain, "max_atoms": max_atoms}
    return fit_cell(
        atoms, zone_axis=zone_axis, lateral_angstrom=LATERAL, thickness_angstrom=20, **limits
    )


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("crystal", CRYSTALS)
def test_a_supercell_is_the_crystal_along_its_zone_axis(
    crystal: str, axis: tuple[int, int, int]
) -> None:
    atoms = CRYSTALS[crystal]
    cell = orient(atoms, axis)
    sides = cell.matrix @ atoms.cell[:]
    lengths = cell.atoms.cell.lengths()

    assert np.array_equal(cell.atoms.cell[:], np.diag(lengths))
    assert np.array_equal(np.cross(cell.matrix[2], axis), (0, 0, 0))
    assert cell.matrix[2] @ axis > 0
    assert np.linalg.det(sides) > 0
    assert np.linalg.norm(sides, axis=1) == pytest.approx(lengths)
    assert lengths[0] >= LATERAL[1] - 1e-9
    assert lengths[1] >= LATERAL[0] - 1e-9
    repeat = np.linalg.norm(np.array(axis) @ atoms.cell[:])
    assert abs(lengths[2] - 20) <= repeat / 2 or lengths[2] == pytest.approx(repeat)

    # The strain is that of the map from the crystal's sides, in whatever orientation, to the box.
    stretches = np.linalg.svd(np.linalg.inv(sides) @ np.diag(lengths), compute_uv=False)
    assert cell.strain == pytest.approx(np.abs(stretches - 1).max(), abs=1e-9)
    assert cell.strain <= 0.03

    repeats = round(abs(np.linalg.det(cell.matrix)))
    assert {
        s: repeats * n for s, n in atoms.symbols.formula.count().items()
    } == cell.atoms.symbols.formula.count()
    assert np.all((cell.atoms.positions >= 0) & (cell.atoms.positions < lengths))
    check_atoms(cell.atoms)


@pytest.mark.parametrize(
    ("crystal", "bond"), [("monoclinic", "ZrO"), ("triclinic", "AlO"), ("triclinic", "SiO")]
)
@pytest.mark.parametrize("axis", AXES[:4], ids=str)
def test_bonds_keep_their_number_and_their_lengths_within_the_strain(
    crystal: str, bond: str, axis: tuple[int, int, int]
) -> None:
    def lengths(atoms: ase.Atoms) -> np.ndarray:
        i, j, distance = neighbor_list("ijd", atoms, 2.45)
        return distance[(atoms.symbols[i] == bond[:2]) & (atoms.symbols[j] == bond[2:])]

    cell = orient(CRYSTALS[crystal], axis)
    before = lengths(CRYSTALS[crystal])
    after = lengths(cell.atoms)
    assert len(after) == len(before) * round(abs(np.linalg.det(cell.matrix)))
    assert after.min() == pytest.approx(before.min(), rel=cell.strain + 1e-9)
    assert after.max() == pytest.approx(before.max(), rel=cell.strain + 1e-9)


def test_supercells_of_high_symmetry_are_those_of_textbooks() -> None:
    cell = orient(perovskite(), (0, 0, 1))
    assert cell.matrix.tolist() == [[6, 0, 0], [0, 4, 0], [0, 0, 5]]
    assert cell.strain < 1e-12
    # The atoms of one layer have exactly the same height, which slicing relies on.
    assert np.unique(cell.atoms.positions[:, 2]) == pytest.approx(np.arange(10) * 3.905 / 2)
    assert len(np.unique(cell.atoms.positions[:, 2])) == 10
    projected = np.unique(
        orient(bulk("Si", cubic=True), (1, 1, 0)).atoms.positions[:, :2].round(6), axis=0
    )
    assert pdist(projected).min() == pytest.approx(5.43 / 4, abs=1e-5)
    cell = orient(bulk("Mg"), (0, 0, 1))
    assert cell.strain < 1e-9
    assert np.array_equal(np.cross(cell.matrix[0], (1, 0, 0)), (0, 0, 0))
    assert np.array_equal(np.cross(cell.matrix[1], (1, 2, 0)), (0, 0, 0))


def test_perovskite_110_shows_columns_of_sr_o_ti_and_oxygen() -> None:
    cell = orient(perovskite(), (1, 1, 0))
    assert cell.matrix.tolist() == [[0, 0, 6], [3, -3, 0], [4, 4, 0]]
    columns = {
        symbol: np.unique(
            cell.atoms.positions[cell.atoms.symbols == symbol][:, :2].round(6), axis=0
        )
        for symbol in ("Sr", "Ti", "O")
    }
    sr = set(map(tuple, columns["Sr"]))
    ti = set(map(tuple, columns["Ti"]))
    assert not sr & ti
    # Along [110] a third of the O alternate with Sr, the others stand in columns of their own: SrO,
    # Ti and O₂.
    assert len(sr) == len(ti) == 36
    assert len({tuple(xy) for xy in columns["O"]} & sr) == 36
    assert len(columns["O"]) == 72


def test_axes_may_be_given_in_multiples_and_backwards() -> None:
    along, twice, back = (
        orient(perovskite(), axis) for axis in ((1, 1, 0), (2, 2, 0), (-1, -1, 0))
    )
    assert np.array_equal(along.matrix, twice.matrix)
    assert np.array_equal(along.matrix[2], -back.matrix[2])


@pytest.mark.parametrize("crystal", ["perovskite", "monoclinic"])
def test_thickness_is_the_nearest_number_of_repeats_and_at_least_one(crystal: str) -> None:
    atoms = CRYSTALS[crystal]
    repeat = atoms.cell.lengths()[2]
    for requested, repeats in ((0.1, 1), (1.4, 1), (1.6, 2), (7.45, 7)):
        cell = orient(atoms, (0, 0, 1), thickness_angstrom=requested * repeat)
        assert cell.atoms.cell.lengths()[2] == pytest.approx(repeats * repeat)


def test_the_smallest_extent_takes_one_cell() -> None:
    """Also one that rounding makes nothing of."""
    tiny, small = (
        orient(CRYSTALS["perovskite"], (0, 0, 1), lateral_angstrom=(side, 9.0))
        for side in (1e-30, 1.0)
    )
    assert np.array_equal(tiny.matrix, small.matrix)


def test_fit_cell_describes_the_supercell_before_it_is_filled() -> None:
    for axis in AXES:
        cell = orient(CRYSTALS["triclinic"], axis)
        chosen = fit(CRYSTALS["triclinic"], axis, 0.03, 100_000)
        assert np.array_equal(chosen.matrix, cell.matrix)
        assert chosen.lengths_angstrom == pytest.approx(tuple(cell.atoms.cell.lengths()))
        assert (chosen.strain, chosen.atoms) == (cell.strain, len(cell.atoms))


def test_neither_orientation_nor_handedness_of_the_crystals_cell_matters() -> None:
    atoms = CRYSTALS["triclinic"]
    turned = atoms.copy()
    turned.rotate(40, (1, 2, -1), rotate_cell=True)
    assert np.array_equal(orient(turned, (1, 1, 0)).matrix, orient(atoms, (1, 1, 0)).matrix)
    mirrored = atoms.copy()
    mirrored.set_cell(atoms.cell[:] * (1, 1, -1), scale_atoms=True)
    cell = orient(mirrored, (1, 1, 0))
    assert np.linalg.det(cell.matrix) < 0 < np.linalg.det(cell.matrix @ mirrored.cell[:])
    assert cell.strain == pytest.approx(orient(atoms, (1, 1, 0)).strain)


def test_occupancies_are_kept() -> None:
    atoms = read_cif(DATA / "mixed_perovskite.cif").atoms
    cell = orient(atoms, (1, 1, 1))
    repeats = abs(np.linalg.det(cell.matrix))
    for symbol in ("Sr", "Ba", "Ti", "O"):
        before, after = (
            a.arrays["occupancy"][a.symbols == symbol].sum() for a in (atoms, cell.atoms)
        )
        assert after == pytest.approx(repeats * before)
    check_atoms(cell.atoms)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    sides=st.tuples(*[st.floats(2.5, 12)] * 3),
    angles=st.tuples(*[st.floats(60, 120)] * 3),
    axis=st.tuples(*[st.integers(-2, 2)] * 3).filter(any),
)
def test_any_triclinic_cell_is_fitted_within_the_strain(
    sides: tuple[float, ...], angles: tuple[float, ...], axis: tuple[int, int, int]
) -> None:
    assume(sum(angles) < 350)
    assume(max(angles) < sum(angles) - max(angles) - 10)
    atoms = ase.Atoms("Po", cell=[*sides, *angles], pbc=True)
    chosen = fit(atoms, axis, 0.05, 1_000_000)
    box = np.diag(chosen.lengths_angstrom)
    stretches = np.linalg.svd(np.linalg.inv(chosen.matrix @ atoms.cell[:]) @ box, compute_uv=False)
    assert np.abs(stretches - 1).max() == pytest.approx(chosen.strain, abs=1e-9)
    assert chosen.strain <= 0.05
    assert np.linalg.det(box) / chosen.atoms == pytest.approx(atoms.get_volume(), rel=0.16)


def test_the_strain_that_an_error_names_is_sufficient() -> None:
    with pytest.raises(InputError, match=r"max_strain 1e-05.*raise specimen.max_strain") as refused:
        orient(CRYSTALS["triclinic"], (1, 1, 1), max_strain=1e-5)
    best = float(re.search(r"best found needs ([\d.e-]+)", str(refused.value))[1])  # type: ignore[index]
    assert best > 1e-5
    chosen = fit(CRYSTALS["triclinic"], (1, 1, 1), best * 1.01, 10**9)
    assert chosen.strain <= best * 1.01


@pytest.mark.parametrize("limit", [0.1, 0.4])
def test_the_search_for_sides_is_complete(limit: float) -> None:
    """Compares with all lattice vectors of a cube of indices that contains the searched sphere."""
    cell = np.array([[3.1, 0.2, 0.1], [0.4, 4.7, -0.3], [-0.9, 1.1, 23.0]])
    beam = np.array([1, 2, 1]) @ cell / np.linalg.norm(np.array([1, 2, 1]) @ cell)
    points = 2000
    sides = orient_module._sides(cell, beam, limit, points)
    vectors = np.moveaxis(np.indices((61, 61, 61)), 0, -1).reshape(-1, 3) - 30
    cartesian = vectors @ cell
    length = np.linalg.norm(cartesian, axis=1)
    radius = (3 * points * np.linalg.det(cell) / (4 * np.pi)) ** (1 / 3)
    assert radius < 30 / np.linalg.norm(np.linalg.inv(cell), axis=0).max()
    expected = (
        (length <= radius)
        & (np.abs(cartesian @ beam) <= limit * length)
        & (np.gcd.reduce(vectors, axis=1) == 1)
    )
    every = {tuple(v) for v in vectors[expected].tolist()}
    both = {tuple(v) for v in np.concatenate([sides, -sides]).tolist()}
    assert both == every
    assert 10 < len(sides) == len(every) // 2 < orient_module.MAX_SIDES


@pytest.mark.parametrize(
    ("zone_axis", "settings", "message"),
    [
        ((0, 0, 0), {}, "zone axis"),
        ((0, 0, 1), {"lateral_angstrom": (0.0, 5.0)}, "must be positive"),
        ((0, 0, 1), {"thickness_angstrom": -20}, "must be positive"),
        ((0, 0, 1), {"max_strain": -0.02}, "max_strain is -0.02"),
        ((0, 0, 1), {"max_strain": 0.5}, "max_strain is 0.5"),
    ],
)
def test_meaningless_arguments_are_refused(
    zone_axis: tuple[int, int, int], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        orient(perovskite(), zone_axis, **settings)


def test_too_many_atoms_and_a_cell_without_volume_are_refused() -> None:
    needed = len(orient(perovskite(), (0, 0, 1)).atoms)
    with pytest.raises(InputError, match=f"has {needed} atoms, max_atoms is {needed - 1}"):
        orient(perovskite(), (0, 0, 1), max_strain=0, max_atoms=needed - 1)
    with pytest.raises(InputError, match="no volume"):
        orient(ase.Atoms("Si"), (0, 0, 1))
