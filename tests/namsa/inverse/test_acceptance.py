"""Which places take the columns of a fit, and how many of the compared numbers are independent."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from namsa.base.pixels import PixelGrid
from namsa.inverse.acceptance import MOST_TAKEN, acceptance, on_the_scan, without_contradicted
from namsa.inverse.model_error import independent_share

SHAPE = (30, 32)
STEP = (0.4, 0.4)
ROWS, COLUMNS = np.indices(SHAPE)
KEPT_OUT = (3 * ROWS + COLUMNS) % 8 == 0


def test_places_take_columns_by_what_they_gain_there():
    before = np.full(SHAPE, 0.02)
    after = np.where(COLUMNS < 16, 0.01, 0.02)
    taken = acceptance(before, after, KEPT_OUT, STEP)
    assert taken.weight[15, 5] == pytest.approx(MOST_TAKEN)
    assert taken.weight[15, 27] == 0
    assert taken.gain == pytest.approx(0.25, abs=0.02)


def test_a_gain_that_scatters_or_is_small_is_not_taken():
    rng = np.random.default_rng(0)
    before = np.full(SHAPE, 0.02)
    noisy = before * (1 - rng.normal(0, 0.5, SHAPE))
    assert acceptance(before, noisy, KEPT_OUT, STEP).weight.mean() < 0.03
    for after in (0.996 * before, before, 1.2 * before):
        assert not acceptance(before, after, KEPT_OUT, STEP).weight.any()


def test_positions_that_the_fit_has_used_do_not_decide():
    before = np.full(SHAPE, 0.02)
    after = np.where(KEPT_OUT, 0.02, 0.001)
    assert not acceptance(before, after, KEPT_OUT, STEP).weight.any()
    assert not acceptance(before, after, np.zeros(SHAPE, bool), STEP).weight.any()


def test_weights_fall_to_zero_beyond_the_positions_that_were_used():
    weights = on_the_scan(np.full(SHAPE, 0.5), (8, 9), STEP)
    assert weights.shape == (46, 50)
    assert weights[23, 25] == pytest.approx(0.5)
    assert weights[0, 0] < 0.01


def test_all_numbers_of_white_noise_are_independent_and_few_of_smooth_ones():
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(24, 24, 15, 15))
    assert independent_share(noise) > 0.4
    smooth = gaussian_filter(noise, (1, 1, 2, 2), mode="wrap")
    assert independent_share(smooth) < 0.02
    assert independent_share(np.zeros((4, 4, 5, 5))) == 1


def test_columns_whose_fit_contradicts_the_density_stay():
    places = np.array([[4.0, 4.0], [8.0, 8.0]])
    pixels = PixelGrid(STEP, (0.0, 0.0))
    factor = without_contradicted(places, np.array([2.4, -1.2]), pixels, SHAPE)
    assert factor[10, 10] == 0
    assert factor[20, 20] == 1
    assert (without_contradicted(places, np.zeros(2), pixels, SHAPE) == 1).all()
