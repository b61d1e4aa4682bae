"""Reconstruction numbers against examples worked by hand."""

import json
import math

import numpy as np
import pytest

from namsa.base.errors import InputError, WorkError
from train.measure.metrics import NAMES, image_metrics, mean_metrics
from train.optimization.losses import huber

TRUTH = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 10.0]])
ERROR = np.array([[0.5, -0.5, 0.0], [1.0, 0.0, -4.0]])  # Σ|e| = 6, Σe² = 17.5


def test_numbers_worked_by_hand():
    result = image_metrics(TRUTH + ERROR, TRUTH, huber_delta=1.0)
    assert tuple(result) == NAMES
    assert result["mae"] == pytest.approx(6 / 6)
    assert result["r_factor"] == pytest.approx(6 / 20)
    assert result["psnr"] == pytest.approx(10 * math.log10(10**2 / (17.5 / 6)))
    # 0.125 + 0.125 + 0 + 0.5 + 0 + 1·(4 − 0.5)
    assert result["huber"] == pytest.approx(4.25 / 6)


def test_huber_is_the_training_loss():
    rng = np.random.default_rng(1)
    truth, prediction = rng.normal(40.0, 9.0, (2, 6, 9))
    for limits in (None, (0.0, 0.01), (0.5, 0.01), (0.0, 3.0)):
        pair = [(image / 10).astype(np.float32)[None, ..., None] for image in (prediction, truth)]
        result = image_metrics(
            prediction, truth, huber_delta=1.0, density_scale=10.0, limits=limits
        )
        assert result["huber"] == pytest.approx(
            float(huber(*pair, 1.0, limits)), rel=1e-5
        )  # in the training's units
        assert result["mae"] == pytest.approx(np.abs(prediction - truth).mean())


def test_pearson_knows_sign_and_ignores_scale():
    assert image_metrics(3 * TRUTH + 7, TRUTH, huber_delta=1.0)["pearson"] == pytest.approx(1)
    assert image_metrics(-TRUTH, TRUTH, huber_delta=1.0)["pearson"] == pytest.approx(-1)
    # deviations (−1, 0, 1, 0) and (−1, 1, 1, −1): 2 / √(2·4)
    result = image_metrics([[0.0, 2.0], [2.0, 0.0]], [[0.0, 1.0], [2.0, 1.0]], huber_delta=1.0)
    assert result["pearson"] == pytest.approx(2 / math.sqrt(8))


def test_ssim_of_one_window_worked_by_hand():
    t = np.zeros((3, 3))
    t[1, 1] = 9.0  # mean 1, unbiased variance (8·1 + 64)/8 = 9, range 9
    c1 = (0.01 * 9) ** 2
    c2 = (0.03 * 9) ** 2
    by_hand = (2 * 1 * 2 + c1) * (2 * 18 + c2) / ((1 + 4 + c1) * (9 + 36 + c2))
    assert image_metrics(2 * t, t, huber_delta=1.0)["ssim"] == pytest.approx(by_hand)


def test_ssim_falls_with_noise_and_is_one_for_the_truth():
    rng = np.random.default_rng(1)
    t = np.abs(np.sin(np.arange(20)[:, None] / 3) * np.cos(np.arange(28) / 4)) * 30
    noise = rng.normal(size=t.shape)
    quality = []
    for amplitude in (0, 1, 4, 16):
        quality.append(image_metrics(t + amplitude * noise, t, huber_delta=1.0)["ssim"])
    assert quality[0] == pytest.approx(1)
    assert quality == sorted(quality, reverse=True)
    assert quality[3] < 0.5


def test_perfect_prediction_has_no_psnr():
    t = np.kron(TRUTH, np.ones((4, 4)))
    result = image_metrics(t, t, huber_delta=1.0)
    assert result["psnr"] is None
    assert {k: v for k, v in result.items() if k != "psnr"} == pytest.approx(
        {"huber": 0, "mae": 0, "ssim": 1, "pearson": 1, "r_factor": 0}
    )


@pytest.mark.parametrize(("level", "r_factor"), [(2.0, 0.5), (0.0, None)])
def test_constant_truth_is_defined_and_json(level, r_factor):
    t = np.full((8, 9), level)
    result = image_metrics(t + 1, t, huber_delta=1.0)
    assert result == {
        "huber": 0.5,
        "mae": 1,
        "psnr": None,
        "ssim": None,
        "pearson": None,
        "r_factor": r_factor,
    }
    json.dumps(result, allow_nan=False)
    assert (
        image_metrics(np.ones((3, 3)), np.eye(3), huber_delta=1.0)["pearson"] is None
    )  # of a constant prediction
    assert (
        image_metrics(np.eye(2), 2 * np.eye(2), huber_delta=1.0)["ssim"] is None
    )  # of less than a window


def test_mean_leaves_out_what_is_undefined():
    rows = [dict.fromkeys(NAMES, 1.0), dict.fromkeys(NAMES, 3.0) | {"psnr": None}]
    assert mean_metrics(rows) == dict.fromkeys(NAMES, 2.0) | {"psnr": 1.0}
    assert mean_metrics([]) == dict.fromkeys(NAMES, None)


@pytest.mark.parametrize(
    ("p", "t", "message"),
    [
        (np.ones((3, 4)), np.ones((4, 3)), "one shape"),
        (np.ones(4), np.ones(4), r"\(H, W\)"),
    ],
)
def test_other_shapes_are_errors(p, t, message):
    with pytest.raises(InputError, match=message):
        image_metrics(p, t, huber_delta=1.0)


def test_pixels_that_are_not_finite_are_errors():
    bad = np.array([[np.nan, 1.0]])
    good = np.ones((1, 2))
    with pytest.raises(WorkError, match="1 of 2 pixels of the prediction"):
        image_metrics(bad, good, huber_delta=1.0)
    with pytest.raises(WorkError, match="1 of 2 pixels of the truth"):
        image_metrics(good, bad, huber_delta=1.0)
