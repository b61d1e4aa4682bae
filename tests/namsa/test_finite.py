"""Finite projection: against the integral it stands for, the infinite projection, and itself with more slices."""

import ase
import ase.build
import numpy as np
import pytest

import namsa
from namsa import InputError, finite, form_factors, potential, specimen
from namsa.grid import Grid

GRID = Grid((60, 84), (9.0, 10.5))
SIGMA = 1e-9  # so weak that (t − 1)/iσ is the potential itself, band-limited


def atoms_of(symbols, positions, depth=12.0):
    ly, lx = GRID.extent_angstrom
    return ase.Atoms(symbols, positions=positions, cell=[lx, ly, depth], pbc=True)


def potentials(atoms, thickness, projection="finite", table="lobato"):
    """The potential of every slice, V·Å, (n, ny, nx)."""
    slices = specimen.build(atoms, GRID, thickness, SIGMA, table, np.complex128, np, projection=projection).slices
    return np.stack([slices.transmissions[i].imag / SIGMA for i in slices.order])


def heated(n=4, seed=5):
    atoms = ase.build.bulk("Au", cubic=True).repeat((2, 2, n))
    atoms.positions += np.random.default_rng(seed).normal(0, 0.1, atoms.positions.shape)
    return atoms


@pytest.mark.parametrize("table", ["lobato", "kirkland"])
@pytest.mark.parametrize("number", [8, 38, 79])
def test_what_lies_beyond_a_height_is_the_integral_over_kz(number, table):
    """f/2 − ∫ f(√(k² + kz²)) sin(2πkz z)/(πkz) dkz over kz > 0, by the trapezoidal rule."""
    kz = np.linspace(0, 100, 500_001)
    for k in (0.0, 0.4, 2.0):
        whole = form_factors.electron(number, k**2, table)
        f = form_factors.electron(number, k**2 + kz**2, table)
        for z in (0.0, 0.3, 1.5):
            integral = np.trapezoid(f * 2 * z * np.sinc(2 * kz * z), kz)
            assert form_factors.electron_beyond(number, k**2, z, table) == pytest.approx(
                whole / 2 - integral, abs=2e-5 * whole
            )


@pytest.mark.parametrize("table", ["lobato", "kirkland"])
@pytest.mark.parametrize("thickness", [0.7, 2.0, 5.0])
def test_slices_sum_to_the_infinite_projection(thickness, table):
    """Also of atoms whose potential reaches out of the cell, at its faces and beyond."""
    atoms = atoms_of("SrTiOAu", [[1, 2, 0.0], [4.4, 5.5, 11.95], [9.9, 0.1, 4.1], [5.0, 8.0, -0.4]])
    slices = potentials(atoms, thickness, table=table)
    whole = potentials(atoms, thickness, "infinite", table)
    np.testing.assert_allclose(slices.sum(axis=0), whole.sum(axis=0), atol=1e-6 * whole.max())
    assert np.abs(slices - whole).max() > 0.01 * whole.max()


def test_one_slice_is_the_infinite_projection():
    atoms = atoms_of("SrO", [[1, 2, 3.0], [4.4, 5.5, 11.95]])
    np.testing.assert_allclose(potentials(atoms, 12.0), potentials(atoms, 12.0, "infinite"), atol=1e-5)


def test_an_atom_on_a_face_is_shared_equally_and_one_in_the_middle_symmetrically():
    on_face, inside = (potentials(atoms_of("Sr", [[3, 4, z]]), 1.5) for z in (6.0, 5.25))
    np.testing.assert_allclose(on_face, on_face[::-1], atol=1e-5)
    np.testing.assert_allclose(inside[:7], inside[:7][::-1], atol=0.2)  # remainders go to the last slices
    peak = inside.max(axis=(1, 2))
    assert peak.argmax() == 3
    assert peak[3] > 10 * peak[2] > 10 * peak[1]


def test_an_atom_moved_by_a_slice_moves_its_slices():
    here, there = (potentials(atoms_of("Ti", [[3, 4, z]]), 1.0) for z in (5.3, 6.3))
    np.testing.assert_allclose(there[1:], here[:-1], atol=1e-5)


