"""The comparison of layouts is fair: as many parameters, and the same patterns on the paper's detector."""

import layouts
import numpy as np
import pytest

from fcdensenet.count import count
from namsa.sample import Sample
from train.experiment.experiment import load


@pytest.mark.parametrize("arm", layouts.ARMS)
def test_every_arm_is_valid_and_of_the_benchmarks_size(arm):
    reference = count(load(layouts.CONFIG).network).parameters
    experiment = load(layouts.CONFIG, layouts.overrides(arm, []))
    assert abs(count(experiment.network).parameters / reference - 1) < 0.05


def test_the_papers_detector_holds_the_same_patterns():
    experiment = load(layouts.CONFIG, layouts.overrides("detector", []))
    patterns = np.random.default_rng(0).random((3, 33, 33))
    provenance = {"detector_sampling_mrad": [3.0, 3.0], "detector_origin_mrad": [-48.0, -48.0], "config_hash": "x"}
    found = layouts.on_detector(Sample(patterns, np.ones((2, 2)), np.ones((2, 2)), provenance), experiment)
    assert found.cbed.shape == (3, 32, 32)
    np.testing.assert_allclose(found.cbed.sum(axis=(1, 2)), patterns.sum(axis=(1, 2)), rtol=1e-6)
    mirrored = Sample(patterns[:, ::-1], np.ones((2, 2)), np.ones((2, 2)), provenance)
    np.testing.assert_allclose(layouts.on_detector(mirrored, experiment).cbed, found.cbed[:, ::-1], rtol=1e-5)
