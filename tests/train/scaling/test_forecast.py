"""Steps that take too long to be measured are measured on a smaller image; see also `tests/train/test_main.py`."""

import math
from types import SimpleNamespace

import pytest
from paths import CONFIGS

from fcdensenet.count import count
from namsa.crystals.select import select_materials
from namsa.dataset import estimate, manifest
from train.experiment.experiment import load
from train.experiment.sections import Training
from train.networks.registry import KINDS
from train.ranks import reduction
from train.scaling import forecast
from train.scaling.forecast import MOST_FLOP, measurable, synchronisations


def test_a_large_network_is_measured_on_a_part_of_its_image():
    experiment = load(CONFIGS / "paper.yaml")
    network, _, area = measurable(experiment)
    flop = count(network).step_flop
    assert flop <= MOST_FLOP < 4 * flop
    assert area * flop == pytest.approx(count(experiment.network).step_flop)


@pytest.mark.parametrize(("kind", "extents", "more"), [("cosmoflow", (128,) * 3, 63.88), ("cvae", (512,) * 2, 1)])
def test_another_network_is_measured_on_half_the_extents_if_these_need_the_same_weights(kind, extents, more):
    whole = KINDS[kind](input_shape=(4, *(512 for _ in extents)))
    network, _, area = measurable(SimpleNamespace(network=whole, training=Training(epochs=1)))
    assert network.input_shape[1:] == extents
    assert area == pytest.approx(more, rel=1e-4)  # of CosmoFlow 1183.43 and 18.525 GFLOP


@pytest.mark.slow
def test_a_few_materials_stand_for_the_400000_samples_of_the_paper_and_the_time_limits_what_is_simulated(monkeypatch):
    """62,321 materials have 435,702 samples, and a few ranks make some of them in the time of the configuration."""

    def cost(config, materials, ranks, entries):
        samples = sum(not entry.skipped for entry in entries)
        return SimpleNamespace(seconds_per_rank=29.0 * samples / ranks, memory_bytes=0, disk_bytes=samples)

    monkeypatch.setattr(estimate, "estimate_dataset", cost)
    experiment = load(CONFIGS / "paper.yaml", ["data.directory=/nowhere"])
    found = forecast.count_samples(experiment, ranks=96)
    assert found.simulation["listed"] == pytest.approx(435_702, rel=0.02)
    assert found.simulation["samples"] == 96 * math.ceil(1800 / 29.0)
    assert found.simulation["seconds"] == 1800
    assert found.training == pytest.approx(0.9 * found.simulation["samples"], rel=0.05)


def test_synchronisations_of_a_job_are_those_of_its_steps():
    assert synchronisations("epoch", steps_per_epoch=10, steps=30) == 3
    assert synchronisations("epoch", 10, 25) == 3  # it ends within an epoch
    assert synchronisations(4, 10, 20) == 6  # after 4, 8, 10, 12, 16, 20
    assert synchronisations(50, 10, 20) == 2


@pytest.mark.parametrize("name", ["quickstart", "benchmark"])
def test_a_small_network_is_measured_as_it_is(name):
    experiment = load(CONFIGS / f"{name}.yaml")
    assert measurable(experiment) == (experiment.network, experiment.training, 1)


@pytest.mark.slow
def test_interfaces_that_a_manifest_lists_are_told_with_their_partners(tmp_path, monkeypatch):
    few = [
        "materials.limit=16",
        "materials.substitute={limit: 4}",
        "specimen.kinds={interface: 1}",
        "specimen.thickness_angstrom=[20]",
    ]
    experiment = load(
        CONFIGS / "reality.yaml",
        ["stage=2", *few, "variation.thickness_angstrom=[15, 20]", f"data.directory={tmp_path}"],
    )
    listed = manifest.ensure(tmp_path, experiment, select_materials(experiment.materials))
    monkeypatch.setattr(estimate, "SAMPLED", 1)  # its partner is in no other sample that is looked at
    reduction.start(experiment.training)
    found = forecast.forecast(experiment)
    assert all(entry.partner for entry in estimate.sampled(listed))
    assert found["simulation"]["samples"] == sum(not entry.skipped for entry in listed)
