"""Thermal displacements and checks of atoms, against crystallography."""

import re

import ase
import numpy as np
import pytest
from oriented_crystals import orient, perovskite
from paths import DATA

import namsa
from namsa.base.errors import InputError, SimulationWarning
from namsa.crystals.cif import read_cif
from namsa.crystals.displacements import displace_atoms
from namsa.crystals.sites import check_atoms

# strain is what right-angled cells of low symmetry have
pytestmark = [pytest.mark.filterwarnings("ignore:the crystal is strained:namsa.SimulationWarning")]


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
