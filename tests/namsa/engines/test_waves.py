"""Exit waves and the images that a lens forms of them: free space, tilts, unitarity, patterns,
reciprocity of STEM and TEM.
"""

import ase
import numpy as np
import pytest
from ase.build import bulk
from molecule import CELL, molecule

import namsa
from namsa import FrozenPhonons, InputError, SimulationWarning
from namsa.physics import optics
from namsa.physics.grid import Grid
from namsa.physics.image_formation import ImagingLens, form_images
from namsa.physics.optics import wavelength_angstrom

ENERGY = 100e3
WAVELENGTH = wavelength_angstrom(ENERGY)
SHAPE = (60, 72)
EMPTY = ase.Atoms(cell=CELL, pbc=True)


def simulate(atoms=EMPTY, semiangle_mrad=0.0, positions=((0.0, 0.0),), **settings):
    return namsa.simulate(
        atoms,
        energy_ev=ENERGY,
        semiangle_mrad=semiangle_mrad,
        positions_angstrom=positions,
        grid_shape=SHAPE,
        precision="float64",
        waves=True,
        **settings,
    )


def test_a_plane_wave_stays_one_and_its_image_is_even():
    sample = simulate()
    assert sample.waves.shape == (1, 1, *SHAPE)
    np.testing.assert_allclose(np.abs(sample.waves), 1 / np.sqrt(np.prod(SHAPE)))
    np.testing.assert_allclose(sample.image({"C10": -300, "C30": 1e7}), 1)


def test_a_tilted_plane_wave_has_the_phase_ramp_of_its_direction():
    pitch_mrad = 1e3 * WAVELENGTH / np.array(CELL)
    sample = simulate(beam_tilt_mrad=(3 * pitch_mrad[1], -2 * pitch_mrad[0]))
    wave = sample.waves[0, 0]
    y, x = np.meshgrid(
        np.arange(SHAPE[0]) / SHAPE[0], np.arange(SHAPE[1]) / SHAPE[1], indexing="ij"
    )
    flat = wave * np.exp(-2j * np.pi * (3 * y - 2 * x))
    np.testing.assert_allclose(flat, flat[0, 0], atol=1e-12)


def test_a_probe_in_vacuum_propagates_as_in_free_space():
    """A depth of vacuum adds to the defocus: C10 grows by the thickness."""
    focused = simulate(semiangle_mrad=15, aberrations={"C10": -CELL[2]}, positions=[(3.0, 4.0)])
    expected = simulate(ase.Atoms(cell=(*CELL[:2], 1.0), pbc=True), 15, [(3.0, 4.0)])
    back = np.fft.fft2(expected.waves[0, 0])
    ky = np.fft.fftfreq(SHAPE[0], CELL[1] / SHAPE[0])[:, None]
    kx = np.fft.fftfreq(SHAPE[1], CELL[0] / SHAPE[1])
    back *= np.exp(1j * np.pi * WAVELENGTH * 1.0 * (ky**2 + kx**2))
    np.testing.assert_allclose(focused.waves[0, 0], np.fft.ifft2(back), atol=1e-12)


def test_states_add_up_to_the_patterns_and_lose_nothing_within_the_band():
    phonons = FrozenPhonons(rms_angstrom=0.1, configurations=2)
    sample = simulate(
        molecule(),
        10.0,
        [(1.0, 2.0), (4.0, 3.3), (0.2, 6.6)],
        frozen_phonons=phonons,
        focal_spread_angstrom=30.0,
        focal_points=3,
    )
    assert sample.waves.shape == (6, 3, *SHAPE)
    spectra = np.fft.fftshift(np.fft.fft2(sample.waves, norm="ortho"), axes=(-2, -1))
    np.testing.assert_allclose((np.abs(spectra) ** 2).sum(axis=0), sample.cbed, atol=1e-12)
    norms = (np.abs(sample.waves) ** 2).sum(axis=(0, 2, 3))
    assert np.all((norms > 0.99) & (norms <= 1 + 1e-12))


def test_a_wave_does_not_depend_on_the_detector():
    positions = [(1.0, 2.0), (4.0, 3.3)]
    detector = namsa.Detector(pixel_mrad=6.0, max_angle_mrad=24)
    slices = {"slice_thickness_angstrom": 1.0}
    recorded = simulate(molecule(), 10.0, positions, detector=detector, **slices)
    on_grid = simulate(molecule(), 10.0, positions, **slices)
    np.testing.assert_array_equal(recorded.waves, on_grid.waves)


