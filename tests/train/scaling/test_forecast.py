"""Steps that take too long to be measured are measured on a smaller image; see also `tests/train/test_main.py`."""

import pytest
from paths import CONFIGS

from fcdensenet.count import count
from train.experiment.experiment import load
from train.scaling.forecast import MOST_FLOP, measurable


def test_a_large_network_is_measured_on_a_part_of_its_image():
    experiment = load(CONFIGS / "paper.yaml")
    network, area = measurable(experiment)
    flop = count(network).step_flop
    assert flop <= MOST_FLOP < 4 * flop
    assert area * flop == pytest.approx(count(experiment.network).step_flop)


@pytest.mark.parametrize("name", ["quickstart", "benchmark"])
def test_a_small_network_is_measured_as_it_is(name):
    experiment = load(CONFIGS / f"{name}.yaml")
    assert measurable(experiment) == (experiment.network, 1)
