"""Specimens in several states: given snapshots, occupations that are drawn, and atoms that leave
the cell.
"""

import ase
import ase.build
import numpy as np
import pytest

import namsa
from namsa.base.errors import InputError
from namsa.crystals.sites import occupancies, occupy_sites
from namsa.physics.form_factors import xray
from namsa.physics.grid import Grid

# y, x
GRID = (72, 80)
EXTENT = (10.0, 12.0)
SHARED = {
    "energy_ev": 200e3,
    "grid_shape": GRID,
    "slice_thickness_angstrom": 2.0,
    "precision": "float64",
}
POSITIONS = np.array([[1.0, 2.0], [3.1, 4.2], [5.0, 6.0]])


def atom(height, **changes):
    return ase.Atoms("Au", [(6.0, 5.0, height)], cell=(12.0, 10.0, 60.0), **changes)


def chain(seed):
    """Four atoms in a cell of 10 × 12 × 8 Å, anywhere."""
    rng = np.random.default_rng(seed)
    return ase.Atoms(
        "SrTi2O", rng.uniform(0, 1, (4, 3)) * (12, 10, 8), cell=(12.0, 10.0, 8.0), pbc=True
    )


@pytest.mark.parametrize("projection", ["infinite", "finite"])
@pytest.mark.parametrize("periodic", [True, False])
def test_an_atom_at_the_entrance_scatters_as_one_in_the_middle(periodic, projection):
    phonons = namsa.FrozenPhonons(rms_angstrom=0.08, configurations=4)

    def dark_field(height):
        sample = namsa.simulate(
            atom(height, pbc=periodic),
            semiangle_mrad=20,
            aberrations={"C10": -height},  # in focus at the atom
            positions_angstrom=[[5.0, 6.0]],
            frozen_phonons=phonons,
            projection=projection,
            **SHARED | {"grid_shape": (120, 144)},
        )
        return sample.annular(40, 90)

    assert dark_field(0.0) > 0.01
    np.testing.assert_allclose(
        dark_field(0.0), dark_field(30.0), rtol=3e-2 if projection == "finite" else 1e-2
    )


@pytest.mark.filterwarnings("ignore:the probe spreads:namsa.SimulationWarning")
def test_an_atom_outside_of_a_cell_that_is_not_periodic_along_the_beam_stays_or_is_refused():
    arguments = SHARED | {
        "semiangle_mrad": 20,
        "positions_angstrom": [[5.0, 6.0]],
        "aberrations": {"C10": 200.0},
    }

    def pattern(height, periodic):
        return namsa.simulate(atom(height, pbc=(True, True, periodic)), **arguments).cbed

    np.testing.assert_array_equal(
        pattern(-0.5, False), pattern(0.5, False)
    )  # both in the first slice
    np.testing.assert_array_equal(pattern(60.5, False), pattern(59.5, False))
    np.testing.assert_array_equal(pattern(-0.5, True), pattern(59.5, False))
    assert np.abs(pattern(0.5, False) - pattern(59.5, False)).max() > 1e-5
    with pytest.raises(InputError, match=r"atom 0 \(Au\).* is 2 Å outside of its cell, 60 Å high"):
        pattern(62.0, False)


def test_atoms_at_opposite_faces_are_neighbours_only_if_the_cell_is_periodic_along_the_beam():
    both = atom(0.0) + atom(59.9)
    arguments = SHARED | {"semiangle_mrad": 20, "positions_angstrom": [[5.0, 6.0]]}
    assert namsa.simulate(both, **arguments).density.sum() * np.prod(EXTENT) / np.prod(
        GRID
    ) == pytest.approx(158)
    both.pbc = True
    with pytest.raises(InputError, match="overlap"):
        namsa.simulate(both, **arguments)


@pytest.mark.parametrize("depth_bins", [1, 2])
def test_snapshots_are_averaged(depth_bins):
    snapshots = [chain(seed) for seed in range(3)]
    lens = {"semiangle_mrad": 20, "positions_angstrom": POSITIONS}
    averaged = namsa.simulate(snapshots, **SHARED, **lens, depth_bins=depth_bins)
    single = [
        namsa.simulate(snapshot, **SHARED, **lens, depth_bins=depth_bins) for snapshot in snapshots
    ]
    for name in (
        "cbed",
        "density",
        "projected_potential",
        *(["density_by_depth"] if depth_bins > 1 else []),
    ):
        np.testing.assert_allclose(
            getattr(averaged, name), np.mean([getattr(s, name) for s in single], 0), atol=1e-12
        )
    assert averaged.provenance["snapshots"] == 3
    assert "snapshots" not in single[0].provenance


