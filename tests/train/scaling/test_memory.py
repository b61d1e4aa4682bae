"""The memory of a step: what the paper says of its GPU, and what TensorFlow's allocator counts."""

from pathlib import Path

import pytest
from paths import CONFIGS

from train.experiment.experiment import load
from train.scaling.memory import GPUS_GIB, largest_batch, step_memory

V100, V100_32 = GPUS_GIB.values()


def test_a_v100_of_16_gb_holds_one_sample_of_the_paper_and_none_in_float32():
    """ "can only accommodate a training batch size of 1 [...] even in a float16 implementation" (section 6.2)."""
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
    assert one.read_ahead >= (2 + 2 + 4) * sample  # one that waits; one as it is stored, and in float32
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
    "paper_tenth": ("training.batch_size=4", "network.data_format=channels_last"),  # of channels first XLA has a part
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURED)
def test_the_sum_is_what_tensorflow_counts(name):
    pytest.importorskip("tensorflow")
    from step_memory import compared

    experiment = load(CONFIGS / f"{name}.yaml", MEASURED[name])
    if experiment.training.precision.compute == "mixed_float16" and "_fp16" in Path("/proc/cpuinfo").read_text():
        pytest.skip("oneDNN has convolutions of float16 on this processor")
    assert compared(experiment)["ratio"] == pytest.approx(1, abs=0.15)
