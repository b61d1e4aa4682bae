"""Detectors, real and virtual: what lands on their pixels, counts of electrons, images against
physics; targets.
"""

import ase
import numpy as np
import pytest
from ase.build import bulk

from namsa import Detector, FrozenPhonons, InputError, simulate
from namsa.base.pixels import PixelGrid, pattern_grid, scan_grid
from namsa.config.instrument import Scan
from namsa.physics import density_target as target
from namsa.physics import detector, virtual_detectors
from namsa.physics.grid import Grid
from namsa.physics.optics import BeamSettings, interaction_constant, lens, wavelength_angstrom
from namsa.setup import scan

GRID = Grid((120, 96), (20.0, 18.0))
WAVELENGTH = 0.0250793


def test_binning_conserves_what_lands_on_the_detector():
    rng = np.random.default_rng(0)
    patterns = rng.random((2, *GRID.shape))
    wy, wx = detector.bin_matrices(GRID, WAVELENGTH, Detector(shape=(12, 16), pixel_mrad=4.0))
    collected = detector.bin_patterns(patterns, (wy, wx))
    assert collected.shape == (2, 12, 16)
    assert wy.sum(axis=0).max() == pytest.approx(1)
    # 4 mrad is 4/(λ/L) reciprocal pixels: every detector pixel collects exactly that many along an
    # axis.
    np.testing.assert_allclose(wy.sum(axis=1), 4.0 / (WAVELENGTH / 20.0 * 1e3))
    np.testing.assert_allclose(wx.sum(axis=0), 4.0 / (WAVELENGTH / 18.0 * 1e3))


def test_a_beam_on_the_axis_lands_in_the_middle():
    pattern = np.zeros((1, *GRID.shape))
    pattern[0, 60, 48] = 1  # the zero frequency
    cameras = (Detector(shape=shape, pixel_mrad=3.0) for shape in ((5, 7), (4, 6)))
    odd, even = (
        detector.bin_patterns(pattern, detector.bin_matrices(GRID, WAVELENGTH, camera))[0]
        for camera in cameras
    )
    assert odd[2, 3] == pytest.approx(1)
    np.testing.assert_allclose(even[1:3, 2:4], 0.25)


def test_target_is_band_limited_keeps_the_electrons_and_agrees_on_and_off_the_grid():
    rng = np.random.default_rng(1)
    density = rng.random(GRID.shape) * 30
    coefficients = target.band_limited(density, GRID, 1.2)
    smooth = target.on_grid(coefficients)
    assert smooth.mean() == pytest.approx(density.mean())
    spectrum = np.abs(np.fft.fft2(smooth))
    assert spectrum[np.sqrt(GRID.squared_frequency()) > 1.2].max() < 1e-9 * spectrum.max()
    dy, dx = GRID.sampling_angstrom
    y = dy * np.array([3.0, 10.0, 119.0])
    x = dx * np.array([0.0, 50.0])
    np.testing.assert_allclose(
        target.at_positions(coefficients, GRID, y, x), smooth[np.ix_([3, 10, 119], [0, 50])]
    )


def test_the_origin_of_a_scan_may_be_drawn():
    drawn = Scan(shape=(3, 2), step_angstrom=(0.5, 0.4), origin_angstrom="random")
    first, again = (
        scan.positions(drawn, (8.0, 10.0), np.random.default_rng(5))[0] for _ in range(2)
    )
    np.testing.assert_array_equal(first, again)
    assert first[0] != 0


def disk(radius_mrad):
    """A pattern on `GRID` that is one inside `radius_mrad`; zero frequency in the centre."""
    frequency = np.fft.fftshift(np.sqrt(GRID.squared_frequency()))
    return (frequency * WAVELENGTH * 1e3 < radius_mrad).astype(float)[None]


