"""Steps that take too long to be measured are measured on a smaller image; see also `tests/train/test_main.py`."""

import pytest
from paths import CONFIGS

from fcdensenet.count import count
from train.experiment.experiment import load
from train.scaling.forecast import MOST_FLOP, measurable, synchronisations


def test_a_large_network_is_measured_on_a_part_of_its_image():
    experiment = load(CONFIGS / "paper.yaml")
    network, area = measurable(experiment)
    flop = count(network).step_flop
    assert flop <= MOST_FLOP < 4 * flop
    assert area * flop == pytest.approx(count(experiment.network).step_flop)


def test_synchronisations_of_a_job_are_those_of_its_steps():
    assert synchronisations("epoch", steps_per_epoch=10, steps=30) == 3
    assert synchronisations("epoch", 10, 25) == 3  # it ends within an epoch
    assert synchronisations(4, 10, 20) == 6  # after 4, 8, 10, 12, 16, 20
    assert synchronisations(50, 10, 20) == 2


@pytest.mark.parametrize("name", ["quickstart", "benchmark"])
def test_a_small_network_is_measured_as_it_is(name):
    experiment = load(CONFIGS / f"{name}.yaml")
    assert measurable(experiment) == (experiment.network, 1)
