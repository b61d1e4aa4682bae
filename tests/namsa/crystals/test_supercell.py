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
from paths import DATA
from scipy.spatial.distance import pdist

import namsa
from namsa.base.errors import InputError, SimulationWarning
from namsa.crystals import orient as orient_module
from namsa.crystals.cif import read_cif
from namsa.crystals.displacements import displace_atoms
from namsa.crystals.orient import CellFit, fit_cell
from namsa.crystals.sites import check_atoms
from namsa.crystals.supercell import Supercell, make_supercell

# strain is what right-angled cells of low symmetry have
pytestmark = [pytest.mark.filterwarnings("ignore:the crystal is strained:namsa.SimulationWarning")]

LATERAL = (14.0, 23.0)  # (y, x): not square, so that a swapped axis shows
AXES = [(0, 0, 1), (1, 0, 0), (1, 1, 0), (1, 1, 1), (2, -1, 1)]


def perovskite() -> ase.Atoms:
    positions = [(0, 0, 0), (0.5, 0.5, 0.5), (0.5, 0.5, 0), (0.5, 0, 0.5), (0, 0.5, 0.5)]
    return ase.Atoms("SrTiO3", scaled_positions=positions, cell=[3.905] * 3, pbc=True)


CRYSTALS = {
    "perovskite": perovskite(),
    "silicon": bulk("Si", cubic=True),
    "magnesium": bulk("Mg"),
    "bismuth": bulk("Bi"),
    "monoclinic": read_cif(DATA / "baddeleyite.cif").atoms,
    "triclinic": read_cif(DATA / "kyanite.cif").atoms,
}


def orient(atoms: ase.Atoms, zone_axis: tuple[int, int, int], **settings: Any) -> Supercell:
    defaults = {
        "lateral_angstrom": LATERAL,
        "thickness_angstrom": 20,
        "max_strain": 0.03,
        "max_atoms": 100_000,
    }
    return make_supercell(atoms, zone_axis=zone_axis, **defaults | settings)


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
    sr, ti = ({tuple(xy) for xy in columns[symbol]} for symbol in ("Sr", "Ti"))
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


def moves(before: ase.Atoms, after: ase.Atoms) -> np.ndarray:
    half = before.cell.lengths() / 2
    return (after.positions - before.positions + half) % (2 * half) - half


def test_displacements_have_the_rms_of_each_element_along_each_axis() -> None:
    atoms = orient(
        perovskite(), (0, 0, 1), lateral_angstrom=(40, 40), thickness_angstrom=60, max_strain=0
    ).atoms
    rms = {"Sr": 0.05, "Ti": 0.0, "O": 0.1, "Ba": 9.0}
    hot = displace_atoms(atoms, rms, np.random.default_rng(1))
    moved = moves(atoms, hot)
    assert np.sqrt((moved[atoms.symbols == "Sr"] ** 2).mean(axis=0)) == pytest.approx(
        [0.05] * 3, rel=0.05
    )
    assert np.sqrt((moved[atoms.symbols == "O"] ** 2).mean(axis=0)) == pytest.approx(
        [0.1] * 3, rel=0.05
    )
    assert moved[atoms.symbols == "Ti"] == pytest.approx(0, abs=1e-12)
    across = hot.positions[:, :2]
    assert np.all((across >= 0) & (across < atoms.cell.lengths()[:2]))
    assert np.array_equal(hot.numbers, atoms.numbers)


