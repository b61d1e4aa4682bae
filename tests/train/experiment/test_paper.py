"""The paper's job at every size: its rate, its target and its steps; see docs/paper.md."""

import pytest
from paths import CONFIGS

from fcdensenet.config import NetworkConfig
from fcdensenet.count import count
from train.experiment.experiment import load
from train.optimization.loop import learning_rate

HIGHEST_RATE = 0.0226  # that LARS before Adam took at a batch of 4,096, where 1.024 diverged
FE_200_ANGSTROM = 442.0, 2637.0  # mean and maximum of the projected density of iron, e/Å²


@pytest.fixture(scope="module")
def training():
    return load(CONFIGS / "paper.yaml").training


@pytest.mark.parametrize("ranks", [6, 768, 6144, 27_600])
def test_the_rate_holds_at_every_number_of_ranks(training, ranks):
    rates = [learning_rate(training.schedule, training.optimizer.learning_rate, ranks, epoch) for epoch in range(200)]
    assert training.optimizer.learning_rate < max(rates) < HIGHEST_RATE


def test_the_authors_own_rate_is_a_setting_away():
    """N times 1e-6 and at most 1, in github.com/nlaanait/stemdl."""
    words = ["training.optimizer.learning_rate=1e-6", "training.schedule.linear_up_to=100000"]
    own = load(CONFIGS / "paper.yaml", words).training
    assert learning_rate(own.schedule, own.optimizer.learning_rate, 27_600, 5) == pytest.approx(0.0276)


def test_the_huber_loss_of_the_target_is_quadratic_at_first_and_linear_for_large_errors_at_the_end(training):
    mean, most = (value / training.inputs.density_scale_e_per_angstrom2 for value in FE_200_ANGSTROM)
    assert mean == pytest.approx(1, abs=0.5)
    at_the_end = training.loss.huber_delta * training.loss.huber_delta_decay ** (2000 / 14)
    assert at_the_end < most < training.loss.huber_delta


@pytest.mark.parametrize("steps_per_epoch", [14, 55])
def test_training_ends_after_2000_steps_of_any_number_of_nodes(training, steps_per_epoch):
    assert training.steps == 2000 < training.epochs * steps_per_epoch


def test_the_transitions_of_the_network_have_no_normalisation_if_it_is_switched_off():
    config = NetworkConfig(input_shape=(2, 16, 24), layers=(1, 1, 1), growth=3, first_filters=4)
    bare = config.model_copy(update={"transition_norm": False})
    channels = 4 + 3  # of the transition, each with a factor, a shift, and two moving averages
    assert count(config).parameters - count(bare).parameters == 4 * channels
