"""Bad pixels, movement of the disk and mirror, corrected as patterns are read."""

import numpy as np
import pytest

import namsa
from namsa import InputError
from namsa.io.calibration import circle_from_ellipse

SHAPE = (5, 6, 9, 12)


def test_bad_pixels_become_the_mean_of_good_neighbours_in_any_part():
    values = np.arange(np.prod(SHAPE), dtype=np.uint16).reshape(SHAPE)
    broken = values.astype(np.float32)
    broken[:, :, 4, 5], broken[:, :, 4, 6], broken[:, :, 0, 0] = np.nan, 9e9, 0
    with namsa.read(broken, bad_pixels=((4, 5), (4, 6), (0, 0))) as recording:
        whole = recording.read(slice(None), slice(None))
        part = recording.read(slice(2, 4), slice(1, 5))
    np.testing.assert_array_equal(part, whole[2:4, 1:5])
    # The mean of a plane's symmetric neighbours is the plane, but one neighbour of each of the two is bad.
    expected = values[:, :, 3:6, 4:7].sum(axis=(2, 3)) - values[:, :, 4, 5] - values[:, :, 4, 6]
    np.testing.assert_allclose(whole[:, :, 4, 5], expected / 7, rtol=1e-6)
    np.testing.assert_allclose(whole[:, :, 0, 0], values[:, :, [0, 1, 1], [1, 0, 1]].mean(axis=-1), rtol=1e-6)
    good = np.ones(SHAPE[2:], bool)
    good[[4, 4, 0], [5, 6, 0]] = False
    np.testing.assert_array_equal(whole[:, :, good], values[:, :, good])


def test_a_moving_disk_stays_where_it_is_in_the_middle_of_the_scan():
    slope = np.array([[0.5, 0.0], [-0.25, 0.5]])
    y, x = np.arange(SHAPE[2])[:, None], np.arange(SHAPE[3])
    values = np.zeros(SHAPE)
    for row, column in np.ndindex(*SHAPE[:2]):
        cy, cx = (4.0, 5.5) + slope @ (row - 2.0, column - 2.5)
        values[row, column] = np.clip(3 - np.abs(y - cy), 0, None) * np.clip(3 - np.abs(x - cx), 0, None)
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
