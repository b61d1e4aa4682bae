"""The factors from what a network says about its error to the error, their coverage, and the
command for both.
"""

import numpy as np
import pytest
from scipy import stats

from namsa.base.errors import WorkError
from train.measure.coverage import ONE_SIGMA, TWO_SIGMA, covering_factor
from train.tasks.density.scan.ensemble import Prediction
from train.tasks.density.trust import calibration as calibrate
from train.tasks.density.trust import uncertainty
from train.tasks.density.trust.familiarity import Familiarity
from train.tasks.density.trust.uncertainty import WindowError, calibrate_uncertainty


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_leaves_no_error_out(dtype: type) -> None:
    rng = np.random.default_rng(3)
    for error, spread in rng.uniform(0.1, 9, (500, 2, 3)).astype(dtype):
        assert np.mean(error <= covering_factor(error, spread) * spread) >= ONE_SIGMA


def test_answers_that_agree_and_are_wrong_are_not_covered() -> None:
    error = np.array([1.0] * 7 + [3.0])
    spread = np.array([1.0] * 7 + [0.0])
    factor = covering_factor(error, spread)
    assert factor == 1
    assert uncertainty.coverage(error, factor * spread)["coverage_68"] == 7 / 8
    with pytest.raises(WorkError, match="do not differ"):
        covering_factor(error, 0 * spread)


def test_the_variance_is_that_of_the_views_and_the_mean_of_what_they_predict() -> None:
    rng = np.random.default_rng(3)
    density = rng.normal(size=(8, 1, 4, 6))
    variance = rng.uniform(1, 4, (8, 1, 4, 6))
    spread, predicted = uncertainty.deviations(Prediction(density, variance))
    np.testing.assert_allclose(spread, density.std(axis=0, ddof=1))
    np.testing.assert_allclose(predicted, np.sqrt(variance.mean(axis=0)))
    row = WindowError(spread, spread, predicted, np.zeros(1), {})
    np.testing.assert_allclose(row.deviation(3.0), np.sqrt(spread**2 + 3 * predicted**2))
    assert not uncertainty.deviations(Prediction(density))[1].any()
    alone, predicted = uncertainty.deviations(Prediction(density[:1], variance[:1]))
    assert not alone.any()
    np.testing.assert_allclose(predicted, np.sqrt(variance[0]))


def test_spread_and_predicted_error_count_alike_whatever_their_measure() -> None:
    rng = np.random.default_rng(3)
    stated = rng.uniform(0.5, 4, (2, 40_000))
    error = abs(rng.normal(size=40_000)) * np.hypot(*stated)
    weights = []
    for k, m in ((1, 1), (5, 1), (5, 20)):
        weights.append(
            uncertainty.equalising_weight(
                [WindowError(error, stated[0] / k, stated[1] / m, np.zeros(1), {})]
            )
        )
    assert weights == pytest.approx([1.0, 0.04, 16.0], rel=0.05)
    assert (
        uncertainty.equalising_weight([WindowError(error, stated[0], 0 * error, np.zeros(1), {})])
        == 1
    )
    assert (
        uncertainty.equalising_weight([WindowError(error, 0 * error, stated[0], np.zeros(1), {})])
        == 1
    )