def test_scattering_averages_snapshots_and_their_displacements_too():
    phonons = namsa.FrozenPhonons(rms_angstrom=0.1, configurations=2)
    snapshots = [chain(seed) for seed in range(2)]
    lens = {"semiangle_mrad": 20, "positions_angstrom": POSITIONS}
    expected = namsa.simulate(
        snapshots, **SHARED, **lens, frozen_phonons=phonons, seed=5, method="multislice"
    )
    scattering = namsa.scatter(
        snapshots, max_angle_mrad=20, frozen_phonons=phonons, seed=5, **SHARED
    )
    assert len(scattering.matrices) == 4
    averaged = scattering.simulate(**lens)
    np.testing.assert_allclose(averaged.cbed, expected.cbed, atol=1e-12)
    assert averaged.provenance["snapshots"] == 2


def test_snapshots_that_do_not_go_together_are_refused_by_number():
    lens = {"semiangle_mrad": 20, "positions_angstrom": POSITIONS}
    larger = chain(1)
    larger.cell[0, 0] = 12.1
    with pytest.raises(
        InputError, match=r"snapshot 1 has a cell of \[12.1, 10.0, 8.0\] Å, the first \[12.0, "
    ):
        namsa.simulate([chain(0), larger], **SHARED, **lens)
    with pytest.raises(InputError, match=r"snapshot 1: atom 0 \(Lr\)|snapshot 1: atom 0"):
        namsa.simulate([chain(0), ase.Atoms("Rf", [(1, 1, 1)], cell=(12, 10, 8))], **SHARED, **lens)
    with pytest.raises(InputError, match="no snapshots to average"):
        namsa.simulate([], **SHARED, **lens)


def mixed(shares=(0.3, 0.5)):
    """A square lattice of 8 × 6 sites of two elements and, with what is left, of none."""
    sites = np.stack(
        np.meshgrid(np.arange(8) * 1.5, np.arange(6) * 10 / 6, [1.0], indexing="ij"), -1
    ).reshape(-1, 3)
    atoms = ase.Atoms(
        ["Cu"] * 48 + ["Au"] * 48, np.concatenate([sites, sites]), cell=(12.0, 10.0, 2.0), pbc=True
    )
    atoms.set_array("occupancy", np.repeat(shares, 48))
    return atoms


@pytest.mark.parametrize("shares", [(0.3, 0.5), (0.3, 0.7), (0.33334, 0.66664)])
def test_a_site_is_occupied_as_often_as_its_occupancies_say(shares):
    rng = np.random.default_rng(1)
    drawn = [occupy_sites(mixed(shares), rng) for _ in range(200)]
    for atomic_number, share in zip((29, 79), shares, strict=True):
        assert np.mean(
            [(atoms.numbers == atomic_number).sum() for atoms in drawn]
        ) / 48 == pytest.approx(share, abs=0.02)
    for atoms in drawn:
        assert len({tuple(position) for position in atoms.positions.round(6)}) == len(
            atoms
        )  # one atom per site
        assert len(atoms) == 48 or sum(shares) < 0.99
        assert (occupancies(atoms) == 1).all()


def test_random_occupation_scatters_diffusely_as_von_laue_says():
    """Between the Bragg peaks the mean of |F|² is N (⟨f²⟩ − ⟨f⟩²); the mean of F is that of the
    virtual crystal.
    """
    shares = (0.3, 0.5)
    lens = {"semiangle_mrad": 20, "positions_angstrom": [[1.0, 2.0]]}
    snapshots = namsa.random_occupations(mixed(shares), 60, seed=3)
    area = np.prod(EXTENT) / np.prod(GRID)
    transforms = []
    for snapshot in snapshots:
        transforms.append(area * np.fft.fft2(namsa.simulate(snapshot, **SHARED, **lens).density))
    grid = Grid(GRID, EXTENT)
    ky, kx = (np.round(k * extent) for k, extent in zip(grid.frequencies(), EXTENT, strict=True))
    between = (np.hypot(ky, kx) < 30) & ((ky % 6 != 0) | (kx % 8 != 0))
    copper, gold = (
        xray(atomic_number, grid.squared_frequency(), "lobato") for atomic_number in (29, 79)
    )
    mean = shares[0] * copper + shares[1] * gold
    expected = 48 * (shares[0] * copper**2 + shares[1] * gold**2 - mean**2)
    ratio = np.mean([np.abs(f) ** 2 for f in transforms], 0)[between] / expected[between]
    assert ratio.mean() == pytest.approx(1, abs=0.03)
    virtual = area * np.fft.fft2(namsa.simulate(mixed(shares), **SHARED, **lens).density)
    assert np.abs(np.mean(transforms, 0)[0, 0] / virtual[0, 0]) == pytest.approx(1, abs=0.03)
    assert np.abs(virtual[between]).max() < 1e-6 * np.abs(virtual[0, 0])


def test_occupations_are_those_of_their_seed():
    first, again, other = (namsa.random_occupations(mixed(), 2, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first[0] != first[1]
    assert first[0] != other[0]