def test_displacements_follow_the_seed_and_do_not_change_the_crystal() -> None:
    atoms = orient(perovskite(), (0, 0, 1)).atoms
    before = atoms.positions.copy()
    first, again, other = (
        displace_atoms(atoms, 0.1, np.random.default_rng(seed)).positions for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.array_equal(atoms.positions, before)


def test_the_atoms_of_a_mixed_site_move_together() -> None:
    atoms = orient(read_cif(DATA / "mixed_perovskite.cif").atoms, (0, 0, 1)).atoms
    rms = {"Sr": 0.05, "Ba": 0.1, "Ti": 0.1, "O": 0.1}
    hot = displace_atoms(atoms, rms, np.random.default_rng(1))
    moved = moves(atoms, hot)
    assert moved[atoms.symbols == "Sr"] == pytest.approx(moved[atoms.symbols == "Ba"])
    expected = np.sqrt(0.7 * 0.05**2 + 0.3 * 0.1**2)
    assert np.sqrt((moved[atoms.symbols == "Sr"] ** 2).mean()) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(
    ("rms", "message"),
    [
        ({"Sr": 0.1, "O": 0.1}, "no displacement is given for Ti"),
        (-0.1, "0 Å or more"),
        (float("nan"), "0 Å or more"),
    ],
)
def test_wrong_displacements_are_refused(rms: float | dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        displace_atoms(perovskite(), rms, np.random.default_rng(1))


def faulty(**changes: object) -> ase.Atoms:
    """A right-angled cell with changes: `position`, `number` and `occupancy` of the last atom, and
    the `cell`.
    """
    atoms = perovskite()
    if "position" in changes:
        atoms.positions[-1] = changes["position"]
    if "number" in changes:
        atoms.numbers[-1] = changes["number"]
    if "occupancy" in changes:
        atoms.set_array("occupancy", np.array([1, 1, 1, 1, changes["occupancy"]], dtype=float))
    if "cell" in changes:
        atoms.set_cell(changes["cell"])
    return atoms


@pytest.mark.parametrize(
    ("atoms", "message"),
    [
        (faulty(position=(np.nan, 0, 0)), r"atom 4 \(O\).*finite"),
        (faulty(cell=[4, 4, 4, 90, 91, 90]), "not right-angled"),
        (faulty(cell=[4, 4, 0.5]), "at least 1 Å"),
        (ase.Atoms("Si"), "at least 1 Å"),
        (faulty(number=0), "atomic number 0"),
        (faulty(number=104), "atomic number 104"),
        (faulty(occupancy=0), "occupancy 0 "),
        (faulty(occupancy=1.1), "occupancy 1.1"),
        (faulty(occupancy=np.nan), "occupancy nan"),
        (faulty(position=(0.1, 0.1, 0.1)), r"atom 0 \(Sr\).*atom 4 \(O\).*overlap"),
        (faulty(position=(3.85, 3.85, 3.85)), "overlap"),  # across the faces
        (faulty(position=(3.905, 0, 0)), "overlap"),  # the atom of the next cell
        (faulty(position=(0.1, 0.1, 0.1), occupancy=0.5), "not 1.5"),
    ],
)
def test_check_atoms_refuses(atoms: ase.Atoms, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_atoms(atoms)


def test_check_atoms_accepts_split_sites_and_a_hundred_thousand_atoms() -> None:
    atoms = faulty(position=(0.1, 0.1, 0.1))
    atoms.set_array("occupancy", np.array([0.6, 1, 1, 1, 0.4]))
    check_atoms(atoms)
    atoms = orient(
        perovskite(),
        (0, 0, 1),
        lateral_angstrom=(100, 100),
        thickness_angstrom=120,
        max_strain=0,
        max_atoms=200_000,
    ).atoms
    assert len(atoms) > 100_000
    check_atoms(atoms)


@pytest.mark.parametrize("periods", [(3, 0, 0), (0, -1, 0), (-7, 2, 100)])
def test_atoms_that_overlap_are_found_however_far_outside_the_cell(
    periods: tuple[int, int, int],
) -> None:
    atoms = faulty()
    atoms.positions += 3.905 * np.array(periods)
    check_atoms(atoms)
    atoms.positions[-1] = 0.01, 0.02, -0.03  # at the Sr atom of the cell itself
    with pytest.raises(
        InputError, match="overlap.*remove one.* whole number of the crystal's periods"
    ):
        check_atoms(atoms)


def test_a_specimen_whose_atoms_no_crystal_has_is_simulated_with_a_warning_that_is_kept() -> None:
    """Whole titanium atoms 0.35 Å apart, and an atom 20 Å outside a cell of 8 Å."""
    conditions = {
        "energy_ev": 2e5,
        "semiangle_mrad": 20,
        "grid_shape": (48, 40),
        "positions_angstrom": [(4, 4)],
    }
    for position, message in (((1.35, 1, 1), "0.35 Å apart"), ((28, 4, 4), "atom 1 .* by 20.0 Å")):
        atoms = ase.Atoms("Ti2", positions=[(1, 1, 1), position], cell=[8, 8, 8], pbc=True)
        with pytest.warns(SimulationWarning, match=message):
            sample = namsa.simulate(atoms, **conditions)
        assert any(re.search(message, text) for text in sample.provenance["warnings"])
    assert (
        check_atoms(ase.Atoms("Ti2", positions=[(1, 1, 1), (4, 1, 1)], cell=[8, 8, 8], pbc=True))
        == []
    )
