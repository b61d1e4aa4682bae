"""Composite scans: their classes have the fractions that were asked for, and patterns are those of their samples."""

import numpy as np
import pytest

from train.input.views import SampleView
from train.tasks.segment.composer import LARGEST_DIAMETER, SHAPES, composite, draw_labels, ellipse, mean_area, polygon
from train.tasks.segment.section import Inclusion

SCAN = (24, 30)


def inclusion(fraction, least, most):
    return Inclusion(fraction=fraction, diameter_positions=(least, most))


@pytest.mark.parametrize("shape", [polygon, ellipse])
def test_a_shape_has_the_area_of_its_circle_and_lies_within_the_scan(shape):
    rng = np.random.default_rng(0)
    y, x = np.linspace(-1.2, 1.2, 401)[:, None], np.linspace(-1, 1, 301)[None]
    pixel = (y[1, 0] - y[0, 0]) * (x[0, 1] - x[0, 0])
    for _ in range(20):
        inside = shape(y, x, 2 * LARGEST_DIAMETER, rng)  # on a scan of sides 2.4 and 2
        assert inside.sum() * pixel == pytest.approx(np.pi * LARGEST_DIAMETER**2, rel=0.01)
        border = np.concatenate([inside[0], inside[-1], inside[:, 0], inside[:, -1]])
        assert not border.any()


def test_classes_have_the_fractions_that_were_asked_for():
    asked = {"grain": inclusion(0.2, 4, 9), "phase": inclusion(0.1, 2, 5)}
    shaped = [(each, SHAPES[name]) for name, each in asked.items()]
    rng, draws = np.random.default_rng(1), 3000
    found = np.array([np.bincount(draw_labels(SCAN, shaped, rng).ravel(), minlength=3) for _ in range(draws)])
    fractions = found / np.prod(SCAN)
    error = fractions.std(axis=0) / np.sqrt(draws)
    np.testing.assert_array_less(abs(fractions.mean(axis=0) - [0.7, 0.2, 0.1]), 4 * error)
    assert (error < 0.004).all()  # the comparison says something


def test_the_mean_area_is_that_of_evenly_drawn_diameters():
    diameters = np.random.default_rng(2).uniform(2, 5, 200_000)
    assert mean_area(inclusion(0.1, 2, 5)) == pytest.approx((np.pi / 4 * diameters**2).mean(), rel=0.01)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_each_position_has_the_pattern_of_its_class_as_a_fraction_of_the_beam(dtype):
    rng = np.random.default_rng(3)
    scales = (2.0**14, 2.0**10, 2.0**17) if dtype == "float16" else (1.0, 1.0, 1.0)
    truth = [rng.uniform(0.1, 0.2, (4, 5, 3, 2)) / (scale / 2.0**14) for scale in scales]
    views = [
        SampleView((array * scale).astype(dtype), scale, np.zeros((4, 5), np.float32), None)
        for array, scale in zip(truth, scales, strict=True)
    ]
    before = [view.patterns.copy() for view in views]
    labels = rng.integers(0, 3, (4, 5)).astype(np.uint8)
    found = composite(views[0], views[1:], labels)
    expected = np.choose(labels[..., None, None], truth)
    assert found.patterns.dtype == dtype
    np.testing.assert_allclose(found.patterns.astype(float) / found.scale, expected, rtol=2e-3)
    np.testing.assert_array_equal(found.density, labels)
    for view, array in zip(views, before, strict=True):  # stored samples are not changed
        np.testing.assert_array_equal(view.patterns, array)
    alone = composite(views[0], views[1:], np.zeros((4, 5), np.uint8))
    np.testing.assert_array_equal(alone.patterns, views[0].patterns)
