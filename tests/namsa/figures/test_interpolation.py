"""Interpolation of images: exact for what their pixels hold, over the same area, and silent where nothing is known."""

import numpy as np

from namsa.figures.interpolation import FINER, interpolated


def waves(y, x):
    """Cosines that are even about the edges of 12 × 20 pixels, with frequencies up to those of the pixels."""
    return (
        3 + np.cos(np.pi * 11 * (y + 0.5) / 12)[:, None] * np.cos(np.pi * 4 * (x + 0.5) / 20)[None, :]
        + 0.3 * np.cos(np.pi * 2 * (y + 0.5) / 12)[:, None] * np.cos(np.pi * 19 * (x + 0.5) / 20)[None, :]
    )  # fmt: skip


def finer(length):
    """Centres of the finer pixels over the same area, in pixels."""
    return (np.arange(FINER * length) + 0.5) / FINER - 0.5


def test_what_the_pixels_hold_is_exact():
    found = interpolated(waves(np.arange(12), np.arange(20)))
    np.testing.assert_allclose(found, waves(finer(12), finer(20)), atol=1e-12)


def test_atoms_keep_their_height_and_place_between_pixels():
    """A Gaussian of σ = 1.2 pixels whose centre is at no pixel: the largest pixel is 13 % lower than its peak."""

    def atom(y, x):
        return np.exp(-((y - 9.5)[:, None] ** 2 + (x - 12.4)[None, :] ** 2) / (2 * 1.2**2))

    coarse, found = atom(np.arange(18), np.arange(26)), interpolated(atom(np.arange(18), np.arange(26)))
    assert coarse.max() < 0.87
    np.testing.assert_allclose(found, atom(finer(18), finer(26)), atol=2e-3)


def test_unknown_pixels_stay_unknown_and_change_no_others():
    image = np.full((6, 9), 2.0)
    image[2, 3:5] = np.nan
    found = interpolated(image)
    assert np.isnan(found[8:12, 12:20]).all()
    assert np.isnan(found).sum() == 2 * FINER**2
    np.testing.assert_allclose(found[~np.isnan(found)], 2)
    assert np.isnan(interpolated(np.full((2, 3), np.nan))).all()
