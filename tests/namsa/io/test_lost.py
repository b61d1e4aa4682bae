"""Lost patterns and values that are not finite: found, counted, and left out."""

import numpy as np
import pytest

import namsa
from namsa.inspection.survey import read_pieces, survey
from namsa.io.lost import Losses, filled, lost_patterns, mend

SCAN, DETECTOR = (26, 34), (12, 10)


def scan(counts=400.0, seed=0):
    rng = np.random.default_rng(seed)
    bright = np.exp(-((np.indices(DETECTOR) - 5.0) ** 2).sum(axis=0) / 12)
    return rng.poisson(counts * bright / bright.sum(), (*SCAN, *DETECTOR)).astype(np.uint16)


@pytest.mark.parametrize("scale", [1, 0.25, 1e-6])
def test_an_empty_pattern_is_lost_whatever_the_scale(scale):
    values = scan() * scale
    assert not lost_patterns(values, values[..., 0, 0].size).any()
    values[12, 7] = 0
    assert np.argwhere(lost_patterns(values, 26 * 34)).tolist() == [[12, 7]]
    values[3, 30] = values.max()  # another filling of a frame that did not arrive
    values[20, 20] *= 0
    values[20, 20, 4, 4] = 2 * scale  # dark counts without a beam
    assert np.argwhere(lost_patterns(values, 26 * 34)).tolist() == [[3, 30], [12, 7], [20, 20]]


@pytest.mark.parametrize("counts", [0.5, 3.0, 8.0])
def test_patterns_that_are_empty_by_chance_are_not_lost(counts):
    values = scan(counts)
    assert counts > 5 or (values.sum(axis=(2, 3)) == 0).any()
    assert not lost_patterns(values, 26 * 34).any()


def test_the_rest_of_a_scan_that_was_stopped_is_lost():
    values = scan()
    values[20:] = 0
    assert lost_patterns(values, 26 * 34)[20:].all()
    assert not lost_patterns(values, 26 * 34)[:20].any()
    assert lost_patterns(values[22:24], 26 * 34).all()  # a piece of it alone


def test_single_values_that_are_not_finite_are_replaced_by_their_neighbours_and_counted():
    values = scan().astype(np.float32)
    values[3, 4, 5, 5], values[9, 1, 0, 0] = np.nan, np.inf
    values[11, 2] = np.nan
    mended = mend(values, 26 * 34)
    around = values[3, 4, 4:7, 4:7]
    assert mended.patterns[3, 4, 5, 5] == pytest.approx(np.nansum(around) / 8)
    assert mended.patterns[9, 1, 0, 0] == pytest.approx((values[9, 1, :2, :2].ravel()[1:]).mean())
    assert np.argwhere(mended.lost).tolist() == [[11, 2]]
    losses = Losses.of(mended, slice(0, 26), slice(0, 34))
    assert losses.lines("masked") == [
        "1 pattern not recorded (empty), at scan row and column (11, 2): masked",
        "2 values not finite, in 2 patterns: replaced by the mean of their neighbours",
    ]
    assert np.isnan(values[3, 4, 5, 5])  # the caller's array is not changed


def test_a_place_is_filled_by_the_patterns_around_it():
    block = np.arange(5 * 6 * 2, dtype=float).reshape(5, 6, 2)
    lost = np.zeros((5, 6), bool)
    lost[2, 3] = lost[0, 0] = True
    expected = block.copy()
    expected[0, 0] = (block[0, 1] + block[1, 0] + block[1, 1]) / 3
    np.testing.assert_allclose(filled(block, lost), expected)  # a plane is its own mean around (2, 3)


def test_a_survey_counts_only_what_was_recorded():
    values = scan().astype(np.float32)
    with namsa.read(values) as recording:
        whole = survey(read_pieces(recording, lambda row: None), recording.shape)
    damaged = values.copy()
    damaged[12, 7], damaged[3, 3, 4, 4] = 0, np.nan
    with namsa.read(damaged) as recording:
        found = survey(read_pieces(recording, lambda row: None), recording.shape)
    assert (found.recorded, found.losses.values) == (26 * 34 - 1, 1)
    np.testing.assert_allclose(found.mean, whole.mean, rtol=0.01, atol=0.01)
    np.testing.assert_allclose(found.variance, whole.variance, rtol=0.02, atol=0.02)
    assert (found.extremes[1] == whole.extremes[1]).all()
    assert found.whole