@pytest.mark.parametrize("binning", [1, 2, 3, 4])
@pytest.mark.parametrize("max_angle_mrad", [None, 17.0])
def test_the_grid_s_own_pixels_are_summed_and_reach_as_far_as_wanted(binning, max_angle_mrad):
    camera = Detector(binning=binning, max_angle_mrad=max_angle_mrad)
    pattern = np.random.default_rng(4).random((1, *GRID.shape)) * disk(max_angle_mrad or 1e3)
    pattern *= np.fft.fftshift(GRID.antialias()) > 0
    wy, wx = detector.bin_matrices(GRID, WAVELENGTH, camera)
    for weights in (
        wy,
        wx,
    ):  # every pixel of the grid is in one of the detector's or in none, and whole
        np.testing.assert_allclose(weights, np.round(weights), atol=1e-9)
        assert weights.sum() <= max(weights.shape)
    collected = detector.bin_patterns(pattern, (wy, wx))
    assert collected.sum() == pytest.approx(pattern.sum())
    (step_y, step_x), (y0, x0) = detector.sampling_and_origin(GRID, WAVELENGTH, camera)
    assert step_y == pytest.approx(binning * WAVELENGTH / 20.0 * 1e3)
    assert step_x == pytest.approx(binning * WAVELENGTH / 18.0 * 1e3)
    # Mean angles are those of the pattern that was binned, so the axes say where the pixels are.
    (raw_y, raw_x), (raw_y0, raw_x0) = detector.sampling_and_origin(GRID, WAVELENGTH, None)
    ky = raw_y0 + raw_y * np.arange(120)
    kx = raw_x0 + raw_x * np.arange(96)
    one = np.zeros((1, *GRID.shape))
    one[0, 62 : 62 + binning, 47 : 47 + binning] = 1
    recorded = detector.bin_patterns(one, (wy, wx))[0]
    mean_y = (recorded.sum(axis=1) @ (y0 + step_y * np.arange(len(wy)))) / recorded.sum()
    mean_x = (recorded.sum(axis=0) @ (x0 + step_x * np.arange(wx.shape[1]))) / recorded.sum()
    assert abs(mean_y - ky[62 : 62 + binning].mean()) <= step_y / 2
    assert abs(mean_x - kx[47 : 47 + binning].mean()) <= step_x / 2


def test_a_crop_keeps_the_axis_where_the_grid_has_it():
    camera = Detector(shape=(30, 21))
    pattern = np.random.default_rng(5).random((2, *GRID.shape))
    cropped = detector.bin_patterns(pattern, detector.bin_matrices(GRID, WAVELENGTH, camera))
    np.testing.assert_allclose(
        cropped, pattern[:, 60 - 15 : 60 + 15, 48 - 10 : 48 + 11], atol=1e-12
    )
    (step_y, step_x), (y0, x0) = detector.sampling_and_origin(GRID, WAVELENGTH, camera)
    assert (y0 + 15 * step_y, x0 + 10 * step_x) == pytest.approx((0, 0))


def test_square_pixels_reach_an_angle_or_the_band_limit():
    y, x = detector.pixels(GRID, WAVELENGTH, Detector(pixel_mrad=3.0, max_angle_mrad=17.0))
    assert (y.count, x.count, y.size_mrad) == (12, 12, 3.0)
    everything = detector.pixels(GRID, WAVELENGTH, Detector(pixel_mrad=3.0))[0]
    limit = GRID.band_limit * WAVELENGTH * 1e3
    assert limit - 3 < everything.count / 2 * 3 <= limit


@pytest.mark.parametrize(
    "twice",
    [
        {"pixel_mrad": 2.0, "binning": 2},
        {"shape": (4, 4), "max_angle_mrad": 10.0},
        {"electrons_per_pattern": 10, "dose_electrons_per_angstrom2": 3},
    ],
)
def test_one_thing_said_in_two_ways_is_refused(twice):
    with pytest.raises(ValueError, match="at most one"):
        Detector(**twice)


@pytest.mark.parametrize("rms", [0.3, 1.0, 2.5])
def test_point_spread_has_its_width_and_loses_nothing_inside(rms):
    pattern = np.zeros((1, *GRID.shape))
    pattern[0, 60, 48] = 1
    sharp, spread = (
        detector.bin_patterns(
            pattern, detector.bin_matrices(GRID, WAVELENGTH, Detector(point_spread_pixels=s))
        )[0]
        for s in (0.0, rms)
    )
    assert sharp.max() == pytest.approx(1)
    assert spread.sum() == pytest.approx(1)
    for axis in (0, 1):
        line = spread.sum(axis=1 - axis)
        off_axis = np.arange(len(line)) - len(line) // 2
        assert line @ off_axis == pytest.approx(0, abs=1e-9)
        assert np.sqrt(line @ off_axis**2) == pytest.approx(rms)


def test_counts_are_poisson_s_at_every_brightness():
    for mean in (0.02, 1.7, 15.9, 16.1, 900.0):
        counts = 50 * detector.add_poisson_noise(
            np.full((20, 50, 40), mean / 50, np.float64), 50.0, seed=3
        )
        np.testing.assert_allclose(counts, np.round(counts), atol=1e-9)
        assert counts.mean() == pytest.approx(mean, abs=5 * np.sqrt(mean / 40_000))
        assert counts.var() == pytest.approx(mean, rel=0.05 if mean > 1 else 0.2)


