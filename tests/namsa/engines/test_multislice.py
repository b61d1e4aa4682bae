"""Propagation against physics: signs, conservation, translation, convergence; never on a square grid."""

import ase
import numpy as np
import pytest

import namsa
from namsa.engines import multislice
from namsa.physics import optics, potential, specimen
from namsa.physics.grid import Grid

ENERGY = 200e3
WAVELENGTH = optics.wavelength_angstrom(ENERGY)
GRID = Grid((96, 120), (14.4, 16.2))
MICROSCOPE = {"energy_ev": ENERGY, "semiangle_mrad": 20.0, "grid_shape": GRID.shape, "precision": "float64"}


def gold_column(n_atoms=10, spacing=2.0, yx=(5.2, 7.7)):
    z = spacing * (np.arange(n_atoms) + 0.25)
    positions = np.stack([np.full(n_atoms, yx[1]), np.full(n_atoms, yx[0]), z], axis=1)
    ly, lx = GRID.extent_angstrom
    return ase.Atoms("Au" * n_atoms, positions=positions, cell=[lx, ly, spacing * n_atoms], pbc=True)


def vacuum(n_slices, thickness):
    return potential.Slices.equally_thick([np.ones(GRID.shape)], np.zeros(n_slices, dtype=int), thickness)


def peak(waves):
    return np.abs(np.fft.ifft2(waves)).max() ** 2


def test_an_underfocused_probe_comes_to_focus_below_the_entrance():
    """Underfocus weakens the lens: the crossover moves down the beam, and C10 = −defocus."""
    depth = 60.0
    sharp = peak(optics.lens(GRID, optics.BeamSettings(ENERGY, 20.0, {})))
    fresnel = multislice.propagator(GRID, WAVELENGTH, depth / 6)
    peaks = {}
    for c10 in (-depth, 0.0, depth):
        waves = optics.lens(GRID, optics.BeamSettings(ENERGY, 20.0, {"C10": c10}))[None].copy()
        peaks[c10] = peak(multislice.exit_waves(waves, vacuum(6, depth / 6), fresnel))
    assert peaks[-depth] == pytest.approx(sharp, rel=1e-9)
    assert peaks[0.0] < 0.8 * sharp
    assert peaks[depth] < 0.8 * peaks[0.0]


def test_atoms_attract_electrons():
    """A column of positive potential channels a probe onto itself: it pins the sign of t against that of P."""
    atoms = gold_column()
    lens = optics.lens(GRID, optics.BeamSettings(ENERGY, 10.0, {}))
    sigma = optics.interaction_constant(ENERGY)
    waves = optics.probes(lens, GRID, np.array([[5.2, 7.7]]))
    slices = specimen.build(atoms, GRID, 2.0, sigma, "lobato", np.complex128, np).slices
    first = potential.Slices.equally_thick(slices.transmissions, slices.order[:3], slices.thicknesses_angstrom[0])
    fresnel = multislice.propagator(GRID, WAVELENGTH, slices.thicknesses_angstrom[0])
    assert peak(multislice.exit_waves(waves.copy(), first, fresnel)) > 1.3 * peak(waves)


def test_only_the_band_limit_loses_electrons():
    """t is a pure phase: a weak specimen keeps the beam; a strong one loses what scatters past the band limit."""
    probe = {"positions_angstrom": [[0.3, 1.0]]}
    weak = namsa.simulate(gold_column(1), **MICROSCOPE, **probe).cbed.sum()
    strong = namsa.simulate(gold_column(10), **MICROSCOPE, positions_angstrom=[[5.2, 7.7]]).cbed.sum()
    assert 1 - 1e-4 < weak <= 1 + 1e-12
    assert 0.5 < strong < 0.999


def test_moving_specimen_and_probe_together_changes_nothing():
    shift = GRID.sampling_angstrom * np.array([22, -45])  # whole pixels: exp(iσv) is not band-limited between them
    atoms = gold_column()
    moved = atoms.copy()
    moved.positions[:, :2] += shift[::-1]
    at = np.array([[5.0, 7.0], [0.0, 0.0]])
    still = namsa.simulate(atoms, **MICROSCOPE, positions_angstrom=at)
    together = namsa.simulate(moved, **MICROSCOPE, positions_angstrom=at + shift)
    np.testing.assert_allclose(together.cbed, still.cbed, atol=1e-10 * still.cbed.max())


def test_transposing_the_world_transposes_the_patterns():
    """A swapped axis anywhere would show on this non-square grid."""
    atoms = gold_column()
    swapped = atoms.copy()
    swapped.positions = atoms.positions[:, [1, 0, 2]]
    swapped.cell = np.diag(atoms.cell.lengths()[[1, 0, 2]])
    astigmatism = {"C12": 40.0, "phi12": 0.3}
    mirrored = {"C12": 40.0, "phi12": np.pi / 2 - 0.3}  # φ runs from +x towards +y
    a = namsa.simulate(atoms, **MICROSCOPE, positions_angstrom=[[4.0, 8.5]], aberrations=astigmatism)
    world = MICROSCOPE | {"grid_shape": GRID.shape[::-1]}
    b = namsa.simulate(swapped, **world, positions_angstrom=[[8.5, 4.0]], aberrations=mirrored)
    # Pixels differ along y and x, and with them the aperture's edge by direction; transposition swaps both.
    np.testing.assert_allclose(b.cbed[0].T, a.cbed[0], atol=1e-12)
    np.testing.assert_allclose(b.density.T, a.density, rtol=1e-9, atol=1e-9)


def test_positions_outside_the_cell_wrap():
    ly, lx = GRID.extent_angstrom
    inside = namsa.simulate(gold_column(3), **MICROSCOPE, positions_angstrom=[[4.0, 8.5]])
    outside = namsa.simulate(gold_column(3), **MICROSCOPE, positions_angstrom=[[4.0 - ly, 8.5 + 2 * lx]])
    np.testing.assert_allclose(outside.cbed, inside.cbed, atol=1e-14)


def test_thinner_slices_converge():
    """Atoms at irregular heights: the error falls at least in proportion to the slices."""
    atoms = gold_column(12)
    atoms.positions[:, 2] = np.random.default_rng(4).uniform(0, 24, 12)

    def pattern(thickness):
        arguments = MICROSCOPE | {"positions_angstrom": [[5.0, 7.0]], "slice_thickness_angstrom": thickness}
        return namsa.simulate(atoms, **arguments).cbed

    finest = pattern(0.125)
    errors = [np.linalg.norm(pattern(t) - finest) / np.linalg.norm(finest) for t in (4.0, 2.0, 1.0, 0.5)]
    assert errors[3] < errors[2] < errors[1] < errors[0]
    assert errors[3] < errors[0] / 6
