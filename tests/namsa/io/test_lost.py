"""Lost patterns and values that are not finite: found, counted, and left out."""

import numpy as np
import pytest

import namsa
from namsa import InputError
from namsa.inspection.survey import read_pieces, survey
from namsa.io.calibration import circle_from_ellipse
from namsa.io.lost import Losses, filled, lost_patterns, repair_missing

SHAPE = (5, 6, 9, 12)
SCAN = (26, 34)
DETECTOR = (12, 10)


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
    repaired = repair_missing(values, 26 * 34)
    around = values[3, 4, 4:7, 4:7]
    assert repaired.patterns[3, 4, 5, 5] == pytest.approx(np.nansum(around) / 8)
    assert repaired.patterns[9, 1, 0, 0] == pytest.approx((values[9, 1, :2, :2].ravel()[1:]).mean())
    assert np.argwhere(repaired.lost).tolist() == [[11, 2]]
    losses = Losses.of(repaired, slice(0, 26), slice(0, 34))
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
    np.testing.assert_allclose(
        filled(block, lost), expected
    )  # a plane is its own mean around (2, 3)


def test_a_survey_counts_only_what_was_recorded():
    values = scan().astype(np.float32)
    with namsa.read(values) as recording:
        of_complete = survey(read_pieces(recording, lambda row: None), recording.shape)
    damaged = values.copy()
    damaged[12, 7], damaged[3, 3, 4, 4] = 0, np.nan
    with namsa.read(damaged) as recording:
        of_damaged = survey(read_pieces(recording, lambda row: None), recording.shape)
    assert (of_damaged.recorded, of_damaged.losses.values) == (26 * 34 - 1, 1)
    np.testing.assert_allclose(of_damaged.mean, of_complete.mean, rtol=0.01, atol=0.01)
    np.testing.assert_allclose(of_damaged.variance, of_complete.variance, rtol=0.02, atol=0.02)
    assert (of_damaged.extremes[1] == of_complete.extremes[1]).all()
    assert of_damaged.whole


def test_bad_pixels_become_the_mean_of_good_neighbours_in_any_part():
    values = np.arange(np.prod(SHAPE), dtype=np.uint16).reshape(SHAPE)
    broken = values.astype(np.float32)
    broken[:, :, 4, 5], broken[:, :, 4, 6], broken[:, :, 0, 0] = np.nan, 9e9, 0
    with namsa.read(broken, bad_pixels=((4, 5), (4, 6), (0, 0))) as recording:
        repaired = recording.read(slice(None), slice(None))
        repaired_part = recording.read(slice(2, 4), slice(1, 5))
    np.testing.assert_array_equal(repaired_part, repaired[2:4, 1:5])
    # The mean of a plane's symmetric neighbours is the plane, but one neighbour of each of the two
    # is bad.
    expected = values[:, :, 3:6, 4:7].sum(axis=(2, 3)) - values[:, :, 4, 5] - values[:, :, 4, 6]
    np.testing.assert_allclose(repaired[:, :, 4, 5], expected / 7, rtol=1e-6)
    np.testing.assert_allclose(
        repaired[:, :, 0, 0], values[:, :, [0, 1, 1], [1, 0, 1]].mean(axis=-1), rtol=1e-6
    )
    good = np.ones(SHAPE[2:], bool)
    good[[4, 4, 0], [5, 6, 0]] = False
    np.testing.assert_array_equal(repaired[:, :, good], values[:, :, good])


def test_a_moving_disk_stays_where_it_is_in_the_middle_of_the_scan():
    slope = np.array([[0.5, 0.0], [-0.25, 0.5]])
    y = np.arange(SHAPE[2])[:, None]
    x = np.arange(SHAPE[3])
    values = np.zeros(SHAPE)
    for row, column in np.ndindex(*SHAPE[:2]):
        cy, cx = (4.0, 5.5) + slope @ (row - 2.0, column - 2.5)
        values[row, column] = np.clip(3 - np.abs(y - cy), 0, None) * np.clip(
            3 - np.abs(x - cx), 0, None
        )
    with namsa.read(values, centre_slope=tuple(map(tuple, slope))) as recording:
        moved = recording.read(slice(None), slice(None))
        assert any("shifted back" in line for line in recording.notes)
    total = moved.sum(axis=(2, 3))
    np.testing.assert_allclose((moved.sum(axis=3) @ np.arange(SHAPE[2])) / total, 4.0, atol=0.01)
    np.testing.assert_allclose((moved.sum(axis=2) @ np.arange(SHAPE[3])) / total, 5.5, atol=0.01)


def test_an_ellipse_becomes_a_circle_of_the_same_area():
    matrix = circle_from_ellipse((1.21, 30.0))
    assert np.linalg.det(matrix) == pytest.approx(1)
    major = np.array([np.sin(np.pi / 6), np.cos(np.pi / 6)])  # (y, x) at 30° from +x towards +y
    np.testing.assert_allclose(matrix @ major, major / 1.1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"bad_pixels": ((9, 0),)}, "not on the detector of 9×12"),
        ({"ellipse": (5.0, 0.0)}, "ratio is 5"),
        ({"centre_slope": ((99.0, 0.0), (0.0, 0.0))}, "at most 10 pixels per step"),
    ],
)
def test_corrections_out_of_range_are_refused(wrong, message):
    with pytest.raises(InputError, match=message), namsa.read(np.ones(SHAPE), **wrong):
        pass
