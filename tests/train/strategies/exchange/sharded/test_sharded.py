"""Sharded masters on two ranks, which run this file (OUT/RANK.json), against resident weights and
each other.
"""

import json
import sys
from itertools import islice
from pathlib import Path

import keras
import launch
import numpy as np
import pytest
import tensorflow as tf
from exchange_training import batches, digest
from timelines import metered

from fcdensenet.config import NetworkConfig
from namsa.base.errors import InputError
from train.experiment.sections import Training
from train.optimization import checkpoint, precision
from train.optimization.loop import make_step
from train.optimization.optimizers import make_optimizer
from train.ranks import connection
from train.ranks.connection import engine
from train.ranks.exchange import make_exchange

STOP = 3
NETWORK = NetworkConfig(input_shape=(2, 8, 8), layers=(1, 1, 1))  # for the headers of checkpoints
SHARDED = {"kind": "sharded"}
# All steps count, the first has no rate: two bytes after step 3, three after step 5.
ADAPTIVE = {"precision": "adaptive", "threshold": 1.0, "interval": 2}
CASES = {
    "adam": ({}, {"exchange": {"groups": 2}}),
    "adam, sharded": ({}, {"exchange": SHARDED | {"groups": 2}}),
    # Each gradient is a group of its own, of which one rank owns nothing.
    "adaptive": ({}, {"exchange": SHARDED | {"groups": 0, "transfer": ADAPTIVE}}),
    "float16": (
        {"kind": "momentum"},
        {
            "exchange": SHARDED
            | {"groups": 2, "compression": "fp16", "transfer": {"precision": 16}},
            "precision": {"compute": "mixed_float16", "initial_loss_scale": 1024.0},
        },
    ),
}


def plain_model():
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    layers = keras.layers
    inner = [layers.Conv2D(filters, 3, padding="same", activation="relu") for filters in (5, 4, 3)]
    return keras.Sequential(
        [keras.Input((6, 8, 2)), *inner, layers.BatchNormalization(), layers.Conv2D(1, 1)]
    )


class Job:
    """The network of a case, and what updates it, on this rank."""

    def __init__(self, name):
        optimizer, sections = CASES[name]
        rate = {"learning_rate": 1e-2}
        self.training = Training.model_validate(
            {"epochs": 1, "optimizer": rate | optimizer} | sections
        )
        with precision.policy(self.training.precision.compute):
            self.model = plain_model()
            self.optimizer = precision.with_loss_scale(
                make_optimizer(self.training.optimizer), self.training
            )
            self.exchange = make_exchange(self.training.exchange, engine().rank(), engine().size())
            self.exchange.begin(self.model, self.optimizer)
        self.step = make_step(self.model, self.optimizer, self.training, self.exchange)

    def start(self, folder=None):
        """Begins, or goes on from the checkpoint in `folder`; returns the steps that were taken
        before.
        """
        state = self.exchange.blank_state()
        done = checkpoint.restore([folder], state, NETWORK).position.step if folder else 0
        self.exchange.restore(state, [], resumed=done > 0)
        return done

    def save(self, folder, step):
        state = self.exchange.state()
        if engine().rank() == 0:
            checkpoint.save(folder, checkpoint.TrainingPosition(step=step), state, NETWORK, keep=9)

    def arrays(self):
        return [
            np.asarray(variable) for variable in self.model.variables if "float" in variable.dtype
        ]


def train(name, sent, poison=None, folder=None):
    """(the job, its rows of numbers, [bits before the step, bytes sent in it]) after all steps."""
    job = Job(name)
    rank = engine().rank()
    rows = []
    moved = []
    done = job.start(folder)
    for index, (x, y) in islice(enumerate(batches(slice(rank, rank + 1), 2)), done, None):
        factor = np.inf if (index, rank) == (poison, 1) else 1
        bits = job.exchange.states.bits.numpy().tolist() if hasattr(job.exchange, "states") else []
        sent.clear()
        rows.append(job.step(factor * x, y, tf.constant(1e-2), tf.constant(2.0)).numpy().tolist())
        moved.append([bits, sum(sent)])
        if folder and index + 1 == STOP:
            job.save(folder, STOP)
    return job, rows, moved


def main(out):
    connection.start()
    rank = engine().rank()
    sent = []
    cases = {}
    engine().all_to_all = metered(sent, rank, [])
    for name, folder, poison in (
        ("adam", None, None),
        ("adam, sharded", None, None),
        ("adaptive", out / "checkpoints", None),
        ("adaptive", out / "checkpoints", None),  # from the checkpoint of the one before
        ("float16", None, 2),
    ):
        job, rows, moved = train(name, sent, poison, folder)
        held = sum(
            variable.value.shape.num_elements()
            for variable in job.optimizer.variables
            if len(variable.shape)
        )
        held += sum(
            variable.value.shape.num_elements() for variable in getattr(job.exchange, "masters", ())
        )
        row = job.exchange.end_epoch(5, 0, whole=True)
        case = {
            "digest": digest(job.arrays()),
            "rows": rows,
            "moved": moved,
            "held": held,
            "epoch": row,
        }
        cases[name + ", again" * (name in cases)] = case
        if rank == 0:
            np.savez(out / f"{name}.npz", *job.arrays())
    (out / f"{rank}.json").write_text(json.dumps(cases))
    connection.stop()