def test_noise_is_the_pattern_s_own_and_outlives_rounding():
    patterns = np.random.default_rng(7).exponential(1e-3, (3, 30, 40)).astype(np.float32)
    noisy = detector.add_poisson_noise(patterns, 2e4, seed=1)
    assert noisy.dtype == np.float32
    np.testing.assert_array_equal(noisy[:2], detector.add_poisson_noise(patterns[:2], 2e4, seed=1))
    assert not np.array_equal(noisy, detector.add_poisson_noise(patterns, 2e4, seed=2))
    same = detector.add_poisson_noise(np.repeat(patterns[:1], 2, axis=0), 2e4, seed=1)
    assert not np.array_equal(same[0], same[1])
    rounded = detector.add_poisson_noise(patterns * np.float32(1 + 1e-6), 2e4, seed=1)
    assert np.mean(rounded != noisy) < 1e-3


def test_a_dose_is_shared_out_by_the_step_of_the_raster():
    camera = Detector(dose_electrons_per_angstrom2=500)
    raster = scan.raster(np.array([0.0, 0.4, 0.8]), np.array([1.0, 1.3]))
    assert detector.electrons_per_pattern(camera, raster, (3, 2)) == pytest.approx(500 * 0.4 * 0.3)
    assert detector.electrons_per_pattern(Detector(electrons_per_pattern=7), raster, None) == 7
    assert detector.electrons_per_pattern(Detector(), raster, None) is None
    with pytest.raises(InputError, match="electrons_per_pattern"):
        detector.electrons_per_pattern(camera, raster, None)


def test_simulated_patterns_are_counted_after_everything_else():
    atoms = bulk("MgO", "rocksalt", a=4.212, cubic=True) * (3, 3, 1)
    probes = {
        "positions_angstrom": [[0.0, 0.0], [1.0, 0.5], [2.0, 2.0]],
        "energy_ev": 200e3,
        "semiangle_mrad": 20.0,
    }
    phonons = FrozenPhonons(rms_angstrom=0.1, configurations=2)
    arguments = probes | {"grid_shape": (64, 72), "frozen_phonons": phonons, "seed": 11}
    clean = simulate(atoms, detector=Detector(binning=2), **arguments)
    noisy = simulate(atoms, detector=Detector(binning=2, electrons_per_pattern=3e4), **arguments)
    np.testing.assert_array_equal(noisy.cbed, detector.add_poisson_noise(clean.cbed, 3e4, seed=11))
    assert noisy.provenance["detector"]["electrons_per_pattern"] == 3e4
    assert noisy.cbed.sum(axis=(1, 2)) == pytest.approx(
        clean.cbed.sum(axis=(1, 2)), abs=5 / np.sqrt(3e4)
    )


# ---- Virtual images
# -------------------------------------------------------------------------------------------------

ENERGY = 200e3
SEMIANGLE = 20.0
EXTENT = (9.0, 10.0)
SCAN = (32, 36)  # every third of 96×108 pixels, finer than the λ/4α that the deflection needs
ATOMS = ase.Atoms(
    "CNSi", [(2.0, 3.0, 1.0), (7.5, 4.0, 1.0), (5.0, 7.0, 1.0)], cell=(*EXTENT[::-1], 2.0), pbc=True
)


def specimen(atoms, positions, detector=None):
    beam = {
        "energy_ev": ENERGY,
        "semiangle_mrad": SEMIANGLE,
        "grid_shape": (96, 108),
        "precision": "float64",
    }
    return simulate(atoms, positions_angstrom=positions, detector=detector, **beam)


def raster(start=(0.0, 0.0)):
    y, x = (s + np.arange(n) * length / n for s, n, length in zip(start, SCAN, EXTENT, strict=True))
    return np.stack(np.meshgrid(y, x, indexing="ij"), -1).reshape(-1, 2)


@pytest.fixture(scope="module")
def thin():
    return specimen(ATOMS, raster())


@pytest.mark.parametrize(
    "detector", [None, Detector(binning=2), Detector(pixel_mrad=3.0), Detector(shape=(31, 40))]
)
def test_vacuum_has_its_centre_on_the_axis_and_all_of_the_beam_in_the_disk(detector):
    vacuum = ase.Atoms("H", [(5.0, 4.5, 1.0)], cell=ATOMS.cell, pbc=True)
    vacuum.arrays["occupancy"] = np.array([1e-9])
    sample = specimen(vacuum, [[0.0, 0.0], [3.3, 1.2]], detector)
    angles = pattern_grid(sample.provenance)
    pixel = max(angles.step)
    # even binning is not symmetric
    off_axis = 0.01 * pixel if detector and detector.binning == 2 else 1e-6
    assert virtual_detectors.centre_of_mass(sample.cbed, angles) == pytest.approx(0, abs=off_axis)
    assert virtual_detectors.bright_field(
        sample.cbed, angles, SEMIANGLE + 2 * pixel
    ) == pytest.approx(1, abs=1e-6)
    assert virtual_detectors.annular(
        sample.cbed, angles, SEMIANGLE + 2 * pixel, np.inf
    ) == pytest.approx(0, abs=1e-6)


