"""Averages among two and four ranks, against the same written by hand for one, and what Horovod did
for them.
"""

import math
import os

import exchange_ranks
import exchange_training
import horovod.tensorflow as hvd
import launch
import numpy as np
import pytest
import tensorflow as tf
import timelines
from exchange_training import ReferenceTraining, assert_close

from namsa.base import installation
from namsa.base.errors import InputError
from train.experiment import registry
from train.experiment.sections import Training
from train.ranks import connection, wire
from train.ranks import horovod as horovod_ranks
from train.ranks.single import SingleProcess


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """(folder, what each of two ranks has found)."""
    out = tmp_path_factory.mktemp("pair")
    return out, launch.on_ranks("exchange_ranks.py", out)[0]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", ["pair", "together"])
def test_all_ranks_have_the_same_weights(request, ranks):
    _, (first, *others) = request.getfixturevalue(ranks)
    assert (
        first["digest"].keys()
        == (exchange_ranks.OF_TWO if ranks == "pair" else exchange_ranks.TRAINED).keys()
    )
    for result in others:
        assert result["digest"] == first["digest"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "name", "tolerance"),
    [
        ("pair", "grouped", 2e-6),
        ("pair", "single", 2e-6),
        ("pair", "fp16", 2e-3),
        ("together", "groups", 2e-6),
    ],
)
def test_ranks_are_one_with_as_many_times_the_batch(request, ranks, name, tolerance):
    out, of_ranks = request.getfixturevalue(ranks)
    alone = ReferenceTraining()
    hubers = []
    for x, y in exchange_training.batches(ranks=len(of_ranks)):
        alone.optimizer.apply(alone.gradients(x, y), alone.weights)
        hubers.append(alone.huber)
    assert_close(out, name, alone.weights, tolerance)
    for result in of_ranks:
        np.testing.assert_allclose(result["huber"][name], hubers, rtol=max(1e-5, tolerance))


@pytest.mark.slow
@pytest.mark.parametrize("name", exchange_ranks.GROUPED)
def test_no_gradient_is_lost_or_misplaced(together, name):
    assert [result["exact"][name] for result in together[1]] == [0.0] * exchange_training.RANKS


@pytest.mark.slow
def test_collectives(pair):
    for rank, result in enumerate(pair[1]):
        assert result["ranks"] == [rank, 2]
        assert result["gathered"] == [{"rank": 0, "text": "Å"}, {"rank": 1, "text": "ÅÅÅÅ"}]
        assert result["lowest"] == 6
        assert result["total"] == [0.2, 1.0]


@pytest.mark.slow
def test_a_failure_is_told_by_one_rank_and_ends_all(pair):
    first, second = pair[1]
    for result in (first, second):
        assert result["same"] is None
        assert result["failed on none"] is None
    assert first["differs"] == [
        "InputError",
        "the number is 0 on rank 0 and 1 on rank 1: start all ranks alike",
    ]
    assert second["differs"] == ["SystemExit", "2"]
    assert (first["failed on 1"], second["failed on 1"]) == (
        ["SystemExit", "2"],
        ["InputError", "bad"],
    )
    assert (first["failed on both"], second["failed on both"]) == (
        ["WorkError", "zero"],
        ["SystemExit", "1"],
    )


@pytest.mark.slow
def test_groups_change_no_bit(pair):
    """Of two ranks: with more, a ring's order of summation depends on where a gradient lies in the
    buffer.
    """
    digests = pair[1][0]["digest"]
    assert len({digests[name] for name in ("single", "grouped", "layers", "contiguous")}) == 1


@pytest.mark.slow
def test_complete_groups_are_fused_and_never_split(pair):
    operations = timelines.data_operations(*timelines.read(pair[0] / "timeline.json"))
    groups = []
    for index in range(exchange_ranks.AT_ONCE):
        groups.append({f"grad_g{index}_{member}of2" for member in (1, 2)})
    for operation in operations:
        assert operation == set().union(*(group for group in groups if group <= operation))
    assert (
        sum(len(operation) for operation in operations)
        == exchange_training.STEPS * 2 * exchange_ranks.AT_ONCE
    )
    assert len(operations) < exchange_training.STEPS * exchange_ranks.AT_ONCE


@pytest.mark.slow
def test_a_float16_sum_that_overflows_is_infinite_on_both_ranks(pair):
    for result in pair[1]:
        assert result["overflow"] == [[math.inf, 1.0], [0.0, 0.0]]


