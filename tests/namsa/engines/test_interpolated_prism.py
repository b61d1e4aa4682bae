"""PRISM with interpolation: exact with all plane waves, near multislice with every second one."""

import ase
import numpy as np
import pytest
from ase.build import bulk

import namsa
from namsa import Detector, InputError, SimulationWarning
from namsa.engines import multislice
from namsa.engines.interpolated_prism import InterpolatedEngine, share_beyond_window
from namsa.physics import optics, specimen
from namsa.physics.grid import Grid

ENERGY = 100e3
ATOMS = bulk("Si", cubic=True) * (5, 4, 2)
SHAPE = (96, 120)
POSITIONS = [[0.3, 0.2], [10.1, 4.4], [21.6, 27.0], [5.0, 13.3]]
SHARED = {
    "energy_ev": ENERGY,
    "semiangle_mrad": 20.0,
    "grid_shape": SHAPE,
    "positions_angstrom": POSITIONS,
    "precision": "float64",
    "accuracy": None,
}


@pytest.fixture(scope="module")
def exact():
    return namsa.simulate(ATOMS, method="multislice", **SHARED)


def test_all_plane_waves_give_multislice_to_rounding():
    ly, lx = ATOMS.cell.lengths()[[1, 0]]
    grid = Grid((48, 60), (ly, lx))
    beam = optics.BeamSettings(ENERGY, 20.0, {"C10": -40.0, "C12": 15.0})
    lens = optics.lens(grid, beam)
    sigma = optics.interaction_constant(ENERGY)
    slices = specimen.build(ATOMS, grid, 2.0, sigma, "lobato", np.complex128, np).slices
    wavelength = optics.wavelength_angstrom(ENERGY)
    fresnel = multislice.propagator(grid, wavelength, slices.thicknesses_angstrom[0])
    plain = multislice.PlainEngine(grid, slices, fresnel[None])
    engine = InterpolatedEngine(grid, plain, fresnel, lens != 0, 1, len(slices.order))
    positions = np.array(POSITIONS)
    np.testing.assert_allclose(
        engine.prepare(lens).patterns(positions),
        plain.prepare(lens).patterns(positions),
        atol=1e-14,
    )


def share_beyond_the_window(interpolation):
    """The share of the probe's intensity that is beyond the window about it."""
    ly, lx = ATOMS.cell.lengths()[[1, 0]]
    lens = optics.lens(Grid(SHAPE, (ly, lx)), optics.BeamSettings(ENERGY, 20.0, {}))
    intensity = np.abs(np.fft.fftshift(np.fft.ifft2(lens))) ** 2
    window = []
    for count in SHAPE:
        half = count // (2 * interpolation)
        window.append(slice(count // 2 - half, count // 2 + half))
    return 1 - intensity[tuple(window)].sum() / intensity.sum()


def test_every_second_plane_wave_gives_patterns_within_the_stated_error(exact):
    half = namsa.simulate(ATOMS, interpolation=2, **SHARED)
    assert half.provenance["interpolation"] == 2
    assert half.provenance["method"] == "prism"
    assert "interpolation" not in exact.provenance
    difference = np.linalg.norm(half.cbed - exact.cbed, axis=(1, 2))
    error = difference / np.linalg.norm(exact.cbed, axis=(1, 2))
    # What the probe has beyond the window is cut off, and what its repetitions have there is added.
    np.testing.assert_allclose(error, np.sqrt(2 * share_beyond_the_window(2)), rtol=0.05)


def test_the_detector_has_the_same_pixels_with_interpolation(exact):
    detector = Detector(pixel_mrad=3.0, max_angle_mrad=30)
    interpolated = namsa.simulate(ATOMS, interpolation=2, detector=detector, **SHARED)
    exact_patterns = namsa.simulate(ATOMS, detector=detector, method="multislice", **SHARED)
    assert interpolated.cbed.shape == exact_patterns.cbed.shape
    np.testing.assert_allclose(
        interpolated.annular(0, 20), exact_patterns.annular(0, 20), rtol=0.02
    )


def test_what_cannot_be_interpolated_is_refused_and_a_wide_probe_warns():
    with pytest.raises(InputError, match="interpolation 7 does not divide the grid of 96×120"):
        namsa.simulate(ATOMS, interpolation=7, **SHARED)
    with pytest.raises(InputError, match="interpolation is 0; give a whole number of 1 to 32"):
        namsa.simulate(ATOMS, interpolation=0, **SHARED)
    with pytest.raises(InputError, match="method is 'multislice'"):
        namsa.simulate(ATOMS, interpolation=2, method="multislice", **SHARED)
    with pytest.raises(InputError, match="waves=True"):
        namsa.simulate(ATOMS, interpolation=2, waves=True, **SHARED)
    empty = ase.Atoms(cell=(27.0, 21.0, 2.0), pbc=True)
    with pytest.warns(SimulationWarning, match="interpolation 4 cuts its exit wave to 5.2 Å"):
        namsa.simulate(empty, interpolation=4, aberrations={"C10": -150.0}, **SHARED)


def test_chosen_pixels_are_multiples_and_the_error_of_the_window_is_stated():
    with pytest.warns(SimulationWarning, match="are wrong by about 21%, those on larger"):
        sample = namsa.simulate(
            ATOMS,
            energy_ev=ENERGY,
            semiangle_mrad=20.0,
            positions_angstrom=POSITIONS[:1],
            accuracy=0.1,
            reach_mrad=30,
            interpolation=3,
        )
    for count in sample.cbed.shape[1:]:
        assert count % 3 == 0
    expected = share_beyond_the_window(3)
    grid = Grid(SHAPE, tuple(ATOMS.cell.lengths()[[1, 0]]))
    beam = optics.BeamSettings(ENERGY, 20.0, {})
    assert share_beyond_window(grid, beam, 3) == pytest.approx(expected, rel=1e-6)
