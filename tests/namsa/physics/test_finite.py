"""Finite projection: against the integral it stands for, the infinite projection, and itself with
more slices.
"""

from dataclasses import replace

import ase
import ase.build
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import namsa
from namsa.physics import finite, form_factors, potential, specimen
from namsa.physics.grid import Grid
from namsa.physics.slice_plan import centred_slices
from namsa.sampling import choice, trial
from namsa.sampling.evidence import errors_of
from namsa.setup.settings import settings_of
from namsa.simulation_plan import plan_simulation

GRID = Grid((60, 84), (9.0, 10.5))
BEAM = {"energy_ev": 200e3, "semiangle_mrad": 20.0, "precision": "float64", "backend": "cpu"}
SIGMA = 1e-9  # so weak that (t − 1)/iσ is the potential itself, band-limited


@pytest.fixture(autouse=True)
def one_thread_a_product():
    """As `simulate` has it: threads take slices."""
    with threadpool_limits(limits=1, user_api="blas"):
        yield


def atoms_of(symbols, positions, depth=12.0):
    ly, lx = GRID.extent_angstrom
    return ase.Atoms(symbols, positions=positions, cell=[lx, ly, depth], pbc=True)


def potentials(atoms, thickness, projection="finite", table="lobato"):
    """The potential of every slice, V·Å, (n, ny, nx)."""
    slices = specimen.build(
        atoms, GRID, thickness, SIGMA, table, np.complex128, np, projection=projection
    ).slices
    return np.stack([slices.transmissions[i].imag / SIGMA for i in slices.order])


def heated(n=4, seed=5):
    atoms = ase.build.bulk("Au", cubic=True).repeat((2, 2, n))
    atoms.positions += np.random.default_rng(seed).normal(0, 0.1, atoms.positions.shape)
    return atoms


@pytest.mark.parametrize("table", ["lobato", "kirkland"])
@pytest.mark.parametrize("atomic_number", [8, 38, 79])
def test_what_lies_beyond_a_height_is_the_integral_over_kz(atomic_number, table):
    """f/2 − ∫ f(√(k² + kz²)) sin(2πkz z)/(πkz) dkz over kz > 0, by the trapezoidal rule."""
    kz = np.linspace(0, 100, 500_001)
    for k in (0.0, 0.4, 2.0):
        atom_factor = form_factors.electron(atomic_number, k**2, table)
        f = form_factors.electron(atomic_number, k**2 + kz**2, table)
        for z in (0.0, 0.3, 1.5):
            integral = np.trapezoid(f * 2 * z * np.sinc(2 * kz * z), kz)
            assert form_factors.electron_beyond(atomic_number, k**2, z, table) == pytest.approx(
                atom_factor / 2 - integral, abs=2e-5 * atom_factor
            )


@pytest.mark.parametrize("table", ["lobato", "kirkland"])
@pytest.mark.parametrize("thickness", [0.7, 2.0, 5.0])
def test_slices_sum_to_the_infinite_projection(thickness, table):
    """Also of atoms whose potential reaches out of the cell, at its faces and beyond."""
    atoms = atoms_of("SrTiOAu", [[1, 2, 0.0], [4.4, 5.5, 11.95], [9.9, 0.1, 4.1], [5.0, 8.0, -0.4]])
    slices = potentials(atoms, thickness, table=table)
    projections = potentials(atoms, thickness, "infinite", table)
    np.testing.assert_allclose(
        slices.sum(axis=0), projections.sum(axis=0), atol=1e-6 * projections.max()
    )
    assert np.abs(slices - projections).max() > 0.01 * projections.max()


def test_one_slice_is_the_infinite_projection():
    atoms = atoms_of("SrO", [[1, 2, 3.0], [4.4, 5.5, 11.95]])
    np.testing.assert_allclose(
        potentials(atoms, 12.0), potentials(atoms, 12.0, "infinite"), atol=1e-5
    )


def test_crystals_repeat_their_slices():
    gold = ase.build.bulk("Au", cubic=True).repeat((1, 1, 8))
    slices = specimen.build(
        gold, GRID, 2.04, SIGMA, "lobato", np.complex128, np, projection="finite"
    ).slices
    assert len(slices.order) == 16
    assert len(slices.transmissions) < 8  # the layers near the faces and two more


