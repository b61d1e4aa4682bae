import pytest

from train.experiment.sections import Schedule
from train.optimization.loop import learning_rate, rate_factor


def test_warms_up_linearly_from_one_rank_to_all_then_steps_down():
    schedule = Schedule(warmup_epochs=4, decay=0.1, decay_every_epochs=10)
    rates = {epochs: learning_rate(schedule, 1e-3, 8, epochs) for epochs in (0, 1, 2, 4, 9.99, 10, 25)}
    expected = {0: 1e-3, 1: 2.75e-3, 2: 4.5e-3, 4: 8e-3, 9.99: 8e-3, 10: 8e-4, 25: 8e-5}
    assert rates == pytest.approx(expected, rel=1e-12)


def test_one_rank_and_unscaled_rates_have_no_ramp():
    assert learning_rate(Schedule(), 1e-3, 1, 0) == learning_rate(Schedule(), 1e-3, 1, 20) == 1e-3
    assert learning_rate(Schedule(scale_with_ranks=False), 1e-3, 64, 20) == 1e-3


def test_no_warm_up_starts_at_the_peak():
    assert learning_rate(Schedule(warmup_epochs=0), 1e-3, 6, 0) == pytest.approx(6e-3)


def test_many_ranks_have_the_root_of_their_number():
    factors = [rate_factor(Schedule(), ranks) for ranks in (1, 2, 7, 8, 9, 48, 64, 256, 2048, 27_600)]
    assert factors == [1, 2, 7, 8, 8, 8, 8, 16, pytest.approx(45.25, rel=1e-3), pytest.approx(166.1, rel=1e-3)]
    assert rate_factor(Schedule(linear_up_to=10**5), 27_600) == 27_600  # the paper's
    assert rate_factor(Schedule(scale_with_ranks=False), 27_600) == 1
    assert learning_rate(Schedule(warmup_epochs=0), 5e-4, 2048, 0) == pytest.approx(0.02263, rel=1e-3)


def test_a_linear_decay_ends_at_a_hundredth_after_100_of_130_epochs():
    """Oyama et al. 2020, section 4: to 0.01 of the initial rate in 100 epochs; they train for 130."""
    schedule = Schedule(rule="linear", decay=0.01, decay_every_epochs=100, warmup_epochs=0)
    rates = [learning_rate(schedule, 2e-3, 1, epochs) for epochs in (0, 25, 50, 99.5, 100, 130)]
    assert rates == pytest.approx([2e-3, 1.505e-3, 1.01e-3, 2.99e-5, 2e-5, 2e-5], rel=1e-12)
    warmed = schedule.model_copy(update={"warmup_epochs": 10})
    assert learning_rate(warmed, 2e-3, 4, 5) == pytest.approx(5e-3 * (1 - 0.99 * 0.05), rel=1e-12)
