"""The forecast of a job: steps that are measured on a smaller image, samples, and
memory.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from paths import CONFIGS, ROOT

from fcdensenet.count import count
from namsa.crystals.select import select_materials
from namsa.dataset import estimate, manifest
from train.experiment.experiment import load
from train.experiment.sections import Training
from train.networks.registry import KINDS
from train.ranks import connection
from train.scaling import forecast
from train.scaling.forecast import MOST_FLOP, measurable, synchronisations
from train.scaling.memory import GPUS_GIB, largest_batch, step_memory


def test_a_large_network_is_measured_on_a_part_of_its_image():
    experiment = load(CONFIGS / "paper.yaml")
    network, _, area = measurable(experiment)
    flop = count(network).step_flop
    assert flop <= MOST_FLOP < 4 * flop
    assert area * flop == pytest.approx(count(experiment.network).step_flop)


@pytest.mark.parametrize(
    ("kind", "extents", "more"), [("cosmoflow", (128,) * 3, 63.88), ("cvae", (512,) * 2, 1)]
)
def test_another_network_is_measured_on_half_the_extents_if_these_need_the_same_weights(
    kind, extents, more
):
    full_size = KINDS[kind](input_shape=(4, *(512 for _ in extents)))
    network, _, area = measurable(SimpleNamespace(network=full_size, training=Training(epochs=1)))
    assert network.input_shape[1:] == extents
    assert area == pytest.approx(more, rel=1e-4)  # of CosmoFlow 1183.43 and 18.525 GFLOP


@pytest.mark.slow
def test_a_few_materials_stand_for_the_400000_samples_of_the_paper_and_the_time_limits_what_is_simulated(  # noqa: E501
    monkeypatch,
):
    """62,321 materials have 435,702 samples, and a few ranks make some of them in the time of the
    configuration.
    """

    def cost(config, materials, ranks, entries):
        samples = sum(not entry.skipped for entry in entries)
        return SimpleNamespace(
            seconds_per_rank=29.0 * samples / ranks, memory_bytes=0, disk_bytes=samples
        )

    monkeypatch.setattr(estimate, "estimate_dataset", cost)
    experiment = load(CONFIGS / "paper.yaml", ["data.directory=/nowhere"])
    counted = forecast.count_samples(experiment, ranks=96)
    assert counted.simulation["listed"] == pytest.approx(435_702, rel=0.02)
    assert counted.simulation["samples"] == 96 * math.ceil(1800 / 29.0)
    assert counted.simulation["seconds"] == 1800
    assert counted.training == pytest.approx(0.9 * counted.simulation["samples"], rel=0.05)


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
    monkeypatch.setattr(
        estimate, "SAMPLED", 1
    )  # its partner is in no other sample that is looked at
    connection.start(experiment.training)
    facts = forecast.forecast(experiment)
    for entry in estimate.sampled(listed):
        assert entry.partner
    assert facts["simulation"]["samples"] == sum(not entry.skipped for entry in listed)


V100, V100_32 = GPUS_GIB.values()


def test_a_v100_of_16_gb_holds_one_sample_of_the_paper_and_none_in_float32():
    """ "can only accommodate a training batch size of 1 [...] even in a float16 implementation"
    (section 6.2).
    """
    paper = load(CONFIGS / "paper.yaml")
    assert largest_batch(paper, 27_600, V100) == 1
    assert largest_batch(paper, 27_600, V100_32) > 1
    wide = load(CONFIGS / "paper.yaml", ["training.precision.compute=float32"])
    assert largest_batch(wide, 27_600, V100) == 0


def test_the_sum_has_what_a_step_does_not_compute():
    paper = load(CONFIGS / "paper.yaml")
    one, many = (step_memory(paper, ranks, on_gpu=True) for ranks in (1, 27_600))
    parameters = 220.4e6
    assert one.weights == pytest.approx(6 * parameters, rel=0.01)  # float32, and a copy in float16
    assert one.moments == pytest.approx(8 * parameters, rel=0.01)
    sample = 1024 * 512 * 512
    assert (
        one.read_ahead >= (2 + 2 + 4) * sample
    )  # one that waits; one as it is stored, and in float32
    assert one.communication == 0
    assert many.communication == pytest.approx(8 * parameters + 128 * 2**20, rel=0.01)
    assert many[:6] == one[:6]


def test_accumulation_and_recomputing_change_what_they_should():
    plain, summed, lean = (
        step_memory(load(CONFIGS / "paper.yaml", words), 1, on_gpu=True)
        for words in ([], ["training.accumulate=2"], ["training.recompute=true"])
    )
    assert summed.gradients - plain.gradients == pytest.approx(881.6e6, rel=0.01)
    assert lean.maps < 0.9 * plain.maps


MEASURED = {
    "quickstart": ("training.batch_size=4",),
    "segment": ("training.batch_size=4",),
    "classify": (),  # a residual network
    "benchmark": ("training.batch_size=1", "training.precision.compute=mixed_float16"),
    "paper_tenth": (
        "training.batch_size=4",
        "network.data_format=channels_last",
    ),  # of channels first XLA has a part
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURED)
def test_the_sum_is_what_tensorflow_counts(name):
    """In a process of its own, since other tests of a process raise the peak of float16."""
    pytest.importorskip("tensorflow")
    config = CONFIGS / f"{name}.yaml"
    words = MEASURED[name]
    if (
        load(config, words).training.precision.compute == "mixed_float16"
        and "_fp16" in Path("/proc/cpuinfo").read_text()
    ):
        pytest.skip("oneDNN has convolutions of float16 on this processor")
    command = [sys.executable, ROOT / "scripts/bench/step_memory.py", config, "--json"]
    for word in words:
        command += ["--set", word]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    bench = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    assert json.loads(bench.stdout.splitlines()[-1])["ratio"] == pytest.approx(1, abs=0.15)


SMALL = ("network.layers=[1, 1, 1]", "network.growth=4")
UNET = (
    "network={kind: unet3d, input_shape: [16, 4, 8, 12], output_channels: 1, levels: 1, "
    "first_filters: 2}",
    "scan.shape=[8, 12]",
    "detector={shape: [4, 4], pixel_mrad: 10}",
    "target.depth_bins=4",
    "specimen.thickness_angstrom=[40]",
    "training.inputs={layout: depth}",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "settings", "splits"),
    [
        ("segment", SMALL, ("{ways: 4}", "{ways: 2, further: {x: 4}}")),
        ("segment", SMALL, ("{ways: 8, axis: x}",)),
        (
            "quickstart",
            UNET,
            ("{ways: 2, axis: z}", "{ways: 4, axis: y}", "{ways: 2, further: {z: 2, x: 3}}"),
        ),
    ],
    ids=["segment y", "segment x", "depth"],
)
def test_a_divided_step_of_classes_and_of_depths_is_measured(config, settings, splits, monkeypatch):
    monkeypatch.setattr(forecast, "MIN_SECONDS", 1e-9)
    for split in splits:
        overrides = [*settings, f"training.split={split}"]
        experiment = load(CONFIGS / f"{config}.yaml", overrides)
        measured = forecast._measure_step(experiment, experiment.training.split.ranks)
        assert measured["step_s"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("ways", [2, 3, 4, 6, 12])
def test_the_memory_of_a_part_that_is_measured_is_that_of_the_part(ways, monkeypatch):
    """The network that is measured is of a part already, and is not divided again."""
    monkeypatch.setattr(forecast, "MIN_SECONDS", 1e-9)
    experiment = load(CONFIGS / "quickstart.yaml", [f"training.split.ways={ways}"])
    measured = forecast._measure_step(experiment, ways)
    assert measured["memory_mib"] > 0