@pytest.mark.slow
def test_an_infinity_on_one_rank_is_skipped_by_both(pair):
    first, second = (result["poisoned"] for result in pair[1])
    assert first == second
    assert first["scales"] == [1024, 1024, 1024, 512, 512]
    assert first["iterations"] == exchange_training.STEPS - 1
    assert first["finite"]


@pytest.mark.slow
def test_waiting_for_a_late_rank_is_communication(pair):
    punctual, late = (result["comm_s"] for result in pair[1])
    assert punctual[3] == pytest.approx(0.5, abs=0.2)
    assert late[3] < 0.2


@pytest.mark.slow
def test_ranks_share_weights_and_moments_but_not_dropout(pair):
    first, second = (result["whole network"] for result in pair[1])
    assert first["weights"] == second["weights"]
    assert first["moments"] == second["moments"]
    assert first["statistics"] == second["statistics"]
    for ours, theirs in zip(first["generators"], second["generators"], strict=True):
        assert theirs == [ours[0] + 1, ours[1]]
        assert ours[1] == exchange_training.STEPS


# ---- What Horovod did, by its own record


@pytest.mark.slow
def test_each_group_travels_by_itself_and_nothing_is_gathered_after_the_first_step(together):
    events, tensors = timelines.read(together[0] / "timeline.json")
    groups = [{"numbers_1of1"}]
    for index, members in enumerate(exchange_ranks.BLOCKS):
        groups.append({f"grad_g{index}_{member}of{members}" for member in range(1, members + 1)})
    operations = timelines.data_operations(events, tensors)
    assert len(operations) == exchange_training.STEPS * len(groups)
    for group in groups:
        assert operations.count(group) == exchange_training.STEPS
    requests = []
    for e in events:
        if e["ph"] == "X" and e["name"] in {str(r) for r in range(4)}:
            requests.append(tensors[e["pid"]])
    for group in (
        groups
    ):  # a rank's request reaches rank 0 once, before the first reduction, and never again
        for tensor in group:
            assert requests.count(tensor) == exchange_training.RANKS


# ---- float16 on the wire, for emulated ranks


def summed(message, ranks):
    """The float16 sum of as many equal messages, added in pairs as a tree of ranks does."""
    if ranks == 1:
        return message
    half = summed(message, ranks // 2)
    return half + half + message if ranks % 2 else half + half


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 96, 27_600])
def test_the_divisors_share_the_ranks_between_small_and_large_gradients(ranks):
    predivisor, postdivisor = wire.wire_divisors(ranks)
    assert predivisor * postdivisor == ranks
    assert ranks**0.5 / 2**0.5 <= predivisor <= ranks**0.5 * 2**0.5
    assert predivisor == 2 ** round(np.log2(predivisor))  # so that it rounds no gradient


def test_at_27600_ranks_gradients_arrive_that_division_by_the_ranks_would_lose():
    ranks = 27_600
    gradients = tf.constant([5e-4, 1e-4, 5e-5, 1e-5], tf.float32)
    assert not np.any(
        tf.cast(gradients / ranks, tf.float16)
    )  # as it was: less than half the smallest float16
    means = wire.from_wire(summed(wire.to_wire(gradients, ranks), ranks), ranks).numpy()
    np.testing.assert_allclose(means, gradients, rtol=0.5)  # subnormal, with one to seven bits
    np.testing.assert_allclose(means[0], 5e-4, rtol=1e-2)
    # The smallest that is left is half of float16's smallest number times the divisor.
    smallest = 2.0**-25 * wire.wire_divisors(ranks)[0]
    assert wire.to_wire(tf.constant(1.01 * smallest), ranks) > 0
    assert wire.to_wire(tf.constant(0.99 * smallest), ranks) == 0


@pytest.mark.parametrize("ranks", [2, 96, 27_600])
def test_equal_gradients_overflow_in_the_sum_where_predicted(ranks):
    limit = 65504 / wire.wire_divisors(ranks)[1]
    fits, overflows = (wire.to_wire(tf.constant(limit * share), ranks) for share in (0.97, 1.03))
    assert np.isfinite([fits, overflows]).all()  # no message does
    np.testing.assert_allclose(wire.from_wire(summed(fits, ranks), ranks), 0.97 * limit, rtol=5e-3)
    assert np.isinf(wire.from_wire(summed(overflows, ranks), ranks))


