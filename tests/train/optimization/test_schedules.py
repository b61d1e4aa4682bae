import pytest

from train.experiment.sections import Schedule
from train.optimization.schedules import learning_rate


def test_warms_up_linearly_from_one_rank_to_all_then_steps_down():
    schedule = Schedule(warmup_epochs=4, decay=0.1, decay_every_epochs=10)
    rates = {epochs: learning_rate(schedule, 1e-3, 8, epochs) for epochs in (0, 1, 2, 4, 9.99, 10, 25)}
    expected = {0: 1e-3, 1: 2.75e-3, 2: 4.5e-3, 4: 8e-3, 9.99: 8e-3, 10: 8e-4, 25: 8e-5}
    assert rates == pytest.approx(expected, rel=1e-12)


def test_one_rank_and_unscaled_rates_have_no_ramp():
    assert learning_rate(Schedule(), 1e-3, 1, 0) == learning_rate(Schedule(), 1e-3, 1, 20) == 1e-3
    assert learning_rate(Schedule(scale_with_ranks=False), 1e-3, 64, 20) == 1e-3


def test_no_warm_up_starts_at_the_peak():
    assert learning_rate(Schedule(warmup_epochs=0), 1e-3, 16, 0) == pytest.approx(16e-3)
