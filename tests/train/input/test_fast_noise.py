"""The fast counting noise against Poisson's distribution."""

import numpy as np
import pytest
from scipy import stats

from train.input import fast_noise


@pytest.mark.parametrize("mean", [0.003, 0.11, 0.7, 2.505, 3.999, 4.001, 6.0, 12.0, 150.0])
def test_counts_are_nearly_poisson_numbers(mean):
    dose, pixels = 100.0, 10**6
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


def test_counts_depend_on_sample_and_epoch_alone_and_zero_stays_zero():
    patterns = np.random.default_rng(0).random((3, 5, 70, 80), np.float32)
    patterns[0] = 0
    first = fast_noise.count_electrons(4 * patterns, 4.0, 20.0, 3, 4)
    assert first.shape == patterns.shape
    assert not first[0].any()
    np.testing.assert_array_equal(first, fast_noise.count_electrons(4 * patterns, 4.0, 20.0, 3, 4))
    assert not np.array_equal(first, fast_noise.count_electrons(4 * patterns, 4.0, 20.0, 3, 5))
    assert not np.array_equal(first, fast_noise.count_electrons(4 * patterns, 4.0, 20.0, 4, 4))
    assert abs(np.corrcoef(first[1].ravel() - patterns[1].ravel(), first[2].ravel() - patterns[2].ravel())[0, 1]) < 0.02