def test_the_beam_is_drawn_towards_an_atom():
    atom = ase.Atoms("Si", [(5.0, 4.0, 1.0)], cell=ATOMS.cell, pbc=True)
    sides = [
        [4.0, 4.6],
        [4.0, 5.4],
        [3.6, 5.0],
        [4.4, 5.0],
        [4.0, 5.0],
    ]  # left, right, above, below, on it
    sample = specimen(atom, sides)
    (left, right, above, below, on) = virtual_detectors.centre_of_mass(
        sample.cbed, pattern_grid(sample.provenance)
    )
    assert left[1] > 0.5
    assert right[1] == pytest.approx(-left[1], rel=1e-3)
    assert above[0] > 0.5
    assert below[0] == pytest.approx(-above[0], rel=1e-3)
    np.testing.assert_allclose([left[0], right[0], above[1], below[1], *on], 0, atol=1e-3)


def test_icom_of_a_thin_object_is_its_potential_as_the_probe_blurs_it(thin):
    deflection = virtual_detectors.centre_of_mass(thin.cbed, pattern_grid(thin.provenance)).reshape(
        *SCAN, 2
    )
    scan = scan_grid(thin.provenance | {"scan_shape": SCAN})
    phase = virtual_detectors.integrated_centre_of_mass(
        deflection, scan.step, wavelength_angstrom(ENERGY)
    )
    wave = lens(Grid((96, 108), EXTENT), BeamSettings(ENERGY, SEMIANGLE, {}))
    probe = np.abs(np.fft.ifft2(wave)) ** 2  # around the origin
    blurred = np.fft.ifft2(
        np.fft.fft2(thin.projected_potential) * np.fft.fft2(probe / probe.sum())
    ).real[::3, ::3]
    potential = phase / interaction_constant(ENERGY)
    assert np.corrcoef(potential.ravel(), blurred.ravel())[0, 1] > 0.99
    assert np.ptp(potential) == pytest.approx(np.ptp(blurred), rel=0.03)


def test_icom_undoes_a_gradient_on_and_off_the_period():
    wavelength = 0.025
    step = (0.3, 0.2)
    y = np.arange(40) * step[0]
    x = np.arange(50) * step[1]
    phase = 0.3 * np.cos(2 * np.pi * (y / 12.0))[:, None] * np.sin(2 * np.pi * x / 5.0)[None, :]
    gradient = np.stack(
        [
            -0.3
            * 2
            * np.pi
            / 12.0
            * np.sin(2 * np.pi * y / 12.0)[:, None]
            * np.sin(2 * np.pi * x / 5.0),
            0.3
            * 2
            * np.pi
            / 5.0
            * np.cos(2 * np.pi * y / 12.0)[:, None]
            * np.cos(2 * np.pi * x / 5.0),
        ],
        axis=-1,
    )
    deflection = gradient * wavelength / (2e-3 * np.pi)
    np.testing.assert_allclose(
        virtual_detectors.integrated_centre_of_mass(deflection, step, wavelength), phase, atol=1e-12
    )
    window = deflection[3:30, 4:40]
    expected = phase[3:30, 4:40]
    phase = virtual_detectors.integrated_centre_of_mass(window, step, wavelength, periodic=False)
    np.testing.assert_allclose(phase, expected - expected.mean(), atol=0.04 * np.ptp(expected))
    wrapped = virtual_detectors.integrated_centre_of_mass(
        window, step, wavelength
    )  # this is what mirroring is for
    assert np.abs(wrapped - (expected - expected.mean())).max() > 0.2 * np.ptp(expected)


def test_dark_field_knows_the_atomic_number():
    atoms = ase.Atoms("SiAg", [(2.5, 4.5, 1.0), (7.5, 4.5, 1.0)], cell=ATOMS.cell, pbc=True)
    sample = specimen(atoms, [[4.5, 2.5], [4.5, 7.5]])
    light, heavy = virtual_detectors.annular(
        sample.cbed, pattern_grid(sample.provenance), 50.0, 80.0
    )
    assert 1.2 < np.log(heavy / light) / np.log(47 / 14) < 2.0


def test_an_empty_pattern_has_no_deflection():
    deflection = virtual_detectors.centre_of_mass(
        np.zeros((1, 4, 5)), PixelGrid((1.0, 1.0), (0.0, 0.0))
    )
    assert deflection.tolist() == [[0.0, 0.0]]