@pytest.mark.parametrize("table", ["lobato", "kirkland"])
@pytest.mark.parametrize(("dtype", "shape"), [("complex128", (60, 84)), ("complex64", (75, 91))])
def test_heated_slices_equal_the_direct_sum(dtype, shape, table):
    """Every atom's share of every slice, at its own height, summed over the plane in double
    precision.
    """
    atoms = atoms_of("SrTiO3Au4", np.random.default_rng(2).uniform(-1, 13, (9, 3)))
    atoms.set_array("occupancy", np.linspace(0.3, 1, len(atoms)))
    grid = Grid(shape, GRID.extent_angstrom)
    built = specimen.build(
        atoms, grid, 1.5, 1e-4, table, np.dtype(dtype), np, projection="finite"
    ).slices

    ky, kx = grid.frequencies()
    squared_k = ky**2 + kx**2
    direct = np.zeros((8, *shape), complex)
    for atom in atoms:
        beyond = np.zeros((9, *shape))  # what lies before each face
        for i in range(1, 8):
            z = i * 1.5 - atom.z % 12
            far = abs(z) >= finite.reach_angstrom(atom.number, table)
            outside = (
                0 if far else form_factors.electron_beyond(atom.number, squared_k, abs(z), table)
            )
            beyond[i] = (
                form_factors.electron(atom.number, squared_k, table) - outside if z > 0 else outside
            )
        beyond[8] = form_factors.electron(atom.number, squared_k, table)
        phase = np.exp(-2j * np.pi * (ky * atom.y + kx * atom.x))
        direct += atoms.arrays["occupancy"][atom.index] * np.diff(beyond, axis=0) * phase
    v = (
        potential.POTENTIAL_CONSTANT
        * np.fft.ifft2(direct).real
        * np.prod(shape)
        / np.prod(grid.extent_angstrom)
    )
    expected = np.stack(
        [potential.transmission(one, 1e-4, grid.antialias(), np.complex128) for one in v]
    )
    transmissions = np.stack([built.transmissions[i] for i in built.order])
    assert np.abs(transmissions - expected).max() < 3 * finite.TOLERANCE * 1e-4 * v.max()
    unsliced = specimen.build(atoms, grid, 1.5, 1e-4, table, np.complex128, np).slices
    infinite = np.stack([unsliced.transmissions[i] for i in unsliced.order])
    assert np.linalg.norm(infinite - expected) > 0.05 * np.linalg.norm(1 - expected)


@pytest.mark.parametrize("table", ["lobato", "kirkland"])
@pytest.mark.parametrize("extent", [(9.0, 10.5), (1.5, 1.0)])
@pytest.mark.parametrize("atomic_number", [1, 8, 38, 79])
def test_few_heights_stand_for_all(atomic_number, extent, table):
    """The expansion against the closed form, at heights that it was not made from and every k of
    coarse and fine grids, as a share of the whole atom; nothing is left at the frequencies that it
    leaves out.
    """
    grid = Grid((60, 84), extent)
    ky, kx = potential.quadrant_frequencies(grid)
    squared_k = ky**2 + kx**2
    atom_factor = form_factors.electron(atomic_number, squared_k, table)
    for shell in finite.shells(atomic_number, grid, table, np.float64, np):
        ny, nx = shell.parts.shape[1:]
        assert len(shell.parts) <= 12
        for z in np.random.default_rng(1).uniform(shell.nearest, shell.farthest, 20):
            error = form_factors.electron_beyond(atomic_number, squared_k, z, table)
            error[:ny, :nx] -= np.tensordot(shell.weights(z), shell.parts, axes=1)
            assert np.abs(error / atom_factor).max() < 10 * finite.TOLERANCE


