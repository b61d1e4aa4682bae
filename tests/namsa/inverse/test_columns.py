"""Columns of a band-limited density: places, electrons, elements."""

import numpy as np
import pytest

from namsa.inverse.columns import atom_density, find_columns, share_out
from namsa.pixels import PixelGrid

TITANATE = {38: 1, 22: 1, 8: 3}
MAX_Q, EDGE = 1.25, 3.905
PIXELS = PixelGrid((0.4, 0.38), (0.1, -0.2))
SHAPE = (30, 34)


def titanate(cells: float = 16.0) -> np.ndarray:
    """The density of SrTiO3 along [001], of 16 cells along the beam, on a raster; the columns go on beyond it."""
    y, x = PIXELS.coordinates(SHAPE)
    sites = ((38, 0, 0), (22, 0.5, 0.5), (8, 0.5, 0.5), (8, 0.5, 0), (8, 0, 0.5))
    r = np.linspace(0, 8, 800)
    density = np.zeros(SHAPE)
    for number, sy, sx in sites:
        profile = cells * number * atom_density(r, number, MAX_Q)
        for i in range(-2, 6):
            for j in range(-2, 6):
                distance = np.hypot(y[:, None] - EDGE * (i + sy), x - EDGE * (j + sx))
                density += np.interp(distance, r, profile, right=0.0)
    return density


def test_an_atom_in_the_band_has_one_electron_per_electron():
    r = np.linspace(0, 30, 3_000)
    assert 2 * np.pi * np.trapezoid(r * atom_density(r, 22, MAX_Q), r) == pytest.approx(1, abs=0.02)


def test_columns_are_found_with_their_electrons():
    found = find_columns(titanate(), PIXELS, TITANATE, MAX_Q)
    inside = np.all((found.yx > 1) & (found.yx < (10.5, 11)), axis=1)
    offset = found.yx[inside] / (EDGE / 2) - np.round(found.yx[inside] / (EDGE / 2))
    assert np.abs(offset * EDGE / 2).max() < 0.05
    kinds = np.round(found.yx[inside] / (EDGE / 2)).astype(int) % 2
    electrons = found.electrons[inside] / 16
    for kind, expected in (((0, 0), 38), ((1, 1), 30), ((0, 1), 8), ((1, 0), 8)):
        own = electrons[(kinds == kind).all(axis=1)]
        assert len(own) >= 4
        np.testing.assert_allclose(own, expected, rtol=0.08)


def test_a_flat_density_has_no_columns():
    assert len(find_columns(np.ones(SHAPE), PIXELS, TITANATE, MAX_Q).electrons) == 0


def test_elements_are_shared_out_as_the_formula_has_them():
    electrons = np.array([8.0, 38.0, 8.0, 30.0, 8.0, 30.0, 8.0, 38.0])
    shares = share_out(electrons, TITANATE)
    np.testing.assert_allclose(shares[38], [0, 38, 0, 0, 0, 0, 0, 38], atol=1e-9)
    np.testing.assert_allclose(shares[22], [0, 0, 0, 22, 0, 22, 0, 0], atol=1e-9)
    of_half = share_out(np.array([20.0, 20.0]), {8: 1, 22: 1})  # no element is for one of two equal columns alone
    np.testing.assert_allclose(of_half[22], [44 / 3, 44 / 3])
    np.testing.assert_allclose(sum(shares.values()), electrons)
