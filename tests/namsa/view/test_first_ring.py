"""The first ring of the virtual detector in the page of measured patterns: the direct beam."""

import numpy as np
import pytest
from page_data import data_of

import namsa
from namsa.base.pixels import PixelGrid
from namsa.view import recording_page


def test_the_first_ring_of_an_unknown_microscope_does_not_cover_the_detector():
    page = namsa.browse(np.ones((2, 3, 12, 16), np.uint16))
    assert data_of(page.text)["detector"]["outer"] == pytest.approx(3.6)


def test_the_first_ring_is_the_direct_beam_among_diffracted_ones():
    y, x = np.indices((64, 64)) - 32
    pattern = 100.0 * (np.hypot(y, x) < 5)
    for turn in np.arange(6) * np.pi / 3:
        pattern += 30 * (np.hypot(y - 20 * np.cos(turn), x - 20 * np.sin(turn)) < 6)
    page = namsa.browse(np.broadcast_to(pattern.astype("u2"), (2, 3, 64, 64)))
    assert data_of(page.text)["detector"]["outer"] == pytest.approx(5, abs=0.5)


def test_disk_is_found_within_its_pixels():
    y, x = np.indices((64, 64)) - np.array([30.0, 33.0])[:, None, None]
    angles = PixelGrid((0.5, 0.5), (-15.0, -16.5))
    assert recording_page.disk_radius(np.hypot(y, x) < 20, angles) == pytest.approx(10, rel=0.01)
