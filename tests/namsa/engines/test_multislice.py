"""Propagation against physics: signs, conservation, translation, convergence, tilts; never on a
square grid.
"""

import ase
import numpy as np
import pytest

import namsa
from namsa import InputError
from namsa.engines import multislice
from namsa.physics import optics, potential, specimen
from namsa.physics.grid import Grid

ENERGY = 200e3
WAVELENGTH = optics.wavelength_angstrom(ENERGY)
GRID = Grid((96, 120), (14.4, 16.2))
MICROSCOPE = {
    "energy_ev": ENERGY,
    "semiangle_mrad": 20.0,
    "grid_shape": GRID.shape,
    "precision": "float64",
}


def gold_column(n_atoms=10, spacing=2.0, yx=(5.2, 7.7)):
    z = spacing * (np.arange(n_atoms) + 0.25)
    positions = np.stack([np.full(n_atoms, yx[1]), np.full(n_atoms, yx[0]), z], axis=1)
    ly, lx = GRID.extent_angstrom
    return ase.Atoms(
        "Au" * n_atoms, positions=positions, cell=[lx, ly, spacing * n_atoms], pbc=True
    )


def vacuum(n_slices, thickness):
    return potential.Slices.equally_thick(
        [np.ones(GRID.shape)], np.zeros(n_slices, dtype=int), thickness
    )


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
    """A column of positive potential channels a probe onto itself: it pins the sign of t against
    that of P.
    """
    atoms = gold_column()
    lens = optics.lens(GRID, optics.BeamSettings(ENERGY, 10.0, {}))
    sigma = optics.interaction_constant(ENERGY)
    waves = optics.probes(lens, GRID, np.array([[5.2, 7.7]]))
    slices = specimen.build(atoms, GRID, 2.0, sigma, "lobato", np.complex128, np).slices
    three_slices = potential.Slices.equally_thick(
        slices.transmissions, slices.order[:3], slices.thicknesses_angstrom[0]
    )
    fresnel = multislice.propagator(GRID, WAVELENGTH, slices.thicknesses_angstrom[0])
    assert peak(multislice.exit_waves(waves.copy(), three_slices, fresnel)) > 1.3 * peak(waves)


def test_only_the_band_limit_loses_electrons():
    """t is a pure phase: a weak specimen keeps the beam; a strong one loses what scatters past the
    band limit.
    """
    probe = {"positions_angstrom": [[0.3, 1.0]]}
    weak = namsa.simulate(gold_column(1), **MICROSCOPE, **probe).cbed.sum()
    strong = namsa.simulate(
        gold_column(10), **MICROSCOPE, positions_angstrom=[[5.2, 7.7]]
    ).cbed.sum()
    assert 1 - 1e-4 < weak <= 1 + 1e-12
    assert 0.5 < strong < 0.999


