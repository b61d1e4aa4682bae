"""Virtual detectors: rings that are cut or no rings, segments, polygons, any weights; on patterns
that are not square.
"""

import warnings

import numpy as np
import pytest

import namsa
from namsa import Detector, InputError, PixelGrid, SimulationWarning
from namsa.physics import virtual_detectors

ANGLES = PixelGrid((2.0, 3.0), (-39.0, -43.5))  # 40 rows to ±40 mrad, 30 columns to ±45 mrad
SHAPE = (40, 30)


def flat(count=2):
    return np.ones((count, *SHAPE)) * np.arange(1, count + 1)[:, None, None]


@pytest.mark.parametrize("ring", [(30, 44), (44, 60), (50, np.inf)])
def test_a_ring_that_the_detector_cuts_warns(ring):
    with pytest.warns(SimulationWarning, match=r"cut by the edges.* whole rings up to 40\.0 mrad"):
        virtual_detectors.annular(flat(), ANGLES, *ring)


@pytest.mark.parametrize("ring", [(0, 20), (10, 40.5), (30, np.inf)])
def test_a_ring_within_the_detector_and_all_of_its_pixels_do_not_warn(ring):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        virtual_detectors.annular(flat(), ANGLES, *ring)


@pytest.mark.parametrize("ring", [(50, 30), (30, 30), (-5, 20), (np.nan, 30), (10, np.nan)])
def test_angles_that_are_no_ring_are_refused_as_such(ring):
    with pytest.raises(InputError, match="is none: its inner angle must be 0 or more and below"):
        virtual_detectors.annular(flat(), ANGLES, *ring)


def test_a_ring_beyond_the_angle_that_pixels_were_chosen_for_warns(tiny_sample):
    with pytest.warns(SimulationWarning, match=r"beyond the 100 mrad.*reach_mrad=112"):
        tiny_sample().annular(105, 112)


def test_a_ring_within_the_angle_that_was_given_does_not_warn(tiny_sample):
    sample = tiny_sample(reach_mrad=115)
    assert sample.provenance["reach_mrad"] == 115
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample.annular(105, 112)


def test_segments_make_up_the_ring_and_turn_from_x_towards_y():
    masks = namsa.segments(ANGLES, SHAPE, 6, 31, count=6, rotation_deg=17)
    assert (masks.sum(axis=0) == virtual_detectors.ring_pixels(ANGLES, SHAPE, 6, 31)).all()
    y, x = ANGLES.coordinates(SHAPE)
    quarters = namsa.segments(ANGLES, SHAPE, 0, 35)
    for mask, (sign_y, sign_x) in zip(quarters, [(1, 1), (1, -1), (-1, -1), (-1, 1)], strict=True):
        rows, columns = np.nonzero(mask)
        assert (np.sign(y[rows]) == sign_y).all()
        assert (np.sign(x[columns]) == sign_x).all()


def test_difference_of_opposite_segments_follows_a_shifted_disk():
    y, x = ANGLES.coordinates(SHAPE)
    disks = []
    for shift in (0.0, 4.0):
        disks.append(np.hypot(y[:, None] - shift, x[None, :]) < 20)
    values = namsa.detect(np.array(disks, float), ANGLES, namsa.segments(ANGLES, SHAPE, 0, 36, 2))
    assert values[0, 0] == values[0, 1]
    assert values[1, 0] > values[1, 1]  # segment 0 is the half of +y


def test_a_polygon_holds_the_pixels_inside_it():
    rectangle = [[-10, -20], [-10, 5], [16, 5], [16, -20]]
    y, x = ANGLES.coordinates(SHAPE)
    expected = np.outer((y > -10) & (y < 16), (x > -20) & (x < 5))
    assert (namsa.polygon(ANGLES, SHAPE, rectangle) == expected).all()
    with pytest.raises(InputError, match="no detector pixel lies in the polygon"):
        namsa.polygon(ANGLES, SHAPE, [[100, 0], [101, 0], [101, 1]])
    with pytest.raises(InputError, match="three corners"):
        namsa.polygon(ANGLES, SHAPE, [[1, 0], [0, 1]])


def test_weights_by_a_function_of_the_angles_give_the_first_moment():
    patterns = np.random.default_rng(0).random((3, *SHAPE))
    moments = namsa.detect(patterns, ANGLES, lambda y, x: np.array([y + 0 * x, x + 0 * y]))
    totals = patterns.sum(axis=(1, 2))
    deflection = virtual_detectors.centre_of_mass(patterns, ANGLES)
    np.testing.assert_allclose(moments / totals[:, None], deflection)


def test_a_function_of_one_angle_alone_holds_for_all_pixels():
    patterns = np.random.default_rng(0).random((3, *SHAPE))
    right = namsa.detect(patterns, ANGLES, lambda y, x: x > 0)
    by_both = namsa.detect(patterns, ANGLES, lambda y, x: (x > 0) | (y > np.inf))
    np.testing.assert_array_equal(right, by_both)


@pytest.mark.parametrize(
    "weights", [np.ones((30, 40)), np.ones(5), np.full(SHAPE, np.nan), np.ones(SHAPE, complex)]
)
def test_weights_that_are_none_of_a_pattern_are_refused(weights):
    with pytest.raises(InputError, match="weights"):
        namsa.detect(flat(), ANGLES, weights)


def test_images_of_a_sample_have_the_shape_of_its_scan(tiny_sample):
    sample = tiny_sample(detector=Detector(pixel_mrad=9.0, max_angle_mrad=63))
    assert sample.segmented(0, 30, 8).shape == (2, 3, 8)
    np.testing.assert_allclose(sample.segmented(0, 30, 8).sum(axis=-1), sample.annular(0, 30))
    assert sample.detect(lambda y, x: y**2 + x**2 < 900).shape == (2, 3)


@pytest.fixture
def tiny_sample():
    from ase.build import bulk

    atoms = bulk("Be", "bcc", a=2.6, cubic=True) * (3, 2, 1)

    def simulate(**settings):
        return namsa.simulate(
            atoms, energy_ev=80e3, semiangle_mrad=20, scan=(2, 3), sampling=None, **settings
        )

    return simulate