def windows(count: int, seed: int, shift: float = 0.0) -> list[WindowError]:
    """Windows with Laplace errors, two and a half times as large as they say, twice as large again
    for glass.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for index in range(count):
        kind, scale = ("glass", 2.0) if index % 4 == 0 else ("crystal", 1.0)
        stated = rng.uniform(0.5, 4, 2000)
        error = abs(rng.laplace(scale=2.5 * scale * stated))
        facts = {"kind": kind, "thickness_angstrom": 10.0 + index}
        rows.append(WindowError(error, stated, 0 * stated, rng.normal(shift, 1, 5), facts))
    return rows


def test_two_factors_cover_one_and_two_sigma_of_errors_with_heavy_tails() -> None:
    rng = np.random.default_rng(4)
    dev = windows(40, seed=5)
    test = windows(40, seed=6)
    learnt = Familiarity.fit(rng.normal(size=(300, 5)), np.stack([row.features for row in dev]))
    calibration = calibrate_uncertainty(dev, test, learnt, "8 symmetries", 8)
    assert calibration["samples"] == 40
    assert calibration["uncertainty_factor"] == calibration["scale"]
    same = [
        row for row in dev if row.facts["kind"] == "crystal"
    ]  # of one Laplace distribution: the factors are known
    crystals = calibrate_uncertainty(same, [], learnt, "8 symmetries", 8)
    one, two = (-np.log(1 - share) for share in (ONE_SIGMA, TWO_SIGMA))
    assert crystals["uncertainty_factor"] == pytest.approx(2.5 * one, rel=0.02)
    assert crystals["two_sigma_factor"] == pytest.approx(two / one, rel=0.02)
    assert two / one > stats.norm.ppf((1 + TWO_SIGMA) / 2)  # beyond the two of a Gaussian
    assert "test" not in crystals
    assert calibration["test"]["coverage_68"] == pytest.approx(0.683, abs=0.01)
    assert calibration["test"]["coverage_95"] == pytest.approx(0.954, abs=0.01)


def test_coverage_is_told_by_group_and_a_bad_group_does_not_hide_in_the_mean() -> None:
    learnt = Familiarity.fit(
        np.random.default_rng(7).normal(size=(300, 5)),
        np.random.default_rng(8).normal(size=(99, 5)),
    )
    dev = windows(40, seed=5)
    calibration = calibrate_uncertainty(
        dev, [*windows(40, seed=6), *windows(4, seed=9, shift=9.0)], learnt, "", 8
    )
    rows = {(row["by"], row["group"]): row for row in calibration["groups"]}
    assert rows["kind", "glass"]["windows"] == 11
    assert rows["kind", "glass"]["coverage_68"] < 0.55
    assert rows["kind", "crystal"]["coverage_68"] > 0.68
    assert rows["kind", "glass"]["least_68"] <= rows["kind", "glass"]["coverage_68"]
    ranges = []
    for by, group in rows:
        if by == "thickness_angstrom":
            ranges.append(group)
    assert ranges == ["10 to 23", "24 to 36", "37 to 49"]
    assert rows["familiarity", "flagged"]["windows"] >= 4
    assert calibration["test_flagged"] == pytest.approx(
        rows["familiarity", "flagged"]["windows"] / 44
    )


def test_how_much_the_coverage_differs_between_windows_is_told() -> None:
    rng = np.random.default_rng(11)
    stated = np.ones(4000)

    def errors_of(size: float) -> WindowError:
        return WindowError(
            abs(size * rng.normal(size=stated.size)), stated, 0 * stated, rng.normal(size=5), {}
        )

    learnt = Familiarity.fit(rng.normal(size=(300, 5)), rng.normal(size=(99, 5)))
    test = [errors_of(size) for size in np.linspace(0.5, 2.0, 61)]
    calibration = calibrate_uncertainty([errors_of(1.0) for _ in range(20)], test, learnt, "", 8)
    of_sizes = [float(2 * stats.norm.cdf(1 / size) - 1) for size in (1.75, 0.75)]
    assert calibration["windows_68"] == pytest.approx(of_sizes, abs=0.01)


def test_wrong_windows_are_told_by_the_error_that_is_stated_over_their_contrast() -> None:
    rng = np.random.default_rng(10)
    rows = []
    for index in range(60):
        # errors are 2 in the mean, which is wrong of the latter
        contrast = 10.0 if index % 3 else 2.0
        # one of the wrong windows does not know
        stated = np.full(500, 2.0) if index else np.full(500, 0.1)
        rows.append(
            WindowError(
                rng.exponential(2.0, 500),
                stated,
                0 * stated,
                rng.normal(size=5),
                {},
                None,
                (contrast, contrast),
            )
        )
    learnt = Familiarity.fit(rng.normal(size=(300, 5)), rng.normal(size=(99, 5)))
    wrong = uncertainty.wrong_windows([*rows, rows[0]._replace(contrast=(1.0, 0.0))], learnt, 1.0)
    assert wrong is not None
    assert (wrong["windows"], wrong["wrong"]) == (60, 20)
    assert wrong["auroc_contrast"] == pytest.approx(19 / 20)
    assert wrong["auroc_familiarity"] == pytest.approx(0.5, abs=0.2)
    assert uncertainty.wrong_windows(rows[1:3], learnt, 1.0) is None


def test_no_scores_are_added_where_a_run_was_not_evaluated(tmp_path) -> None:
    calibrate._add_scores(tmp_path / "evaluation.json", {}, tmp_path)
    assert not list(tmp_path.iterdir())
