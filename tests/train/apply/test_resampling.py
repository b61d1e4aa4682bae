"""Scans that fit a network, are resampled or refused; and windows that cover them without a
seam.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from namsa import InputError
from namsa.io.calibration import FourDData
from train.apply import resampling, tiles
from train.apply.resampling import hat_weights
from train.experiment.conditions import Conditions

TRAINED = Conditions(
    energy_ev=200e3,
    semiangle_mrad=20.0,
    scan_shape=(8, 12),
    scan_step_angstrom=(0.4, 0.5),
    detector_shape=(4, 6),
    pixel_mrad=(8.0, 8.0),
    first_edge=(-2.0, -3.0),
    symmetric=True,
)
DATA = FourDData(
    data=SimpleNamespace(shape=(20, 30, 33, 49), chunks=None),
    scan_step_angstrom=(0.4, 0.5),
    scan_origin_angstrom=(0.0, 0.0),
    pixel_mrad=(1.0, 1.0),
    energy_ev=200e3,
    semiangle_mrad=20.0,
    centre_pixels=None,
    rotation_deg=0.0,
    flip=False,
    normalised=True,
)
CENTRE = (16.0, 24.0)
NAME = "scan.h5"


def test_every_misfit_is_named_at_once():
    wrong = replace(
        DATA,
        energy_ev=300e3,
        semiangle_mrad=25.0,
        scan_step_angstrom=(0.9, 0.5),
        pixel_mrad=(1.0, 17.0),
    )
    with pytest.raises(InputError) as error:
        resampling.plan_resampling(wrong, CENTRE, TRAINED, NAME)
    for words in ("300 keV, trained for 200 ± 2 %", "25 mrad, trained for 20 ± 5 %",
    "0.9 and 0.5 Å, at most 0.8 and 1",
                 "1 and 17 mrad, at most 16"):  # fmt: skip
        assert words in str(error.value)
    resampling.check_fit(replace(DATA, energy_ev=203e3, semiangle_mrad=19.2), TRAINED, NAME)
    with pytest.raises(InputError, match=r"Is it in rad\? Then give 20$"):
        resampling.check_fit(replace(DATA, semiangle_mrad=0.02), TRAINED, NAME)


def test_a_step_one_percent_too_long_is_resampled_as_others_are():
    long = replace(DATA, scan_step_angstrom=(0.808, 0.5))
    notes = resampling.plan_resampling(long, CENTRE, TRAINED, NAME).notes
    assert "scan resampled from steps of 0.808 and 0.5 Å to 0.4 and 0.5 Å: 39×30 positions" in notes


@pytest.mark.parametrize(
    ("known", "line"),
    [
        ({}, None),
        (
            {"rotation_stated": False},
            "detector's rotation: not stated, taken as none; namsa inspect measures it",
        ),
        ({"rotation_deg": 180.0, "flip": True}, "detector turned by 180° after exchanging y and x"),
    ],
)
def test_the_rotation_is_noted_also_if_it_is_not_known(known, line):
    notes = resampling.plan_resampling(replace(DATA, **known), CENTRE, TRAINED, NAME).notes
    assert [
        note for note in notes if note.startswith("detector's rotation") or "turned" in note
    ] == ([line] * bool(line))


def test_shared_out_pixels_lose_no_electron_that_lands_on_the_detector():
    binning = resampling.plan_resampling(DATA, CENTRE, TRAINED, NAME).binning
    assert binning.shape == (24, 33 * 49)
    patterns = np.zeros((33, 49))
    patterns[3:30, 2:47] = np.random.default_rng(0).random(
        (27, 45)
    )  # all of them within 16 and 24 mrad
    assert (binning @ patterns.ravel()).sum() == pytest.approx(patterns.sum())
    even = (binning @ np.ones(33 * 49)).reshape(4, 6)
    np.testing.assert_allclose(even, 64, rtol=1e-5)  # 8 mrad squared of pixels of 1 mrad
    # An electron at +5 mrad in y and −13 mrad in x, and one on the border of four pixels.
    spot = np.zeros((33, 49))
    spot[21, 11] = 1
    assert np.argwhere((binning @ spot.ravel()).reshape(4, 6)).tolist() == [[2, 1]]
    spot = np.zeros((33, 49))
    spot[16, 24] = 1
    np.testing.assert_allclose((binning @ spot.ravel()).reshape(4, 6)[1:3, 2:4], 0.25)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("degrees", [0.0, 90.0, 180.0, -37.0])
def test_a_turned_detector_is_turned_back(degrees, flip):
    size = 201  # fine and large, so that the moment of the network's pixels is that of the electron
    trained = replace(
        TRAINED, detector_shape=(60, 60), pixel_mrad=(2.0, 2.0), first_edge=(-30.0, -30.0)
    )
    # where the electron is on the detector, from the optic axis
    y = 17.0
    x = -41.0
    matrix = resampling.rotated_overlap(
        (size, size), (1.0, 1.0), (100.0, 100.0), degrees, flip, trained
    )
    spot = np.zeros((size, size))
    spot[100 + int(y), 100 + int(x)] = 1
    binned = (matrix @ spot.ravel()).reshape(60, 60)
    angle, first, second = np.deg2rad(degrees), *((x, y) if flip else (y, x))
    expected = (
        first * np.cos(angle) - second * np.sin(angle),
        first * np.sin(angle) + second * np.cos(angle),
    )
    centres = (np.arange(60) - 29.5) * 2
    assert binned.sum() == pytest.approx(1)
    assert binned.sum(axis=1) @ centres == pytest.approx(expected[0], abs=1)
    assert binned.sum(axis=0) @ centres == pytest.approx(expected[1], abs=1)


def test_a_turned_detector_agrees_with_a_straight_one_and_its_dark_corners_are_said():
    straight = resampling.plan_resampling(DATA, CENTRE, TRAINED, NAME).binning
    turned = resampling.rotated_overlap((33, 49), (1.0, 1.0), CENTRE, 0.0, False, TRAINED)
    assert abs(straight - turned).max() < 1e-6
    square = replace(TRAINED, detector_shape=(4, 4), first_edge=(-2.0, -2.0))
    plan = resampling.plan_resampling(replace(DATA, rotation_deg=45.0), CENTRE, square, NAME)
    assert any("in the corners" in line for line in plan.notes)


def test_a_detector_that_ends_too_early_is_refused():
    with pytest.raises(
        InputError, match=r"reaches 10.5 mrad .* pixel \(10.0, 24.0\), the network's 16.0 mrad"
    ):
        resampling.plan_resampling(DATA, (10.0, 24.0), TRAINED, NAME)


@pytest.mark.parametrize(
    ("step", "positions"), [(0.4, 31), (0.397, 31), (0.6, 46), (0.25, 19), (0.1, 8)]
)
def test_a_slope_stays_a_slope_whatever_the_step(step, positions):
    weights, new_step = resampling.hat_weights(31, step, 0.4)
    assert weights.shape[0] == positions
    assert new_step == (step if positions == 31 else 0.4)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-6)
    inner = (weights @ (step * np.arange(31)))[1:-1]  # the last hats are cut off by the scan's ends
    np.testing.assert_allclose(inner, new_step * np.arange(positions)[1:-1], rtol=1e-5)
    noise = np.sqrt(weights.multiply(weights).sum(axis=1))[1:-1].max()
    assert (
        noise < 0.62 if step == 0.1 else noise <= 1
    )  # of four patterns a step three are averaged, as 1 : 2 : 1


def test_what_is_done_is_said():
    plan = resampling.plan_resampling(
        replace(DATA, scan_step_angstrom=(0.25, 0.5)), CENTRE, TRAINED, NAME
    )
    assert plan.step_angstrom == (0.4, 0.5)
    assert (plan.along_y.shape[0], plan.along_x.shape[0]) == (12, 30)
    assert (
        "scan resampled from steps of 0.25 and 0.5 Å to 0.4 and 0.5 Å: 12×30 positions"
        in plan.notes
    )


def test_an_ellipse_is_made_a_circle_before_the_rotation():
    y = np.arange(33)[:, None] - 16.0
    x = np.arange(49) - 24.0
    ellipse = np.clip(10.5 - np.hypot(y * np.sqrt(1.3), x / np.sqrt(1.3)), 0, 1)  # along x
    shared = {}
    for name, correction in (("left", None), ("made", (1.3, 0.0))):
        fine = replace(
            TRAINED, detector_shape=(16, 16), pixel_mrad=(2.0, 2.0), first_edge=(-8.0, -8.0)
        )
        plan = resampling.plan_resampling(
            replace(DATA, ellipse=correction, rotation_deg=90.0), CENTRE, fine, NAME
        )
        image = (plan.binning @ ellipse.ravel()).reshape(16, 16)
        along = [(image.sum(axis=axis) * (np.arange(16) - 7.5) ** 2).sum() for axis in (0, 1)]
        shared[name] = along[0] / along[1]
    assert shared["left"] < 0.7  # turned by 90°, the major axis lies along y
    assert shared["made"] == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("size", "side", "multiple"), [(24, 24, 4), (61, 24, 4), (25, 24, 4), (512, 24, 8), (9, 8, 4)]
)
def test_windows_cover_the_scan_and_begin_where_the_network_may(size, side, multiple):
    windows = tiles.window_slices(size, side, multiple)
    assert {window.stop - window.start for window in windows} == {side}
    for window in windows[:-1]:
        assert window.start % multiple == 0
    assert (windows[0].start, windows[-1].stop) == (0, size)
    total = sum(np.pad(tiles.window_weights(w, size, 2), (w.start, size - w.stop)) for w in windows)
    assert total.min() > 0


def test_windows_apart_cover_the_scan_with_as_few_as_it_takes():
    for size, chosen in (
        (24, [0]),
        (28, [0, 1]),
        (48, [0, 2]),
        (60, [0, 2, 3]),
        (72, [0, 2, 4]),
        (75, [0, 2, 4, 5]),
    ):
        windows = tiles.window_slices(size, 24, 4)
        assert tiles.covering_subset(windows) == chosen
        assert len(set().union(*(range(windows[n].start, windows[n].stop) for n in chosen))) == size


def test_a_window_is_the_trained_one_or_what_a_small_scan_holds():
    assert [tiles.window_side(size, 24, 4) for size in (500, 24, 23, 4)] == [24, 24, 20, 4]
    with pytest.raises(InputError, match="3 positions.*needs 4"):
        tiles.window_side(3, 24, 4)


def test_windows_that_agree_leave_no_seam_and_their_order_does_not_matter():
    shape = (21, 30)
    rng = np.random.default_rng(0)
    image = rng.normal(size=shape)
    places = []
    for y in tiles.window_slices(21, 8, 2):
        for x in tiles.window_slices(30, 12, 2):
            places.append((y, x))
    one, other, noisy = (tiles.Blend(shape, margin=1) for _ in range(3))
    for place in places:
        one.add(place, image[place][None])
    np.testing.assert_allclose(one.mean(), image, atol=1e-12)
    assert one.deviation().max() < 1e-6  # the root of float64's rounding
    answers = {
        index: image[place] + rng.normal(size=(5, 8, 12)) for index, place in enumerate(places)
    }
    for index, answer in answers.items():
        noisy.add(places[index], answer)
    for index, answer in reversed(answers.items()):
        other.add(places[index], answer)
    np.testing.assert_allclose(noisy.mean(), other.mean(), atol=1e-12)
    assert 0.7 < noisy.deviation().mean() < 1.1  # five of deviation 1 each


@pytest.mark.parametrize("step", [1.0, 0.7, 1.6, 3.1])
@pytest.mark.parametrize("height", [1, 4, 7, 40])
def test_strips_are_the_rows_of_the_whole_product(step, height):
    rows = np.random.default_rng(1).normal(size=(31, 3, 2)).astype(np.float32)
    resampling, _ = hat_weights(31, 1.0, step)
    windows = tiles.window_slices(resampling.shape[0], 6, 2)
    product = (resampling @ rows.reshape(31, -1)).reshape(-1, 3, 2)
    read = []

    def bands():
        for start in range(0, 31, height):
            read.append(min(31, start + height))
            yield rows[start : start + height]

    for window, strip in zip(windows, tiles.strips(bands(), resampling, windows), strict=True):
        np.testing.assert_allclose(strip, product[window], rtol=1e-6)
        needed = int(sparse.find(resampling[window.start : window.stop])[1].max()) + 1
        assert read[-1] < needed + height  # nothing is read ahead of its strip


def test_chosen_windows_are_evenly_spaced_and_at_most_all():
    assert list(tiles.spread_windows((3, 9), (4, 3))) == [
        (y, x) for y in (0, 1, 2) for x in (1, 4, 7)
    ]
    assert list(tiles.spread_windows((1, 2), (1, 1)).items()) == [((0, 1), 0)]
    assert list(tiles.spread_windows((2, 2), (2, 2)).values()) == [0, 1, 2, 3]
