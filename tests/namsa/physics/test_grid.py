"""The plane's geometry: frequencies, the band limit, and grids that every engine transforms fast."""

import numpy as np
import pytest

from namsa.physics.grid import Grid, fast_shape


def test_band_limit_is_two_thirds_of_the_coarser_axis_nyquist():
    grid = Grid((60, 84), (9.0, 10.5))  # pixels of 0.15 and 0.125 Å
    assert grid.band_limit == pytest.approx(2 / 3 / (2 * 0.15))
    k = np.sqrt(grid.squared_frequency())
    aperture = grid.antialias()
    assert np.all(aperture[k >= grid.band_limit] == 0)
    assert np.all(aperture[k <= grid.band_limit - 0.01 / 0.15] == 1)


def test_frequencies_are_those_of_the_extent():
    ky, kx = Grid((60, 84), (9.0, 10.5)).frequencies()
    assert ky.shape == (60, 1)
    assert kx.shape == (1, 84)
    assert (ky[1, 0], kx[0, 1]) == pytest.approx((1 / 9.0, 1 / 10.5))


@pytest.mark.parametrize(
    ("extent", "expected"), [((17.5, 20.7), (90, 108)), ((16.0, 16.2), (80, 84)), ((19.2, 22.2), (96, 112))]
)
def test_fast_shapes_are_even_and_have_small_factors_only(extent, expected):
    assert fast_shape(extent, 0.2) == expected
