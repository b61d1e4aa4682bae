"""Sharded masters on two ranks against resident weights, and against each other."""

import launch
import numpy as np
import pytest
import sharded_ranks
from sharded_ranks import Job

from namsa.errors import InputError
from train.experiment.sections import Training
from train.optimization import checkpoint
from train.optimization.optimizers import make_optimizer
from train.ranks import reduction
from train.ranks.exchange import make_exchange

SHARDED = {"kind": "sharded"}
KERNELS, VECTORS = [3 * 3 * 2 * 5, 3 * 3 * 5 * 4, 3 * 3 * 4 * 3, 3], [5, 4, 3, 3, 3, 1]  # 3 + 3 of the normalisation
VALUES = sum(KERNELS) + sum(VECTORS)


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """(folder, what each rank has found)."""
    out = tmp_path_factory.mktemp("sharded_ranks")
    return out, launch.on_ranks("sharded_ranks.py", out)[0]


def bytes_sent(bits, gradient_bytes=4):
    """By both ranks in a step; the norm of each layer takes four."""
    weights = sum(size * each // 8 for size, each in zip(KERNELS, bits, strict=True)) + 4 * sum(VECTORS)
    return gradient_bytes * VALUES + weights + 4 * len(KERNELS)


@pytest.mark.slow
def test_sharded_masters_train_as_resident_weights(together):
    out, found = together
    with np.load(out / "adam.npz") as resident, np.load(out / "adam, sharded.npz") as sharded:
        assert resident.files == sharded.files
        for name in resident.files:
            np.testing.assert_allclose(sharded[name], resident[name], atol=2e-6, rtol=0)
    for rank in found:
        same = [[row[:5] + row[7:] for row in rank[name]["rows"]] for name in ("adam", "adam, sharded")]
        columns = [0, 1, 2, 3]  # the loss, the penalty, the scale, the gradients' norm
        for resident_row, row in zip(*same, strict=True):
            np.testing.assert_allclose([row[i] for i in columns], [resident_row[i] for i in columns], rtol=1e-5)


@pytest.mark.slow
def test_all_ranks_compute_with_the_same_weights(together):
    first, second = together[1]
    for name, found in first.items():
        assert found["digest"] == second[name]["digest"], name


@pytest.mark.slow
def test_a_rank_holds_its_part_of_masters_and_moments(together):
    held = [rank["adam, sharded"]["held"] for rank in together[1]]
    assert sum(held) == 3 * VALUES  # a master and Adam's two moments
    assert max(held) <= 1.01 * 3 * VALUES / 2
    assert [rank["adam"]["held"] for rank in together[1]] == [2 * VALUES] * 2  # the weights are the masters


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adam, sharded", "adaptive", "float16"])
def test_the_bytes_of_a_step_are_those_of_the_formula(together, name):
    first, second = (rank[name]["moved"] for rank in together[1])
    gradient_bytes = 2 if name == "float16" else 4
    for (bits, sent), (others_bits, others_sent) in zip(first, second, strict=True):
        assert bits == others_bits
        assert sent + others_sent == bytes_sent(bits, gradient_bytes)
    row = together[1][0][name]["epoch"]
    assert row["sent_bytes"] + 4 * len(KERNELS) == bytes_sent(row["bits"].values(), gradient_bytes)


@pytest.mark.slow
def test_bits_switch_where_the_interval_says_and_a_restart_between_two_switches_changes_none(together):
    for rank in together[1]:
        whole, again = rank["adaptive"], rank["adaptive, again"]
        assert [bits for bits, _ in whole["moved"]] == [[8] * 4] * 3 + [[16] * 4] * 2
        assert set(whole["epoch"]["bits"].values()) == {24}
        assert again["digest"] == whole["digest"]
        assert again["epoch"] == whole["epoch"]
        assert [row[0] for row in again["rows"]] == [row[0] for row in whole["rows"][sharded_ranks.STOP :]]


@pytest.mark.slow
def test_a_loss_scale_skips_a_step_on_all_ranks(together):
    for rank in together[1]:
        assert [row[2] for row in rank["float16"]["rows"]] == [1024, 1024, 1024, 512, 512]
        assert rank["float16"]["epoch"]["steps"] == 3  # of five, the first has no rate, and one is skipped


@pytest.mark.slow
def test_a_checkpoint_of_two_ranks_is_one_of_one_rank(together, tmp_path):
    reduction.start()
    folder = together[0] / "checkpoints"
    job = Job("adaptive")
    assert job.start(folder) == sharded_ranks.STOP
    job.save(tmp_path, sharded_ranks.STOP)
    (name,) = (path.name for path in folder.iterdir())
    (header, arrays), (own_header, own_arrays) = checkpoint.read(folder / name), checkpoint.read(tmp_path / name)
    assert own_header == header
    assert any(path.endswith("/kernel/v") for path in header["variables"])
    for array, own in zip(arrays, own_arrays, strict=True):
        np.testing.assert_array_equal(own, array)


def test_more_ranks_than_variables_are_refused():
    training = Training.model_validate({"epochs": 1, "exchange": SHARDED})
    with pytest.raises(InputError, match=r"11 ranks are more than the network's 10: start fewer ranks"):
        make_exchange(training.exchange, 0, 11).begin(sharded_ranks.plain_model(), make_optimizer(training.optimizer))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"exchange": SHARDED | {"lag": 1}}, "Extra inputs"),
        ({"exchange": SHARDED | {"hierarchical": True}}, "Extra inputs"),
        ({"exchange": SHARDED | {"contiguous": True}}, "Extra inputs"),
        ({"exchange": SHARDED | {"transfer": {"precision": "adaptive"}}}, "needs threshold"),
        ({"exchange": SHARDED | {"transfer": {"precision": 12}}}, "'adaptive', 8, 16, 24 or 32"),
        ({"exchange": SHARDED | {"transfer": {"bits": 8}}}, "Extra inputs"),
        (
            {"precision": {"compute": "mixed_float16", "loss_scaling": "logmax"}},
            "precision.loss_scaling logmax .* set precision.loss_scaling to backoff",
        ),
        ({"checkpoints": {"every_seconds": 9}}, "every_seconds 9.0 .* no clock in common"),
    ],
)
def test_what_does_not_go_with_sharded_weights_is_refused(sections, message):
    with pytest.raises(ValueError, match=message):
        Training.model_validate({"epochs": 1, "exchange": SHARDED} | sections)