# ---- One process


def training(**sections):
    return Training.model_validate({"epochs": 1} | sections)


def test_horovod_is_given_its_settings_before_it_starts(monkeypatch):
    given = {}
    monkeypatch.setattr(hvd, "init", lambda process_sets: given.update(os.environ))
    monkeypatch.setattr(hvd, "size", lambda: 1)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    ranks = {"cache_capacity": 0, "fusion_threshold_mib": 64, "cycle_time_ms": 0.1}
    horovod_ranks.connect(training(exchange={"hierarchical": True}, ranks=ranks), 0, 1)
    wanted = {
        "CACHE_CAPACITY": "0",
        "FUSION_THRESHOLD": str(2**26),
        "CYCLE_TIME": "0.1",
        "HIERARCHICAL_ALLREDUCE": "1",
        "DISABLE_GROUP_FUSION": "0",
    }
    assert {name: given[f"HOROVOD_{name}"] for name in wanted} == wanted
    horovod_ranks.connect(training(exchange={"fuse_groups": False}), 0, 1)
    assert given["HOROVOD_DISABLE_GROUP_FUSION"] == "1"
    assert given["HOROVOD_HIERARCHICAL_ALLREDUCE"] == "0"
    horovod_ranks.connect(training(exchange={"groups": 1}), 0, 1)
    assert given["HOROVOD_DISABLE_GROUP_FUSION"] == "1"


def test_hierarchical_is_refused_where_horovod_would_ignore_it(monkeypatch):
    monkeypatch.setattr(hvd, "init", lambda process_sets: None)
    monkeypatch.setattr(hvd, "size", lambda: 2)
    monkeypatch.setattr(hvd, "rank", lambda: 0)
    monkeypatch.setattr(hvd, "nccl_built", lambda: False)
    monkeypatch.setattr(connection, "rank_and_size", lambda: (0, 2))
    with pytest.raises(InputError, match="hierarchical needs Horovod built with NCCL"):
        connection.start(training(exchange={"hierarchical": True}))


def test_an_mpi_launcher_of_a_horovod_without_mpi_is_refused(monkeypatch):
    monkeypatch.setattr(hvd, "init", lambda process_sets: None)
    monkeypatch.setattr(hvd, "size", lambda: 1)
    with pytest.raises(InputError, match="started 2 ranks, and Horovod sees 1: it was built"):
        horovod_ranks.connect(training(), 0, 2)


def test_one_process_without_a_strategy_needs_no_horovod(monkeypatch):
    monkeypatch.setattr(connection, "find_spec", lambda name: None)
    engine = connection.start(training())
    assert isinstance(engine, SingleProcess)
    assert connection.engine() is engine
    assert (engine.rank(), engine.size(), engine.nodes()) == (0, 1, [[0]])
    assert engine.gather_json({"a": (1, 2)}) == [{"a": [1, 2]}]
    assert engine.versions() == {}


def test_the_error_of_local_work_is_raised_as_it_is_by_a_single_process():
    error = InputError("bad")
    with pytest.raises(InputError) as raised, SingleProcess().local_work():
        raise error
    assert raised.value is error


NEED_HOROVOD = {
    "hybrid": {"node_ranks": 2, "leaders": 1},
    "lag": {},
    "local_sgd": {"synchronise": 2},
    "sharded": {},
}


@pytest.mark.parametrize("kind", registry.kinds("exchange"))
def test_every_strategy_of_the_exchange_says_that_it_needs_horovod(kind, monkeypatch):
    section = training(exchange={"kind": kind} | NEED_HOROVOD[kind])
    monkeypatch.setattr(connection, "find_spec", lambda name: None)
    monkeypatch.setattr(installation, "CHECKOUT", False)
    with pytest.raises(
        InputError,
        match=rf"kind {kind} needs Horovod, which is not installed: .* --no-build-isolation",
    ):
        connection.start(section)
    monkeypatch.setattr(connection.backend, "name", lambda: "jax")
    with pytest.raises(
        InputError,
        match=rf"kind {kind} needs Horovod, which exchanges no tensors of JAX: set it to",
    ):
        connection.start(section)
    with pytest.raises(
        InputError, match="ways 2 needs Horovod, which exchanges no tensors of JAX: set it to 1"
    ):
        connection.start(training(split={"ways": 2}))