def test_defocus_of_the_image_is_propagation_of_the_wave():
    longer = molecule()
    longer.set_cell((*CELL[:2], CELL[2] + 30.0))
    further = simulate(longer, slice_thickness_angstrom=1.0)
    near = simulate(molecule(), slice_thickness_angstrom=1.0)
    difference = np.abs(near.image({"C10": 30.0}) - further.image()).max()
    # each slice has the edge of the band limit once more
    assert difference < 0.01 * np.abs(near.image({"C10": -30.0}) - further.image()).max()


def test_a_stem_image_of_an_axial_point_is_a_tem_image_of_the_specimen_turned_over():
    """Reciprocity (Cowley 1969): the lens before the specimen images as that behind it."""
    aberrations = {"C10": -60.0, "C30": 2e5, "C12": 25.0, "phi12": 0.4}
    y, x = np.arange(SHAPE[0])[::6], np.arange(SHAPE[1])[::6]
    steps = np.array([CELL[1] / SHAPE[0], CELL[0] / SHAPE[1]])
    positions = np.stack(np.meshgrid(y, x, indexing="ij"), -1).reshape(-1, 2) * steps
    slices = {"slice_thickness_angstrom": 1.0}
    stem = simulate(molecule(), 25.0, positions, aberrations=aberrations, **slices)
    axial = np.fft.fft2(stem.waves[0], norm="ortho")[:, 0, 0]
    turned = molecule()
    turned.positions[:, 2] = CELL[2] - turned.positions[:, 2]
    tem = simulate(turned, **slices)
    # a slice acts at its front: behind the last one, the wave has passed one thickness of vacuum
    lens = aberrations | {"C10": aberrations["C10"] - 1.0}
    grid = Grid(SHAPE, (CELL[1], CELL[0]))
    spectrum = np.fft.fft2(tem.waves[0, 0])
    amplitude = optics.lens(grid, optics.BeamSettings(ENERGY, 25.0, lens))
    image = np.abs(np.fft.ifft2(spectrum * amplitude)) ** 2 * np.prod(SHAPE)
    np.testing.assert_allclose(np.abs(axial) ** 2, image[np.ix_(y, x)].ravel(), rtol=1e-6)


def test_a_weak_phase_object_has_the_contrast_of_the_transfer_function():
    """Linear imaging: the image of phase φ(k) is 2 sin χ(k) φ(k), times both envelopes."""
    grid = Grid((48, 60), (24.0, 30.0))
    y = np.arange(48)[:, None] / 48
    x = np.arange(60) / 60
    phase = 1e-4 * np.cos(2 * np.pi * (5 * y + 3 * x))
    k = np.hypot(5 / 24.0, 3 / 30.0)
    wave = np.exp(1j * phase)[None, None] / np.sqrt(phase.size)
    spread, angle = 40.0, 0.4e-3
    lens = ImagingLens(ENERGY, {"C10": -200.0, "C30": 1e6}, 12.0, spread, 1e3 * angle)
    contrast = np.fft.fft2(form_images(wave, grid, lens)[0])[5, 3] / phase.size
    chi = np.pi * WAVELENGTH * k**2 * (-200.0 + 0.5 * 1e6 * (WAVELENGTH * k) ** 2)
    gradient = 2 * np.pi * k * (-200.0 * WAVELENGTH + 1e6 * WAVELENGTH**3 * k**2)
    focal = np.exp(-0.5 * (np.pi * WAVELENGTH * spread * k**2) ** 2)
    angular = np.exp(-0.5 * (angle / WAVELENGTH * gradient) ** 2)
    expected = 0.5e-4 * 2 * np.sin(chi) * focal * angular
    assert contrast.real == pytest.approx(expected, rel=0.01)
    assert abs(contrast.imag) < 0.01 * abs(contrast.real)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "prism"}, "waves=True propagates every probe"),
        ({"engine": "fused"}, "waves=True takes the plain engine"),
        ({"sink": object()}, "waves=True keeps the waves in memory"),
    ],
)
def test_what_has_no_waves_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        simulate(bulk("Si", cubic=True), 10.0, **settings)


def test_images_need_waves_and_files_have_none(tmp_path):
    sample = simulate()
    with pytest.warns(SimulationWarning, match="no room for the exit waves"):
        sample.save(tmp_path / "a.h5")
    read = namsa.read_sample(tmp_path / "a.h5")
    with pytest.raises(InputError, match="waves=True"):
        read.image()
    with pytest.raises(InputError, match="aperture_mrad is -1"):
        sample.image(aperture_mrad=-1)
    with pytest.raises(InputError, match="needs more than 64 quadrature points"):
        sample.image({"C30": 1e9}, illumination_mrad=1)
