"""Windows over a scan: they cover it, leave no seam, and see no more rows than they need."""

import numpy as np
import pytest
from scipy import sparse

from namsa import InputError
from train.apply import tiles
from train.apply.resampling import hat_weights


@pytest.mark.parametrize(("size", "side", "multiple"), [(24, 24, 4), (61, 24, 4), (25, 24, 4), (512, 24, 8), (9, 8, 4)])
def test_windows_cover_the_scan_and_begin_where_the_network_may(size, side, multiple):
    windows = tiles.window_slices(size, side, multiple)
    assert {window.stop - window.start for window in windows} == {side}
    assert all(window.start % multiple == 0 for window in windows[:-1])
    assert (windows[0].start, windows[-1].stop) == (0, size)
    total = sum(np.pad(tiles.window_weights(w, size, 2), (w.start, size - w.stop)) for w in windows)
    assert total.min() > 0


def test_windows_apart_cover_the_scan_with_as_few_as_it_takes():
    for size, chosen in ((24, [0]), (28, [0, 1]), (48, [0, 2]), (60, [0, 2, 3]), (72, [0, 2, 4]), (75, [0, 2, 4, 5])):
        windows = tiles.window_slices(size, 24, 4)
        assert tiles.covering_subset(windows) == chosen
        assert len(set().union(*(range(windows[n].start, windows[n].stop) for n in chosen))) == size


def test_a_window_is_the_trained_one_or_what_a_small_scan_holds():
    assert [tiles.window_side(size, 24, 4) for size in (500, 24, 23, 4)] == [24, 24, 20, 4]
    with pytest.raises(InputError, match="3 positions.*needs 4"):
        tiles.window_side(3, 24, 4)


def test_windows_that_agree_leave_no_seam_and_their_order_does_not_matter():
    shape, rng = (21, 30), np.random.default_rng(0)
    image = rng.normal(size=shape)
    places = [(y, x) for y in tiles.window_slices(21, 8, 2) for x in tiles.window_slices(30, 12, 2)]
    one, other, noisy = (tiles.Blend(shape, margin=1) for _ in range(3))
    for place in places:
        one.add(place, image[place][None])
    np.testing.assert_allclose(one.mean(), image, atol=1e-12)
    assert one.deviation().max() < 1e-6  # the root of float64's rounding
    answers = {number: image[place] + rng.normal(size=(5, 8, 12)) for number, place in enumerate(places)}
    for number, answer in answers.items():
        noisy.add(places[number], answer)
    for number, answer in reversed(answers.items()):
        other.add(places[number], answer)
    np.testing.assert_allclose(noisy.mean(), other.mean(), atol=1e-12)
    assert 0.7 < noisy.deviation().mean() < 1.1  # five of deviation 1 each


@pytest.mark.parametrize("step", [1.0, 0.7, 1.6, 3.1])
@pytest.mark.parametrize("height", [1, 4, 7, 40])
def test_strips_are_the_rows_of_the_whole_product(step, height):
    rows = np.random.default_rng(1).normal(size=(31, 3, 2)).astype(np.float32)
    resampling, _ = hat_weights(31, 1.0, step)
    windows = tiles.window_slices(resampling.shape[0], 6, 2)
    whole = (resampling @ rows.reshape(31, -1)).reshape(-1, 3, 2)
    read = []

    def bands():
        for first in range(0, 31, height):
            read.append(min(31, first + height))
            yield rows[first : first + height]

    for window, strip in zip(windows, tiles.strips(bands(), resampling, windows), strict=True):
        np.testing.assert_allclose(strip, whole[window], rtol=1e-6)
        needed = int(sparse.find(resampling[window.start : window.stop])[1].max()) + 1
        assert read[-1] < needed + height  # nothing is read ahead of its strip


def test_chosen_windows_are_evenly_spaced_and_at_most_all():
    assert list(tiles.spread_windows((3, 9), (4, 3))) == [(y, x) for y in (0, 1, 2) for x in (1, 4, 7)]
    assert list(tiles.spread_windows((1, 2), (1, 1)).items()) == [((0, 1), 0)]
    assert list(tiles.spread_windows((2, 2), (2, 2)).values()) == [0, 1, 2, 3]
