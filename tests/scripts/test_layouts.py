"""The comparisons of layouts are fair: as many parameters, and what the paper's layout asks for."""

import layouts
import paper_layout
import pytest

from fcdensenet.count import count
from train.experiment.experiment import load


@pytest.mark.parametrize("arm", layouts.ARMS)
def test_every_arm_is_valid_and_of_the_benchmarks_size(arm):
    reference = count(load(layouts.CONFIG).network).parameters
    experiment = load(layouts.CONFIG, layouts.overrides(arm, []))
    assert abs(count(experiment.network).parameters / reference - 1) < 0.05


@pytest.mark.parametrize("arm", paper_layout.ARMS)
def test_the_papers_layout_has_a_whole_scan_from_a_fixed_origin_and_a_growth_of_a_quarter(arm):
    experiment = load(paper_layout.CONFIG, paper_layout.ARMS[arm])
    patterns = experiment.pattern_shape()
    assert (experiment.scan.origin_angstrom, experiment.scan.step_angstrom) == ((0, 0), None)
    assert patterns[:2] == patterns[2:] == experiment.network.input_shape[1:]
    assert 4 * experiment.network.growth >= patterns[0] * patterns[1]
    assert 4 * experiment.network.first_filters >= patterns[0] * patterns[1]
