import numpy as np
import pytest
from scipy import stats

from train.input import fast_noise, noise


def uneven(mean, shape=(40, 50, 60)):
    """Patterns whose pixels differ by a factor of 10, of the same sum each."""
    ramp = np.broadcast_to(np.linspace(0.2, 2.0, shape[2]), shape)
    return (mean * ramp / ramp.mean()).astype(np.float32)


@pytest.mark.parametrize("mean", [0.01, 0.7, 12.0, 400.0])
def test_counts_have_the_mean_and_the_variance_of_poissons(mean):
    dose = 5e4
    patterns = uneven(mean / dose)
    stored = (patterns * np.float32(1024)).astype(np.float32)
    counts = noise.count_electrons(stored, 1024.0, dose, seed=3, epoch=1).astype(np.float64) * dose
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-3)
    expected = patterns.astype(np.float64) * dose
    columns = expected.mean((0, 1))
    pixels = expected.shape[0] * expected.shape[1]
    error = np.sqrt(columns / pixels)
    assert np.abs((counts.mean((0, 1)) - columns) / error).max() < 5
    spread = np.sqrt((columns + 2 * columns**2) / pixels)  # of a Poisson number's variance
    assert np.abs((((counts - expected) ** 2).mean((0, 1)) - columns) / spread).max() < 5
    neighbours = ((counts - expected)[:, :, 1:] * (counts - expected)[:, :, :-1]).mean()
    assert abs(neighbours) < 5 * mean / np.sqrt(counts.size)


@pytest.mark.parametrize("count", [noise.count_electrons, fast_noise.count_electrons])
def test_every_sample_and_epoch_has_its_own_noise_and_keeps_it_and_zero_stays_zero(count):
    patterns = 4 * uneven(1e-3, (3, 1024, 700))  # more than one part
    patterns[2, -1] = 0
    counts = count(patterns, 4.0, 1e3, 3, 1)
    assert not counts[2, -1].any()
    np.testing.assert_array_equal(counts, count(patterns, 4.0, 1e3, 3, 1))
    others = [count(patterns, 4.0, 1e3, seed, epoch) for seed, epoch in ((3, 2), (4, 1))]
    for other in [*others, np.roll(counts, -(2**20))]:  # one part on
        assert np.mean(counts != other) > 0.3
        assert (
            abs(np.corrcoef((counts - patterns / 4).ravel(), (other - patterns / 4).ravel())[0, 1])
            < 0.02
        )


def test_a_dose_is_itself_or_even_in_the_logarithm():
    assert noise.draw_electrons(250.0, 7, 1) == 250.0
    drawn = np.log10([noise.draw_electrons((10.0, 1e5), seed, 2) for seed in range(2000)])
    assert drawn.min() >= 1
    assert drawn.max() <= 5
    assert np.histogram(drawn, 4, (1, 5))[0] == pytest.approx(500, abs=100)
    assert noise.draw_electrons((10.0, 1e5), 1, 0) != noise.draw_electrons((10.0, 1e5), 1, 1)


@pytest.mark.parametrize("mean", [0.003, 0.11, 0.7, 2.505, 3.999, 4.001, 6.0, 12.0, 150.0])
def test_counts_are_nearly_poisson_numbers(mean):
    dose = 100.0
    pixels = 10**6
    patterns = np.full((10, pixels // 10), mean / dose, np.float32)
    counts = (fast_noise.count_electrons(patterns, 1.0, dose, 7, 1) * dose).ravel()
    np.testing.assert_allclose(counts, np.rint(counts), atol=1e-3)
    counts = np.rint(counts).astype(int)
    assert abs(counts.mean() - mean) < 4 * np.sqrt(mean / pixels) + 1e-4 * mean
    assert counts.var() == pytest.approx(mean, rel=0.01 + 4 * np.sqrt((2 + 1 / mean) / pixels))
    k = np.arange(counts.max() + 2)
    exact = stats.poisson.pmf(k, mean)
    distance = abs(np.bincount(counts, minlength=len(k)) / pixels - exact).sum() / 2
    chance = np.sqrt(2 / np.pi * exact / pixels).sum() / 2  # of so many true Poisson numbers
    assert distance < (0.001 if mean < 4 else 0.008) + 1.3 * chance
