"""The data curve's jobs: equally many steps, of equally stretched schedules, whatever the number of samples."""

import data_curve
import numpy as np
import pytest
from paths import ROOT

from train.experiment.experiment import load
from train.optimization.loop import learning_rate
from train.optimization.losses import huber_delta

CONFIG = ROOT / "configs/quickstart.yaml"  # 30 epochs, batches of 2


def overridden(samples, ranks, steps):
    changes = data_curve.stretched(load(CONFIG), samples, ranks, steps)
    return load(CONFIG, [f"{key}={value}" for key, value in changes.items()]).training


def test_fewer_samples_take_as_many_steps():
    for samples, ranks in ((40, 1), (80, 1), (320, 1), (80, 2), (320, 4)):
        training = overridden(samples, ranks, 1200)
        assert training.samples == samples
        an_epoch = samples // ranks // training.batch_size
        assert abs(training.epochs * an_epoch - 1200) <= an_epoch / 2


def test_rates_and_losses_are_those_of_the_same_step():
    few, many = overridden(40, 1, 1200), overridden(320, 1, 1200)
    steps = np.array([5, 30, 200, 400, 700, 1100])

    def rates(training, an_epoch):
        return [learning_rate(training.schedule, 1.0, 1, step / an_epoch) for step in steps]

    assert rates(few, 20) == pytest.approx(rates(many, 160), rel=0.05)
    deltas = [huber_delta(training.loss, training.epochs) for training in (few, many)]
    assert deltas[0] == pytest.approx(deltas[1])
    assert deltas[0] == pytest.approx(huber_delta(load(CONFIG).training.loss, 30))


def test_too_few_samples_for_the_ranks_are_refused():
    with pytest.raises(SystemExit, match="3 samples are too few for 2 ranks"):
        data_curve.stretched(load(CONFIG), 3, 2, 100)


def test_the_error_of_the_mean_is_over_materials_of_the_reported_split():
    rows = [{"split": "test", "mae": 1.0}, {"split": "test", "mae": 3.0}, {"split": "dev", "mae": 99.0}]
    assert data_curve.standard_error({"split": "test", "by_material": rows}, "mae") == pytest.approx(1.0)
    assert data_curve.standard_error({"split": "dev", "by_material": rows}, "mae") == 0
