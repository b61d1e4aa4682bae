"""Ring correlation and columns of two reconstructions: against what noise of known size gives."""

import numpy as np
import pytest

from namsa.errors import InputError
from namsa.pixels import PixelGrid
from train.tasks.density.halves import column_errors, ring_correlation

PIXELS = PixelGrid((0.2, 0.25), (0.0, 0.0))
SHAPE = (240, 200)


def white(seed: int, rms: float = 1.0) -> np.ndarray:
    return rms * np.random.default_rng(seed).standard_normal(SHAPE)


def test_white_noise_gives_the_analytic_correlation():
    """Of s + n₁ and s + n₂ it is S/(S + N), whatever the frequency; of both together S/(N/2) is signal over noise."""
    signal = white(0, 2.0)
    found = ring_correlation(signal + white(1, 1.5), signal + white(2, 1.5), PIXELS)
    expected = 4 / (4 + 1.5**2)
    assert np.mean(found.correlation[5:]) == pytest.approx(expected, abs=0.02)  # the first rings hold few frequencies
    assert np.abs(found.correlation[5:] - expected).max() < 0.15
    assert np.median(found.snr) == pytest.approx(4 / (1.5**2 / 2), rel=0.1)
    assert found.resolution_angstrom == pytest.approx(1 / found.q_per_angstrom[-1])


def test_noise_alone_does_not_correlate_and_equal_images_do():
    apart = ring_correlation(white(1), white(2), PIXELS)
    assert np.abs(apart.correlation).mean() < 0.1
    assert apart.resolution_angstrom > 5
    same = ring_correlation(white(1), white(1), PIXELS)
    np.testing.assert_allclose(same.correlation, 1)


def test_the_resolution_is_where_the_common_signal_ends():
    q = np.hypot(np.fft.fftfreq(SHAPE[0], 0.2)[:, None], np.fft.fftfreq(SHAPE[1], 0.25))
    signal = np.fft.ifft2(np.fft.fft2(white(0)) * (q < 1.0)).real
    found = ring_correlation(signal + white(1, 0.1), signal + white(2, 0.1), PIXELS)
    assert found.resolution_angstrom == pytest.approx(1.0, rel=0.1)


def test_columns_that_move_have_the_error_of_their_mean():
    """Each image has columns that are displaced by 0.05 Å rms along an axis: their mean is wrong by 0.05/√2."""
    y, x = PIXELS.coordinates(SHAPE)
    sites = np.stack(np.meshgrid(np.arange(2, 46, 3.0), np.arange(2, 48, 3.0), indexing="ij"), -1).reshape(-1, 2)

    def image(seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        places = sites + 0.05 * rng.standard_normal(sites.shape)
        heights = 1 + 0.1 * rng.standard_normal(len(sites))
        return sum(
            height * np.exp(-((y[:, None] - b) ** 2 + (x - a) ** 2) / (2 * 0.4**2))
            for (b, a), height in zip(places, heights, strict=True)
        )

    found = column_errors(image(1), image(2), PIXELS)
    assert found is not None
    assert found.columns == len(sites)
    assert found.unmatched == 0
    assert found.position_angstrom == pytest.approx(0.05 / np.sqrt(2), rel=0.1)
    assert found.intensity == pytest.approx(0.1 / np.sqrt(2), rel=0.15)
    assert column_errors(np.ones(SHAPE), image(1), PIXELS) is None


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(InputError, match="give two of one shape"):
        ring_correlation(white(0), white(0)[1:], PIXELS)
    with pytest.raises(InputError, match="finite and not constant"):
        ring_correlation(white(0), np.full(SHAPE, 3.0), PIXELS)
