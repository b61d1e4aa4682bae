"""Ring correlation and columns of two reconstructions: against what noise of known size gives."""

from types import SimpleNamespace

import documented
import numpy as np
import pytest

from namsa.base.errors import InputError
from namsa.base.pixels import PixelGrid
from namsa.inverse.agreement import column_errors, ring_correlation

PIXELS = PixelGrid((0.2, 0.25), (0.0, 0.0))
SHAPE = (240, 200)


def white(seed: int, rms: float = 1.0) -> np.ndarray:
    return rms * np.random.default_rng(seed).standard_normal(SHAPE)


def test_white_noise_gives_the_analytic_correlation():
    """Of s + n₁ and s + n₂ it is S/(S + N), whatever the frequency; of both together S/(N/2) is
    signal over noise.
    """
    signal = white(0, 2.0)
    agreement = ring_correlation(signal + white(1, 1.5), signal + white(2, 1.5), PIXELS)
    expected = 4 / (4 + 1.5**2)
    assert np.mean(agreement.correlation[5:]) == pytest.approx(
        expected, abs=0.02
    )  # the first rings hold few frequencies
    assert np.abs(agreement.correlation[5:] - expected).max() < 0.15
    assert np.median(agreement.snr) == pytest.approx(4 / (1.5**2 / 2), rel=0.1)
    assert agreement.resolution_angstrom == pytest.approx(1 / agreement.q_per_angstrom[-1])


def test_the_documented_noise_is_what_the_documented_code_finds():
    """Noise of 5 in each of two equal images of a white signal of 10: 100/(100 + 25)."""
    known = {"result": SimpleNamespace(density=white(0, 10.0)[:90, :80])}
    exec(documented.code("reconstruct.md", "ring_correlation"), known)
    assert np.mean(known["found"].correlation[5:]) == pytest.approx(0.8, abs=0.05)
    assert known["columns"].shift_angstrom == pytest.approx((0, 0), abs=0.05)


def test_noise_alone_does_not_correlate_and_equal_images_do():
    apart = ring_correlation(white(1), white(2), PIXELS)
    assert np.abs(apart.correlation).mean() < 0.1
    assert apart.resolution_angstrom > 5
    same = ring_correlation(white(1), white(1), PIXELS)
    np.testing.assert_allclose(same.correlation, 1)


def test_the_resolution_is_where_the_common_signal_ends():
    q = np.hypot(np.fft.fftfreq(SHAPE[0], 0.2)[:, None], np.fft.fftfreq(SHAPE[1], 0.25))
    signal = np.fft.ifft2(np.fft.fft2(white(0)) * (q < 1.0)).real
    agreement = ring_correlation(signal + white(1, 0.1), signal + white(2, 0.1), PIXELS)
    assert agreement.resolution_angstrom == pytest.approx(1.0, rel=0.1)


def test_rings_between_the_reflections_of_a_crystal_do_not_count():
    """A lattice of 2 Å: below its first reflection there is noise alone."""
    rows = np.arange(SHAPE[0])[:, None] * 0.2
    columns = np.arange(SHAPE[1]) * 0.25
    crystal = np.cos(np.pi * rows) + np.cos(np.pi * columns) + 0.5 * np.cos(2 * np.pi * rows)
    agreement = ring_correlation(crystal + white(1, 0.02), crystal + white(2, 0.02), PIXELS)
    assert agreement.correlation[:10].min() < 0
    assert agreement.resolution_angstrom == pytest.approx(1.0, rel=0.1)


def test_columns_that_move_have_the_error_of_their_mean():
    """Each image has columns that are displaced by 0.05 Å rms along an axis: their mean is wrong by
    0.05/√2.
    """
    y, x = PIXELS.coordinates(SHAPE)
    sites = np.stack(
        np.meshgrid(np.arange(2, 46, 3.0), np.arange(2, 48, 3.0), indexing="ij"), -1
    ).reshape(-1, 2)

    def image(seed: int, shift: float = 0.0) -> np.ndarray:
        rng = np.random.default_rng(seed)
        places = sites + 0.05 * rng.standard_normal(sites.shape) + (0.0, shift)
        heights = 1 + 0.1 * rng.standard_normal(len(sites))
        return sum(
            height * np.exp(-((y[:, None] - b) ** 2 + (x - a) ** 2) / (2 * 0.4**2))
            for (b, a), height in zip(places, heights, strict=True)
        )

    first = image(1)
    second = image(2, 0.1)
    errors = column_errors(first, second, PIXELS)
    assert errors is not None
    assert errors.columns == len(sites)
    assert errors.unmatched == 0
    assert errors.position_angstrom == pytest.approx(0.05 / np.sqrt(2), rel=0.1)
    assert errors.intensity == pytest.approx(0.1 / np.sqrt(2), rel=0.15)
    assert errors.shift_angstrom == pytest.approx((0.0, -0.1), abs=0.01)
    phase = column_errors(first + 7, second - 3, PIXELS)  # it is known but for a constant
    assert phase is not None
    assert phase[:4] == pytest.approx(errors[:4])
    apart = np.zeros(SHAPE)
    apart[107, 14] = 1  # 2 Å from the columns
    assert column_errors(apart, first, PIXELS) is None


@pytest.mark.parametrize("compare", [ring_correlation, column_errors])
def test_what_cannot_be_compared_is_refused(compare):
    for other, message in (
        (white(0)[1:], "give two of one shape"),
        (np.stack([white(0)] * 2), "add slices up"),
        (np.full(SHAPE, 3.0), "finite and not constant"),
        (np.where(white(0) > 3, np.nan, white(0)), "finite and not constant"),
        (np.exp(1j * white(0)), "complex: give phases"),
    ):
        with pytest.raises(InputError, match=message):
            compare(white(0), other, PIXELS)