@pytest.mark.filterwarnings("ignore:.* positions are negative:namsa.SimulationWarning")
def test_moving_specimen_and_probe_together_changes_nothing():
    shift = GRID.sampling_angstrom * np.array(
        [22, -45]
    )  # whole pixels: exp(iσv) is not band-limited between them
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
    a = namsa.simulate(
        atoms, **MICROSCOPE, positions_angstrom=[[4.0, 8.5]], aberrations=astigmatism
    )
    world = MICROSCOPE | {"grid_shape": GRID.shape[::-1]}
    b = namsa.simulate(swapped, **world, positions_angstrom=[[8.5, 4.0]], aberrations=mirrored)
    # Pixels differ along y and x, and with them the aperture's edge by direction; transposition
    # swaps both.
    np.testing.assert_allclose(b.cbed[0].T, a.cbed[0], atol=1e-12)
    np.testing.assert_allclose(b.density.T, a.density, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:atom .* Å apart:namsa.SimulationWarning")
def test_thinner_slices_converge():
    """Atoms at irregular heights: the error falls at least in proportion to the slices."""
    atoms = gold_column(12)
    atoms.positions[:, 2] = np.random.default_rng(4).uniform(0, 24, 12)

    def pattern(thickness):
        arguments = MICROSCOPE | {
            "positions_angstrom": [[5.0, 7.0]],
            "slice_thickness_angstrom": thickness,
        }
        return namsa.simulate(atoms, **arguments).cbed

    finest = pattern(0.125)
    errors = []
    for t in (4.0, 2.0, 1.0, 0.5):
        errors.append(np.linalg.norm(pattern(t) - finest) / np.linalg.norm(finest))
    assert errors[3] < errors[2] < errors[1] < errors[0]
    assert errors[3] < errors[0] / 6


# ---- Tilts

PIXEL_MRAD = np.array([WAVELENGTH / extent * 1e3 for extent in GRID.extent_angstrom])
BEAM = {"energy_ev": ENERGY, "semiangle_mrad": 12.0, "positions_angstrom": [[5.3, 6.2], [7.6, 9.4]]}
ARGUMENTS = BEAM | {"grid_shape": GRID.shape, "precision": "float64", "backend": "cpu"}


def columns(n=20, spacing=2.0, tilt_mrad=(0.0, 0.0)):
    """A column of silicon and one of oxygen, sheared by the tilt: y += z tan θy, x += z tan θx."""
    z = spacing * np.arange(n)
    tan_y, tan_x = np.tan(np.array(tilt_mrad) * 1e-3)
    sheared = []
    for y, x in ((8.0, 9.5), (5.0, 6.0)):
        sheared.append(np.stack([x + z * tan_x, y + z * tan_y, z], axis=1))
    ly, lx = GRID.extent_angstrom
    return ase.Atoms(
        f"Si{n}O{n}", positions=np.concatenate(sheared), cell=[lx, ly, spacing * n], pbc=True
    )


def lone_atom():
    """One hydrogen atom, far off and thin."""
    ly, lx = GRID.extent_angstrom
    return ase.Atoms("H", positions=[[0.0, 0.0, 1.0]], cell=[lx, ly, 2.0], pbc=True)


def difference(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def test_beam_tilt_shifts_the_pattern_in_vacuum():
    pixels = np.array([5, -7])
    aberrations = {"C10": -200.0, "C12": 50.0, "phi12": 0.4}
    upright = optics.lens(GRID, optics.BeamSettings(ENERGY, 12.0, aberrations))
    tilted = optics.lens(
        GRID, optics.BeamSettings(ENERGY, 12.0, aberrations, tuple(pixels * PIXEL_MRAD))
    )
    np.testing.assert_allclose(tilted, np.roll(upright, pixels, axis=(0, 1)), atol=1e-12)

    tilt = np.array([6.3, -9.1])  # between pixels
    pattern = namsa.simulate(lone_atom(), **ARGUMENTS, beam_tilt_mrad=tuple(tilt)).cbed[0]
    rows, columns_ = (np.arange(n) - n // 2 for n in GRID.shape)
    centre = (
        np.array([(pattern.sum(axis=1) * rows).sum(), (pattern.sum(axis=0) * columns_).sum()])
        / pattern.sum()
    )
    np.testing.assert_allclose(
        centre * PIXEL_MRAD, tilt, atol=0.06
    )  # of a soft-edged disc 15 pixels wide


def test_a_tilted_aperture_must_fit_the_band_limit():
    limit = GRID.band_limit * WAVELENGTH * 1e3
    optics.lens(GRID, optics.BeamSettings(ENERGY, 20.0, {}, (0.0, limit - 23)))
    with pytest.raises(
        InputError, match=r"semiangle_mrad 20 with a beam tilt of .* mrad does not fit"
    ):
        optics.lens(GRID, optics.BeamSettings(ENERGY, 20.0, {}, (0.0, limit - 19)))


def test_specimen_tilt_shears_the_atoms():
    """Atoms at the slices' faces, where the propagator's shear and the atoms' are one and the same.

    What is left is exp(iσv), which is not band-limited between pixels: a quarter with pixels half
    as wide.
    """
    tilt = (8.0, -15.0)

    def errors(refine):
        arguments = ARGUMENTS | {
            "grid_shape": tuple(refine * n for n in GRID.shape),
            "slice_thickness_angstrom": 2.0,
        }
        by_atoms = namsa.simulate(columns(tilt_mrad=tilt), **arguments).cbed
        tilts = (tilt, (0.0, 0.0), (-8.0, 15.0), (-15.0, 8.0))
        return [
            difference(namsa.simulate(columns(), **arguments, specimen_tilt_mrad=t).cbed, by_atoms)
            for t in tilts
        ]

    right, *wrong = errors(1)
    assert right < 1.5e-3
    assert min(wrong) > 0.2
    assert errors(2)[0] < 0.4 * right


def test_tilting_the_specimen_is_tilting_the_beam_the_other_way():
    """But for the band limit, which stays on the axis."""
    pixels = np.array([3, -4])
    tilt_mrad = np.arctan(pixels * PIXEL_MRAD * 1e-3) * 1e3  # tan θ = λk
    specimen = namsa.simulate(columns(), **ARGUMENTS, specimen_tilt_mrad=tuple(-tilt_mrad)).cbed
    beam = namsa.simulate(columns(), **ARGUMENTS, beam_tilt_mrad=tuple(pixels * PIXEL_MRAD)).cbed
    upright = namsa.simulate(columns(), **ARGUMENTS).cbed
    assert difference(np.roll(beam, -pixels, axis=(1, 2)), specimen) < 6e-3
    assert difference(upright, specimen) > 0.15


def test_the_exact_propagator_has_the_phase_of_plane_waves_of_all_angles():
    """k and kz lie on the Ewald sphere, and no energy is lost inside the band limit."""
    grid = Grid((40, 54), (3.2, 3.6))
    wavelength = optics.wavelength_angstrom(30e3)
    inside = np.sqrt(grid.squared_frequency()) < 0.95 * grid.band_limit
    exact = multislice.propagator(grid, wavelength, 7.0, "exact")[inside]
    np.testing.assert_allclose(np.abs(exact), 1, atol=1e-12)
    sine = wavelength * np.sqrt(grid.squared_frequency()[inside])
    cosine = np.cos(np.arcsin(sine))
    np.testing.assert_allclose(exact, np.exp(2j * np.pi * 7.0 / wavelength * (cosine - 1)))
    paraxial = multislice.propagator(grid, wavelength, 7.0)[inside]
    angle = sine.max()
    error = optics.paraxial_phase_error(wavelength, 7.0, 1e3 * angle)
    assert error == pytest.approx(np.pi * 7.0 * angle**4 / (4 * wavelength), rel=0.05)
    farthest = np.argmax(sine)
    assert np.angle(paraxial[farthest] / exact[farthest]) == pytest.approx(error, abs=1e-9)


def test_two_exact_steps_are_one_and_waves_that_cannot_propagate_decay():
    grid = Grid((60, 64), (1.0, 1.1), 1.0)
    wavelength = optics.wavelength_angstrom(10e3)
    one = multislice.propagator(grid, wavelength, 0.3, "exact")
    two = multislice.propagator(grid, wavelength, 0.6, "exact")
    inside = np.sqrt(grid.squared_frequency()) < 0.95 * grid.band_limit
    np.testing.assert_allclose((one**2)[inside], two[inside], atol=1e-12)
    beyond = inside & (grid.squared_frequency() > 1.01 / wavelength**2)
    assert beyond.any()
    assert np.abs(two[beyond]).max() < 1


@pytest.mark.filterwarnings("ignore:the probe spreads")
@pytest.mark.parametrize("method", ["multislice", "prism"])
def test_all_methods_take_the_exact_propagator_and_the_provenance_says_so(method):
    arguments = MICROSCOPE | {"energy_ev": 30e3, "method": method, "grid_shape": (60, 72)}
    atoms = gold_column()
    atoms.set_cell([7.2, 6.6, 20.0])
    positions = [[2.1, 3.3], [4.0, 0.5]]
    exact = namsa.simulate(atoms, **arguments, positions_angstrom=positions, propagator="exact")
    with pytest.warns(namsa.SimulationWarning, match="paraxial propagator is wrong by 0.* 'exact'"):
        paraxial = namsa.simulate(
            ase.Atoms(atoms, cell=[7.2, 6.6, 200.0]), **arguments, positions_angstrom=positions
        )
    paraxial = namsa.simulate(atoms, **arguments, positions_angstrom=positions)
    assert exact.provenance["propagator"] == "exact"
    assert "propagator" not in paraxial.provenance
    scattering = namsa.scatter(
        atoms,
        energy_ev=30e3,
        max_angle_mrad=20,
        grid_shape=(60, 72),
        precision="float64",
        propagator="exact",
    )
    of_scattering = scattering.simulate(semiangle_mrad=20, positions_angstrom=positions)
    np.testing.assert_allclose(of_scattering.cbed, exact.cbed, atol=1e-12)
    assert of_scattering.provenance["propagator"] == "exact"
    assert np.linalg.norm(paraxial.cbed - exact.cbed) > 5e-4 * np.linalg.norm(exact.cbed)


def test_an_unknown_propagator_is_refused():
    with pytest.raises(InputError, match="propagator is 'fast'; it must be 'paraxial' or 'exact'"):
        namsa.simulate(gold_column(), **MICROSCOPE, positions_angstrom=[[0, 0]], propagator="fast")
