"""Bad pixels, saturation and vacuum, from statistics of a scan."""

import numpy as np
import pytest

import namsa
from namsa.inspection import bad_pixels
from namsa.inspection.bad_pixels import find_bad_pixels
from namsa.inspection.survey import read_pieces, survey
from namsa.inspection.virtual_images import vacuum_intensity

SHAPE = (9, 11, 24, 28)


def stack(seed=0):
    y, x = (np.arange(n) - n / 2 for n in SHAPE[2:])
    mean = 40.0 * (np.hypot(y[:, None], x) < 7) + 1.5
    return np.random.default_rng(seed).poisson(np.broadcast_to(mean, SHAPE)).astype(np.float32)


def surveyed(values):
    with namsa.read(values) as recording:
        return survey(read_pieces(recording, lambda row: None), recording.shape)


def test_hot_dead_and_missing_pixels_are_found_and_no_others():
    values = stack()
    assert find_bad_pixels(surveyed(values), 99) == []
    values[:, :, 3, 5] += 30
    values[:, :, 12, 14] = 0
    values[:, :, 13, 15] = 0  # a neighbour at a corner
    values[:, :, 20, 2] = np.nan
    found = {(pixel.row, pixel.column): pixel for pixel in find_bad_pixels(surveyed(values), 99)}
    kinds = {place: pixel.kind for place, pixel in found.items()}
    assert kinds == {(3, 5): "hot", (12, 14): "dead", (13, 15): "dead", (20, 2): "missing"}
    assert found[3, 5].sigmas > 10


def test_dark_pixels_at_the_edge_of_what_is_lit_are_not_dead():
    """As at the band limit of a simulation, whose edge has notches."""
    values = stack() + 50
    y, x = np.indices(SHAPE[2:])
    values[:, :, np.hypot(y - 12, x - 14) > 9] = 0
    values[:, :, [12, 12, 5, 19], [7, 21, 14, 14]] = 0  # two pixels inside the edge
    values[:, :, 12, 14] = 0
    assert [(pixel.row, pixel.column) for pixel in find_bad_pixels(surveyed(values), 99)] == [(12, 14)]


def test_statistics_are_those_of_the_whole_scan(monkeypatch):
    values = stack()
    monkeypatch.setattr("namsa.inspection.survey.PIECE_BYTES", 7 * 24 * 28 * 4)  # several pieces in each row
    found = surveyed(values)
    np.testing.assert_allclose(found.mean, values.mean(axis=(0, 1)), rtol=1e-6)
    np.testing.assert_allclose(found.sums, values.sum(axis=(2, 3)), rtol=1e-6)
    np.testing.assert_array_equal(found.extremes[1], values.max(axis=(0, 1)))
    np.testing.assert_allclose(found.regions.mean(axis=(0, 1)).sum(), values.mean(axis=(0, 1)).sum(), rtol=0.01)
    assert found.variance[12, 14] == pytest.approx(41.5, rel=0.5)
    assert found.whole
    assert found.at_top.sum() == (values == values.max()).sum()


def test_full_counters_are_saturation_and_other_largest_values_are_not():
    values = stack()
    with namsa.read(values) as recording:
        assert bad_pixels.describe(recording, surveyed(values), [], np.ones(SHAPE[2:], bool))["saturated_values"] == 0
        full = np.minimum(values, 31)
        assert bad_pixels.describe(recording, surveyed(full), [], np.ones(SHAPE[2:], bool))["saturated_values"] == 0
    full = np.minimum(values * 10, 255)
    with namsa.read(full) as recording:
        described = bad_pixels.describe(recording, surveyed(full), [], np.ones(SHAPE[2:], bool))
    assert described["saturated_values"] == (full == 255).sum()


def test_vacuum_is_where_nothing_is_scattered():
    rng = np.random.default_rng(0)
    thickness = np.clip(np.linspace(-1, 2, 32), 0, None) * np.ones((24, 1))
    dark = rng.poisson(1e4 * (1 - np.exp(-0.3 * thickness)))
    bright = rng.poisson(1e4 * np.exp(-0.3 * thickness))
    mean, error = vacuum_intensity((bright + dark).astype(float), bright.astype(float), dark.astype(float))
    assert abs(mean - 1e4) < 3 * error < 200
    part = slice(16, None)  # without vacuum
    assert vacuum_intensity(*(image[:, part].astype(float) for image in (bright + dark, bright, dark))) is None