def test_crystals_keep_their_heights_and_repeat_their_slices():
    gold = ase.build.bulk("Au", cubic=True).repeat((1, 1, 8))
    listed = specimen.atom_list(gold)
    planes = finite.on_planes(listed, 32.64, 320)
    np.testing.assert_allclose(planes.z, listed.z, atol=1e-6)
    slices = specimen.build(gold, GRID, 2.04, SIGMA, "lobato", np.complex128, np, projection="finite").slices
    assert len(slices.order) == 16
    assert len(slices.transmissions) < 8  # the layers near the faces and two more


def test_heated_atoms_are_shared_by_planes_with_their_weight_and_height_kept():
    listed = specimen.atom_list(heated())
    depth = 4 * 4.08
    planes = finite.on_planes(listed, depth, 40)
    assert len(np.unique(planes.z)) <= 41
    assert planes.occupancies.sum() == pytest.approx(len(listed.z))
    n = len(listed.z)
    height = planes.occupancies[:n] * planes.z[:n] + planes.occupancies[n:] * planes.z[n:]
    np.testing.assert_allclose(height, listed.z % depth, atol=1e-6)


def test_planes_converge_to_exact_heights(monkeypatch):
    """The error falls with the square of the planes' distance, and is far below what finite projection changes."""
    listed = specimen.atom_list(heated(16))
    arguments = (GRID, 16 * 4.08, 32, 1e-3, "lobato", np.complex128, np)

    def transmissions(spacing):
        monkeypatch.setattr(finite, "PLANE_ANGSTROM", spacing)
        return np.stack(finite.build(listed, *arguments).transmissions)

    exact = transmissions(1e-4)
    infinite = specimen.build(heated(16), GRID, 2.04, 1e-3, "lobato", np.complex128, np).slices
    change = np.linalg.norm(np.stack(infinite.transmissions) - exact)
    coarse, shipped = (np.linalg.norm(transmissions(spacing) - exact) for spacing in (0.4, 0.2))
    assert shipped < 0.5 * coarse
    assert shipped < 0.3 * change


def test_thinner_slices_converge():
    z = 2.9 * np.arange(8) + np.random.default_rng(4).uniform(0.1, 1.4, 8)
    atoms = atoms_of("Si8", np.stack([np.full(8, 5.0), np.full(8, 4.0), z], axis=1), depth=24.0)

    def pattern(thickness):
        return namsa.simulate(
            atoms,
            energy_ev=200e3,
            semiangle_mrad=20.0,
            grid_shape=(120, 168),
            positions_angstrom=[[4.1, 5.2]],
            slice_thickness_angstrom=thickness,
            projection="finite",
            precision="float64",
            backend="cpu",
        ).cbed

    finest = pattern(0.15)
    errors = [np.linalg.norm(pattern(t) - finest) / np.linalg.norm(finest) for t in (2.0, 1.0, 0.5)]
    assert errors[2] < 0.6 * errors[1]
    assert errors[1] < 0.8 * errors[0] < 0.02


def test_projection_changes_neither_density_nor_projected_potential():
    atoms = heated(2)
    built = [
        specimen.build(atoms, GRID, 2.0, 1e-3, "lobato", np.complex128, np, projection=p)
        for p in ("infinite", "finite")
    ]
    np.testing.assert_array_equal(built[0].density, built[1].density)
    np.testing.assert_array_equal(built[0].projected_potential, built[1].projected_potential)


def test_another_projection_is_refused():
    with pytest.raises(InputError, match="'finate'"):
        namsa.simulate(
            atoms_of("O", [[1, 1, 1]]),
            energy_ev=200e3,
            semiangle_mrad=20.0,
            grid_shape=GRID.shape,
            positions_angstrom=[[0, 0]],
            projection="finate",
        )


def test_the_mean_inner_potential_is_shared_by_the_whole():
    """∫v over the plane is (h²/2πm₀e) f(0), whichever slices it is spread over."""
    slices = potentials(atoms_of("Si", [[3, 4, 5.9]]), 1.0)
    area = np.prod(GRID.extent_angstrom)
    forward = potential.POTENTIAL_CONSTANT * form_factors.electron(14, 0.0)
    assert slices.mean(axis=(1, 2)).sum() * area == pytest.approx(forward, rel=1e-6)
