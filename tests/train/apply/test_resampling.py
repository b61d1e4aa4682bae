"""Scans that fit a network, scans that are resampled, and scans that are refused."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from namsa import InputError
from namsa.io.calibration import FourDData
from train.apply import resampling
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
CENTRE, NAME = (16.0, 24.0), "scan.h5"


def test_every_misfit_is_named_at_once():
    wrong = replace(DATA, energy_ev=300e3, semiangle_mrad=25.0, scan_step_angstrom=(0.9, 0.5), pixel_mrad=(1.0, 17.0))
    with pytest.raises(InputError) as error:
        resampling.plan_resampling(wrong, CENTRE, TRAINED, NAME)
    for part in ("300 keV, trained for 200 ± 2 %", "25 mrad, trained for 20 ± 5 %", "0.9 and 0.5 Å, at most 0.8 and 1",
                 "1 and 17 mrad, at most 16"):  # fmt: skip
        assert part in str(error.value)
    resampling.check_fit(replace(DATA, energy_ev=203e3, semiangle_mrad=19.2), TRAINED, NAME)


@pytest.mark.parametrize(
    ("known", "line"),
    [
        ({}, None),
        ({"rotation_stated": False}, "detector's rotation: not stated, taken as none; namsa inspect measures it"),
        ({"rotation_deg": 180.0, "flip": True}, "detector turned by 180° after exchanging y and x"),
    ],
)
def test_the_rotation_is_noted_also_if_it_is_not_known(known, line):
    notes = resampling.plan_resampling(replace(DATA, **known), CENTRE, TRAINED, NAME).notes
    assert [note for note in notes if note.startswith("detector's rotation") or "turned" in note] == (
        [line] * bool(line)
    )


def test_shared_out_pixels_lose_no_electron_that_lands_on_the_detector():
    binning = resampling.plan_resampling(DATA, CENTRE, TRAINED, NAME).binning
    assert binning.shape == (24, 33 * 49)
    patterns = np.zeros((33, 49))
    patterns[3:30, 2:47] = np.random.default_rng(0).random((27, 45))  # all of them within 16 and 24 mrad
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
    trained = replace(TRAINED, detector_shape=(60, 60), pixel_mrad=(2.0, 2.0), first_edge=(-30.0, -30.0))
    y, x = 17.0, -41.0  # where the electron is on the detector, from the optic axis
    matrix = resampling.rotated_overlap((size, size), (1.0, 1.0), (100.0, 100.0), degrees, flip, trained)
    spot = np.zeros((size, size))
    spot[100 + int(y), 100 + int(x)] = 1
    binned = (matrix @ spot.ravel()).reshape(60, 60)
    angle, first, second = np.deg2rad(degrees), *((x, y) if flip else (y, x))
    expected = (first * np.cos(angle) - second * np.sin(angle), first * np.sin(angle) + second * np.cos(angle))
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
    with pytest.raises(InputError, match=r"reaches 10.5 mrad .* pixel \(10.0, 24.0\), the network's 16.0 mrad"):
        resampling.plan_resampling(DATA, (10.0, 24.0), TRAINED, NAME)


@pytest.mark.parametrize(("step", "positions"), [(0.4, 31), (0.397, 31), (0.6, 46), (0.25, 19), (0.1, 8)])
def test_a_slope_stays_a_slope_whatever_the_step(step, positions):
    weights, new_step = resampling.hat_weights(31, step, 0.4)
    assert weights.shape[0] == positions
    assert new_step == (step if positions == 31 else 0.4)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-6)
    inner = (weights @ (step * np.arange(31)))[1:-1]  # the last hats are cut off by the scan's ends
    np.testing.assert_allclose(inner, new_step * np.arange(positions)[1:-1], rtol=1e-5)
    noise = np.sqrt(weights.multiply(weights).sum(axis=1))[1:-1].max()
    assert noise < 0.62 if step == 0.1 else noise <= 1  # of four patterns a step three are averaged, as 1 : 2 : 1


def test_what_is_done_is_said():
    plan = resampling.plan_resampling(replace(DATA, scan_step_angstrom=(0.25, 0.5)), CENTRE, TRAINED, NAME)
    assert plan.step_angstrom == (0.4, 0.5)
    assert (plan.along_y.shape[0], plan.along_x.shape[0]) == (12, 30)
    assert "scan resampled from steps of 0.25 and 0.5 Å to 0.4 and 0.5 Å: 12×30 positions" in plan.notes


def test_an_ellipse_is_made_a_circle_before_the_rotation():
    y, x = np.arange(33)[:, None] - 16.0, np.arange(49) - 24.0
    ellipse = np.clip(10.5 - np.hypot(y * np.sqrt(1.3), x / np.sqrt(1.3)), 0, 1)  # along x
    shared = {}
    for name, correction in (("left", None), ("made", (1.3, 0.0))):
        fine = replace(TRAINED, detector_shape=(16, 16), pixel_mrad=(2.0, 2.0), first_edge=(-8.0, -8.0))
        plan = resampling.plan_resampling(replace(DATA, ellipse=correction, rotation_deg=90.0), CENTRE, fine, NAME)
        image = (plan.binning @ ellipse.ravel()).reshape(16, 16)
        along = [(image.sum(axis=axis) * (np.arange(16) - 7.5) ** 2).sum() for axis in (0, 1)]
        shared[name] = along[0] / along[1]
    assert shared["left"] < 0.7  # turned by 90°, the major axis lies along y
    assert shared["made"] == pytest.approx(1, abs=0.05)