# 3 + 3 of the normalisation
KERNELS = [3 * 3 * 2 * 5, 3 * 3 * 5 * 4, 3 * 3 * 4 * 3, 3]
VECTORS = [5, 4, 3, 3, 3, 1]
VALUES = sum(KERNELS) + sum(VECTORS)


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """(folder, what each rank has found)."""
    out = tmp_path_factory.mktemp("sharded_ranks")
    return out, launch.on_ranks(__file__, out)[0]


def bytes_sent(bits, gradient_bytes=4):
    """By both ranks in a step; the norm of each layer takes four."""
    weights = sum(size * width // 8 for size, width in zip(KERNELS, bits, strict=True)) + 4 * sum(
        VECTORS
    )
    return gradient_bytes * VALUES + weights + 4 * len(KERNELS)


@pytest.mark.slow
def test_sharded_masters_train_as_resident_weights(together):
    out, results = together
    with np.load(out / "adam.npz") as resident, np.load(out / "adam, sharded.npz") as sharded:
        assert resident.files == sharded.files
        for name in resident.files:
            np.testing.assert_allclose(sharded[name], resident[name], atol=2e-6, rtol=0)
    for rank in results:
        same = []
        for name in ("adam", "adam, sharded"):
            same.append([row[:5] + row[7:] for row in rank[name]["rows"]])
        columns = [0, 1, 2, 3]  # the loss, the penalty, the scale, the gradients' norm
        for resident_row, row in zip(*same, strict=True):
            np.testing.assert_allclose(
                [row[i] for i in columns], [resident_row[i] for i in columns], rtol=1e-5
            )


@pytest.mark.slow
def test_all_ranks_compute_with_the_same_weights(together):
    first, second = together[1]
    for name, case in first.items():
        assert case["digest"] == second[name]["digest"], name


@pytest.mark.slow
def test_a_rank_holds_its_part_of_masters_and_moments(together):
    held = [rank["adam, sharded"]["held"] for rank in together[1]]
    assert sum(held) == 3 * VALUES  # a master and Adam's two moments
    assert max(held) <= 1.01 * 3 * VALUES / 2
    assert [rank["adam"]["held"] for rank in together[1]] == [
        2 * VALUES
    ] * 2  # the weights are the masters


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
def test_bits_switch_where_the_interval_says_and_a_restart_between_two_switches_changes_none(
    together,
):
    for rank in together[1]:
        uninterrupted = rank["adaptive"]
        again = rank["adaptive, again"]
        assert [bits for bits, _ in uninterrupted["moved"]] == [[8] * 4] * 3 + [[16] * 4] * 2
        assert set(uninterrupted["epoch"]["bits"].values()) == {24}
        assert again["digest"] == uninterrupted["digest"]
        assert again["epoch"] == uninterrupted["epoch"]
        assert [row[0] for row in again["rows"]] == [row[0] for row in uninterrupted["rows"][STOP:]]


@pytest.mark.slow
def test_a_loss_scale_skips_a_step_on_all_ranks(together):
    for rank in together[1]:
        assert [row[2] for row in rank["float16"]["rows"]] == [1024, 1024, 1024, 512, 512]
        assert (
            rank["float16"]["epoch"]["steps"] == 3
        )  # of five, the first has no rate, and one is skipped


@pytest.mark.slow
def test_a_checkpoint_of_two_ranks_is_one_of_one_rank(together, tmp_path):
    connection.start()
    folder = together[0] / "checkpoints"
    job = Job("adaptive")
    assert job.start(folder) == STOP
    job.save(tmp_path, STOP)
    (name,) = (path.name for path in folder.iterdir())
    (header, arrays), (own_header, own_arrays) = (
        checkpoint.read(folder / name),
        checkpoint.read(tmp_path / name),
    )
    assert own_header == header
    assert any(path.endswith("/kernel/v") for path in header["variables"])
    for array, own_array in zip(arrays, own_arrays, strict=True):
        np.testing.assert_array_equal(own_array, array)


def test_more_ranks_than_variables_are_refused():
    training = Training.model_validate({"epochs": 1, "exchange": SHARDED})
    with pytest.raises(
        InputError, match=r"11 ranks are more than the network's 10: start fewer ranks"
    ):
        make_exchange(training.exchange, 0, 11).begin(
            plain_model(), make_optimizer(training.optimizer)
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