def test_thinner_slices_converge():
    z = 2.9 * np.arange(8) + np.random.default_rng(4).uniform(0.1, 1.4, 8)
    atoms = atoms_of("Si8", np.stack([np.full(8, 5.0), np.full(8, 4.0), z], axis=1), depth=24.0)

    settings = BEAM | {
        "grid_shape": (120, 168),
        "positions_angstrom": [[4.1, 5.2]],
        "projection": "finite",
    }

    def pattern(thickness):
        return namsa.simulate(atoms, slice_thickness_angstrom=thickness, **settings).cbed

    finest = pattern(0.15)
    errors = [np.linalg.norm(pattern(t) - finest) / np.linalg.norm(finest) for t in (2.0, 1.0, 0.5)]
    assert errors[2] < 0.6 * errors[1]
    assert errors[1] < 0.8 * errors[0] < 0.02


def test_projection_changes_neither_density_nor_projected_potential():
    atoms = heated(2)
    built = []
    for p in ("infinite", "finite"):
        built.append(
            specimen.build(atoms, GRID, 2.0, 1e-3, "lobato", np.complex128, np, projection=p)
        )
    np.testing.assert_array_equal(built[0].density, built[1].density)
    np.testing.assert_array_equal(built[0].projected_potential, built[1].projected_potential)


def test_nuclei_are_in_the_middle_of_thin_slices():
    z = np.repeat(np.arange(5) * 2.04, 3)
    plan = centred_slices(z, 10.2, 0.3, 0.02)
    front = plan.fronts_angstrom[plan.slice_of_atom]
    np.testing.assert_allclose(front, z, atol=1e-9)
    thickness = np.diff(plan.faces_angstrom)
    # The first slice has what is beyond the entrance, too.
    np.testing.assert_allclose(thickness[plan.slice_of_atom[3:]], 0.02, rtol=0.3)
    assert thickness.max() < 0.8
    assert plan.faces_angstrom[0] == 0
    assert plan.faces_angstrom[-1] == 10.2
    assert np.all(np.diff(plan.fronts_angstrom) > 0)


def test_chosen_slices_of_the_finite_projection_are_near_its_limit(monkeypatch):
    """A probe on a column of gold: first order in the thickness with nuclei on faces, 9 %."""
    gold = ase.build.bulk("Au", "fcc", a=4.078, cubic=True) * (1, 1, 2)
    shown = {
        "energy_ev": 200e3,
        "semiangle_mrad": 20.0,
        "grid_shape": (54, 54),
        "band_fraction": 1.0,
        "positions_angstrom": [(0.0, 0.0), (1.0, 0.4)],
        "projection": "finite",
        "accuracy": None,
        "backend": "cpu",
    }
    chosen = namsa.simulate(gold, **shown)
    monkeypatch.setattr(choice, "_FINITE_SLICE_ANGSTROM", 0.004)
    limit = namsa.simulate(gold, **shown)
    equal = namsa.simulate(gold, **shown, slice_thickness_angstrom=0.32)

    def error(sample):
        return np.linalg.norm(sample.cbed - limit.cbed) / np.linalg.norm(limit.cbed)

    assert error(chosen) < 0.01
    assert error(equal) > 2 * error(chosen)


def test_pixels_and_slices_that_are_chosen_for_heavy_atoms_hold_together():
    """The thinner slices are, the smaller the pixels that they need: finer ones of both at once."""
    platinum = ase.build.bulk("Pt", "fcc", a=3.92, cubic=True) * (1, 1, 2)
    probes = np.array([(0.0, 0.0), (0.3, 0.2), (1.0, 0.9)])  # on a column, and beside it

    def planned(projection):
        shown = {"projection": projection, "reach_mrad": 60.0, "scan": (2, 2), "accuracy": 0.01}
        return plan_simulation(platinum, settings_of(BEAM | shown)).slicing

    slicing = planned("finite")
    compared = trial.Trial(slicing, probes, 60.0)
    finer = compared.whole_patterns(trial.finer_grid(slicing.grid, 2), slicing.finer_plan(3))

    def error(slicing):
        compared = trial.Trial(slicing, probes, 60.0)
        patterns = compared.patterns(slicing.grid, slicing.plan)
        return errors_of(patterns, compared.compared(finer)).error

    assert error(slicing) < 0.01
    assert error(replace(slicing, grid=planned("infinite").grid)) > 0.015
