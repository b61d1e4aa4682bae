"""Detector pixels collect what lands on them; targets are sampled by Fourier's sum."""

import numpy as np
import pytest

from namsa import Detector, InputError, detector, scan, target
from namsa.config import Scan
from namsa.grid import Grid

GRID = Grid((120, 96), (20.0, 18.0))
WAVELENGTH = 0.0250793


def test_binning_conserves_what_lands_on_the_detector():
    rng = np.random.default_rng(0)
    patterns = rng.random((2, *GRID.shape))
    wy, wx = detector.bin_matrices(GRID, WAVELENGTH, Detector(shape=(12, 16), pixel_mrad=4.0))
    collected = detector.collect(patterns, (wy, wx))
    assert collected.shape == (2, 12, 16)
    assert wy.sum(axis=0).max() == pytest.approx(1)
    # 4 mrad is 4/(λ/L) reciprocal pixels: every detector pixel collects exactly that many along an axis.
    np.testing.assert_allclose(wy.sum(axis=1), 4.0 / (WAVELENGTH / 20.0 * 1e3))
    np.testing.assert_allclose(wx.sum(axis=0), 4.0 / (WAVELENGTH / 18.0 * 1e3))


def test_a_beam_on_the_axis_lands_in_the_middle():
    pattern = np.zeros((1, *GRID.shape))
    pattern[0, 60, 48] = 1  # the zero frequency
    odd = detector.collect(pattern, detector.bin_matrices(GRID, WAVELENGTH, Detector(shape=(5, 7), pixel_mrad=3.0)))
    assert odd[0, 2, 3] == pytest.approx(1)
    even = detector.collect(pattern, detector.bin_matrices(GRID, WAVELENGTH, Detector(shape=(4, 6), pixel_mrad=3.0)))
    np.testing.assert_allclose(even[0, 1:3, 2:4], 0.25)


def test_detectors_the_grid_cannot_serve_are_refused():
    with pytest.raises(InputError, match="cell of .* Å or more"):
        detector.bin_matrices(GRID, WAVELENGTH, Detector(shape=(4, 4), pixel_mrad=0.5))
    with pytest.raises(InputError, match="pixels of .* Å or less"):
        detector.bin_matrices(GRID, WAVELENGTH, Detector(shape=(4, 40), pixel_mrad=4.0))


def test_target_is_band_limited_keeps_the_electrons_and_agrees_on_and_off_the_grid():
    rng = np.random.default_rng(1)
    density = rng.random(GRID.shape) * 30
    coefficients = target.band_limited(density, GRID, 1.2)
    smooth = target.on_grid(coefficients)
    assert smooth.mean() == pytest.approx(density.mean())
    spectrum = np.abs(np.fft.fft2(smooth))
    assert spectrum[np.sqrt(GRID.squared_frequency()) > 1.2].max() < 1e-9 * spectrum.max()
    dy, dx = GRID.sampling_angstrom
    y, x = dy * np.array([3.0, 10.0, 119.0]), dx * np.array([0.0, 50.0])
    np.testing.assert_allclose(target.at_positions(coefficients, GRID, y, x), smooth[np.ix_([3, 10, 119], [0, 50])])


def test_scans_fill_the_cell_or_keep_their_step():
    rng = np.random.default_rng(2)
    y, x = scan.positions(Scan(shape=(4, 5)), (8.0, 10.0), rng)
    np.testing.assert_allclose(y, [0, 2, 4, 6])
    np.testing.assert_allclose(x, [0, 2, 4, 6, 8])
    stepped = Scan(shape=(3, 2), step_angstrom=(0.5, 0.4), origin_angstrom=(1.0, 2.0))
    y, x = scan.positions(stepped, (8.0, 10.0), rng)
    np.testing.assert_allclose(scan.raster(y, x)[:3], [[1.0, 2.0], [1.0, 2.4], [1.5, 2.0]])
    drawn = Scan(shape=(3, 2), step_angstrom=(0.5, 0.4), origin_angstrom="random")
    first, again = (scan.positions(drawn, (8.0, 10.0), np.random.default_rng(5))[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert first[0] != 0
