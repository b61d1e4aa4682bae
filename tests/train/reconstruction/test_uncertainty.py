"""The factor from spread to error, its coverage, and the command that measures both."""

import json

import numpy as np
import pytest
import run_files
from synthetic import sample

from namsa.dataset import records
from namsa.errors import WorkError
from namsa.inverse.consistency import Consistency
from train.__main__ import main
from train.reconstruction import calibrate, uncertainty


def spreads_and_errors(factor: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian errors `factor` times as wide as the spread says, which differs from pixel to pixel."""
    rng = np.random.default_rng(seed)
    spread = rng.uniform(0.5, 4, 40_000)
    return abs(factor * spread * rng.normal(size=spread.size)), spread


def test_factor_is_found_and_covers_what_it_was_not_chosen_on() -> None:
    error, spread = spreads_and_errors(2.5, seed=1)
    factor = uncertainty.uncertainty_factor(error, spread)
    assert factor == pytest.approx(2.5, rel=0.02)
    error, spread = spreads_and_errors(2.5, seed=2)
    covered = uncertainty.coverage(error, factor * spread)
    assert covered["coverage_68"] == pytest.approx(0.683, abs=0.01)
    assert covered["coverage_95"] == pytest.approx(0.954, abs=0.01)


def test_answers_that_agree_and_are_wrong_are_not_covered() -> None:
    error, spread = np.array([1.0] * 7 + [3.0]), np.array([1.0] * 7 + [0.0])
    factor = uncertainty.uncertainty_factor(error, spread)
    assert factor == 1
    assert uncertainty.coverage(error, factor * spread)["coverage_68"] == 7 / 8
    with pytest.raises(WorkError, match="do not differ"):
        uncertainty.uncertainty_factor(error, 0 * spread)


def test_calibration_is_of_the_dev_split_and_measured_on_test() -> None:
    samples = [records.decode(records.encode(sample(seed), "float32")) for seed in range(4)]
    rng = np.random.default_rng(0)
    truths = {bytes(one.patterns().tobytes()): one.density for one in samples}

    def predict(windows: np.ndarray) -> np.ndarray:
        truth = truths[windows.tobytes()]
        shared = 3 * rng.normal(size=truth.shape)  # an error that the members do not know of
        return truth + shared + rng.normal(size=(8, 1, *truth.shape))

    calibration = uncertainty.calibrate_uncertainty(predict, samples[:2], samples[2:], "8 symmetries", 8)
    assert calibration["samples"] == 2
    assert calibration["uncertainty_factor"] == calibration["scale"] > 2
    assert calibration["coverage_68"] == pytest.approx(0.683, abs=0.01)
    assert calibration["test"]["coverage_68"] == pytest.approx(0.683, abs=0.1)


def test_scores_are_added_to_the_evaluation(tmp_path) -> None:
    path = tmp_path / "evaluation.json"
    calibrate._add_scores(path, {})  # a run that was not evaluated
    evaluation = run_files.evaluation()
    scored, other = (evaluation["samples"][0] | {"id": name} for name in ("a", "b"))
    path.write_text(json.dumps(evaluation | {"samples": [scored, other]}), encoding="utf-8")
    calibrate._add_scores(path, {"a": Consistency(0.1, np.zeros((2, 2)), 0.4, 1.0)})
    rows = json.loads(path.read_text(encoding="utf-8"))["samples"]
    assert rows == [scored | {"consistency_r": 0.1, "consistency_empty_r": 0.4}, other]


def test_a_folder_that_is_no_run_is_bad_input(tmp_path, capsys) -> None:
    assert main(["calibrate", str(tmp_path / "none")]) == 2
    assert "neither a run directory" in capsys.readouterr().err
