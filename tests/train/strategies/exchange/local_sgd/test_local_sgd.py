"""Weights that are averaged after some steps: among ranks, in fewer bits, and what each rank keeps
for itself.
"""

import time

import exchange_training
import numpy as np
import pytest
import timelines
from exchange_training import ReferenceTraining, assert_close

from fcdensenet.build import build
from fcdensenet.config import NetworkConfig
from fcdensenet.count import count
from train.experiment.sections import Training
from train.optimization.optimizers import LarsAdam
from train.ranks import connection
from train.ranks.exchange import make_exchange
from train.strategies.exchange.local_sgd.exchange import LocalSGDExchange

LOCAL = {"kind": "local_sgd", "synchronise": 2}
NETWORK = NetworkConfig(
    input_shape=(2, 8, 12), layers=(1, 1, 1), growth=4, kernel=3, first_kernel=3, first_filters=4
)


def averaged_by(average):
    """The weights of ranks that train alone, and on which `average` acts after every second step
    and the last.
    """
    ranks = [ReferenceTraining() for _ in range(exchange_training.RANKS)]
    for step, (x, y) in enumerate(exchange_training.batches(), start=1):
        for rank, alone in enumerate(ranks):
            alone.optimizer.apply(
                alone.gradients(x[rank : rank + 1], y[rank : rank + 1]), alone.weights
            )
        if step in (2, 4, exchange_training.STEPS):
            average(ranks)
    return [weight.numpy() for weight in ranks[0].weights]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", "local_moments"])
def test_local_steps_then_the_mean_of_weights_and_of_moments_if_wanted(together, name):
    moments = name == "local_moments"
    results = together[1]

    def average(ranks):
        averaged = []
        for alone in ranks:
            of_optimizer = alone.optimizer.moments if moments else []
            averaged.append([*alone.weights, *of_optimizer])
        for same in zip(*averaged, strict=True):
            mean = np.mean([variable.numpy() for variable in same], axis=0)
            for variable in same:
                variable.assign(mean)

    assert_close(together[0], name, averaged_by(average))
    ranks = exchange_training.RANKS
    assert len({rank["moments"][name] for rank in results}) == (1 if moments else ranks)
    losses = np.array([rank["huber"][name] for rank in results])
    assert len(np.unique(losses[:, 0])) == ranks  # between, each rank's own
    assert len(np.unique(losses[:, 1])) == 1


def cut(values, size):
    """The highest bytes of float32 values, by NumPy."""
    words = np.asarray(values, np.float32).view(np.uint32)
    return (words & np.uint32(0xFFFFFFFF << (32 - 8 * size) & 0xFFFFFFFF)).view(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [8, 16, 24])
def test_changes_since_the_last_average_travel_in_fewer_bits(together, bits):
    """By the rule: the mean of changes that are cut off, itself cut off, is added to the last
    average.
    """
    last = [weight.numpy() for weight in ReferenceTraining().weights]

    def average(ranks):
        for index, same in enumerate(zip(*(alone.weights for alone in ranks), strict=True)):
            values = np.stack([variable.numpy() for variable in same])
            if values.ndim > 2:  # kernels
                mean = cut(
                    np.mean([cut(value - last[index], bits // 8) for value in values], axis=0),
                    bits // 8,
                )
                last[index] = last[index] + mean
            else:
                last[index] = values.mean(axis=0)
            for variable in same:
                variable.assign(last[index])

    wanted = averaged_by(average)
    with np.load(together[0] / f"local_{bits}.npz") as file:
        differences = np.concatenate(
            [np.abs(file[key] - b).ravel() for key, b in zip(file, wanted, strict=True)]
        )
    assert (
        np.mean(differences > 2e-6) < 0.02
    )  # rounding may bring a change over the edge where it is cut off


@pytest.mark.slow
def test_own_moments_return_to_their_ranks_from_the_arrays_of_a_checkpoint(together):
    assert [result["moments_again"] for result in together[1]] == [
        [True] * 4
    ] * exchange_training.RANKS


@pytest.mark.slow
def test_local_sgd_sends_one_block_when_it_synchronises_and_nothing_else(together):
    operations = timelines.data_operations(*timelines.read(together[0] / "synchronisations.json"))
    assert operations == [{"average_1of1"}] * 3  # after steps 2, 4 and the epoch's last, 5


# ---- One process


def begun(**choice):
    """(the network, its optimizer, its exchange)."""
    training = Training.model_validate({"epochs": 1, "exchange": LOCAL | choice})
    model = build(NETWORK, seed=0)
    optimizer = LarsAdam(training.optimizer)
    exchange = make_exchange(training.exchange)
    exchange.begin(model, optimizer)
    return model, optimizer, exchange


def test_with_local_sgd_the_time_of_a_synchronisation_is_not_in_the_rest(monkeypatch):
    def slow(self, numbers):
        time.sleep(0.2)
        return numbers

    connection.start()
    monkeypatch.setattr(LocalSGDExchange, "synchronise", slow)
    _, rows, *_ = exchange_training.train(
        LOCAL, exchange_training.small_model(), exchange_training.batches()
    )
    keys = list(rows[0])
    assert keys[keys.index("compute_s") :] == ["compute_s", "sync_s", "misc_s", "samples_per_s"]
    for row, due in zip(
        rows, (False, True, False, True, True), strict=True
    ):  # every second, and the epoch's last
        assert (row["sync_s"] >= 0.2) if due else row["sync_s"] == 0
        parts = row["compute_s"] + row["comm_s"] + row["sync_s"] + row["misc_s"]
        assert parts == pytest.approx(row["step_s"], rel=1e-3)


def test_what_is_averaged_is_weights_statistics_and_moments_if_configured():
    for moments_too in (False, True):
        model, optimizer, exchange = begun(average_moments=moments_too)
        weights = []
        for variable in model.variables:
            if "float" in variable.dtype:
                weights.append(variable)
        moments = [*optimizer.m, *optimizer.v]
        averaged, kept = ([*weights, *moments], []) if moments_too else (weights, moments)
        assert [id(variable) for variable in exchange.whole] == [
            id(variable) for variable in averaged
        ]
        assert [id(variable) for variable in exchange.own] == [id(variable) for variable in kept]
        assert exchange.changed == exchange.last == []


@pytest.mark.parametrize(
    "choice", [{"precision": 8}, {"precision": 24}, {}, {"average_moments": True}]
)
def test_the_counted_bytes_are_those_of_the_built_network(choice):
    _, _, exchange = begun(**choice)
    values = []
    for variables in (exchange.whole, exchange.changed):
        values.append(sum(variable.numpy().size for variable in variables))
    planned = exchange.config.synchronisations(count(NETWORK), moments=2)
    assert planned == (2, 4 * values[0] + exchange.config.value_bytes * values[1])
