"""The choices of `training.reduction`, among four ranks and against the same written by hand for one."""

import json
import os
from collections import Counter

import four_ranks
import launch
import numpy as np
import pytest
import tensorflow as tf
import timelines
from traffic import between_nodes, hybrid_traffic, ring_traffic

from namsa.errors import InputError
from train.experiment.reduction import Hybrid, Reduction
from train.optimization import lag, losses, precision
from train.optimization.loop import make_step
from train.optimization.optimizers import LarsAdam
from train.ranks import reduction, wire
from train.ranks.hybrid import plan_hybrid


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    out = tmp_path_factory.mktemp("four_ranks")
    ended = launch.horovodrun("tests/support/four_ranks.py", out, ranks=four_ranks.RANKS)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return out, [json.loads((out / f"{rank}.json").read_text()) for rank in range(four_ranks.RANKS)]


class Alone:
    """One process that trains with nothing of `reduction` or `make_step`."""

    def __init__(self):
        self.training = four_ranks.configured({})
        self.model = four_ranks.small_model(seed=0)
        self.weights = self.model.trainable_variables
        self.optimizer = LarsAdam(self.training.optimizer)
        self.optimizer.build(self.weights)

    def gradients(self, x, y):
        """Those of the loss; `huber` is its part that depends on the samples."""
        with tf.GradientTape() as tape:
            huber = losses.huber(self.model(x, training=True), y, losses.huber_delta(self.training.loss, 0))
            loss = huber + losses.l2(losses.kernels(self.weights), self.training.loss.l2)
        self.huber = float(huber)
        return tape.gradient(loss, [weight.value for weight in self.weights])


def assert_close(out, name, weights, tolerance=2e-6):
    with np.load(out / f"{name}.npz") as file:
        for found, wanted in zip(file.values(), weights, strict=True):
            np.testing.assert_allclose(found, wanted, atol=tolerance)


@pytest.mark.slow
def test_all_ranks_have_the_same_weights(together):
    for name in four_ranks.TRAINED:
        assert len({found["digest"][name] for found in together[1]}) == 1, name


@pytest.mark.slow
@pytest.mark.parametrize("name", four_ranks.GROUPED)
def test_no_gradient_is_lost_or_misplaced(together, name):
    assert [found["exact"][name] for found in together[1]] == [0.0] * four_ranks.RANKS


@pytest.mark.slow
def test_by_nodes_and_leaders_the_sums_are_those_of_all_ranks(together):
    """Two nodes of two ranks, one and two leaders, lengths that do not divide."""
    for found in together[1]:
        for name in four_ranks.HYBRID:
            assert max(found["float64"][name].values()) < 1e-12, name
    assert_close(together[0], "hybrid", np.load(together[0] / "groups.npz").values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flat", *four_ranks.HYBRID])
def test_between_nodes_travel_the_bytes_of_the_plan(together, name):
    """By the sockets' own counts. Horovod's agreements come on top."""
    nodes = ((0, 1), (2, 3))
    if name == "flat":
        planned = ring_traffic((0, 1, 2, 3), four_ranks.COUNTED)
    else:
        planned = hybrid_traffic(plan_hybrid(Hybrid(**four_ranks.HYBRID[name]["hybrid"]), 4), four_ranks.COUNTED)
    sent = Counter(
        {(int(by), rank): n for rank, found in enumerate(together[1]) for by, n in found["received"][name].items()}
    )
    for measured, values in zip(between_nodes(sent, nodes), between_nodes(planned, nodes), strict=True):
        assert 8 * values <= measured < 8 * values * 1.02


@pytest.mark.slow
def test_four_ranks_are_one_with_four_times_the_batch(together):
    alone, hubers = Alone(), []
    for x, y in four_ranks.batches():
        alone.optimizer.apply(alone.gradients(x, y), alone.weights)
        hubers.append(alone.huber)
    assert_close(together[0], "groups", alone.weights)
    for found in together[1]:
        np.testing.assert_allclose(found["huber"]["groups"], hubers, rtol=1e-5)


@pytest.mark.slow
def test_with_lag_a_step_takes_the_gradient_of_the_one_before(together):
    out, found = together
    alone = Alone()
    previous = [tf.zeros(weight.shape) for weight in alone.weights]
    for x, y in four_ranks.batches():
        now = alone.gradients(x, y)
        alone.optimizer.apply(previous, alone.weights)
        previous = now
    assert_close(out, "lag", alone.weights)
    before, after = zip(*(rank["waiting"] for rank in found), strict=True)
    assert len(set(before)) == four_ranks.RANKS  # what waits is each rank's own
    assert len(set(after)) == 1  # and, once averaged, the state of the job


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", "local_moments"])
def test_local_steps_then_the_mean_of_weights_and_of_moments_if_wanted(together, name):
    out, found = together
    ranks = [Alone() for _ in range(four_ranks.RANKS)]
    for number, (x, y) in enumerate(four_ranks.batches(), start=1):
        for rank, alone in enumerate(ranks):
            alone.optimizer.apply(alone.gradients(x[rank : rank + 1], y[rank : rank + 1]), alone.weights)
        if number in (2, 4, four_ranks.STEPS):  # every second step, and the epoch's last
            moments = name == "local_moments"
            averaged = ([*alone.weights, *(alone.optimizer.moments if moments else [])] for alone in ranks)
            for same in zip(*averaged, strict=True):
                mean = np.mean([variable.numpy() for variable in same], axis=0)
                for variable in same:
                    variable.assign(mean)
    assert_close(out, name, ranks[0].weights)
    assert len({rank["moments"][name] for rank in found}) == (1 if name == "local_moments" else four_ranks.RANKS)
    losses_of_ranks = [rank["huber"][name] for rank in found]
    assert len({row[0] for row in losses_of_ranks}) == four_ranks.RANKS  # between, each rank's own
    assert len({row[1] for row in losses_of_ranks}) == 1


def cut(values, size):
    """The highest bytes of float32 values, by NumPy."""
    words = np.asarray(values, np.float32).view(np.uint32)
    return (words & np.uint32(0xFFFFFFFF << (32 - 8 * size) & 0xFFFFFFFF)).view(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [8, 16, 24])
def test_changes_since_the_last_average_travel_in_fewer_bits(together, bits):
    """By the rule: the mean of changes that are cut off, itself cut off, is added to the last average."""
    ranks = [Alone() for _ in range(four_ranks.RANKS)]
    last = [weight.numpy() for weight in ranks[0].weights]
    for number, (x, y) in enumerate(four_ranks.batches(), start=1):
        for rank, alone in enumerate(ranks):
            alone.optimizer.apply(alone.gradients(x[rank : rank + 1], y[rank : rank + 1]), alone.weights)
        if number in (2, 4, four_ranks.STEPS):
            for index, same in enumerate(zip(*(alone.weights for alone in ranks), strict=True)):
                values = np.stack([variable.numpy() for variable in same])
                if values.ndim > 2:  # kernels
                    mean = cut(np.mean([cut(each - last[index], bits // 8) for each in values], axis=0), bits // 8)
                    last[index] = last[index] + mean
                else:
                    last[index] = values.mean(axis=0)
                for variable in same:
                    variable.assign(last[index])
    with np.load(together[0] / f"local_{bits}.npz") as file:
        found = list(file.values())
    differences = np.concatenate([np.abs(a - b).ravel() for a, b in zip(found, last, strict=True)])
    assert np.mean(differences > 2e-6) < 0.02  # rounding may bring a change over the edge where it is cut off


@pytest.mark.slow
def test_own_moments_return_to_their_ranks_from_the_arrays_of_a_checkpoint(together):
    assert [found["moments_again"] for found in together[1]] == [[True] * 4] * four_ranks.RANKS


# ---- What Horovod did, by its own record ----------------------------------------------------------------------------


@pytest.mark.slow
def test_each_group_travels_by_itself_and_nothing_is_gathered_after_the_first_step(together):
    events, tensors = timelines.read(together[0] / "timeline.json")
    groups = [{"numbers_1of1"}]
    for number, members in enumerate(four_ranks.BLOCKS):
        groups.append({f"grad_g{number}_{member}of{members}" for member in range(1, members + 1)})
    operations = timelines.data_operations(events, tensors)
    assert len(operations) == four_ranks.STEPS * len(groups)
    for group in groups:
        assert operations.count(group) == four_ranks.STEPS
    requests = [tensors[e["pid"]] for e in events if e["ph"] == "X" and e["name"] in {str(r) for r in range(4)}]
    for group in groups:  # a rank's request reaches rank 0 once, before the first reduction, and never again
        assert all(requests.count(tensor) == four_ranks.RANKS for tensor in group)


@pytest.mark.slow
def test_local_sgd_sends_one_block_when_it_synchronises_and_nothing_else(together):
    operations = timelines.data_operations(*timelines.read(together[0] / "synchronisations.json"))
    assert operations == [{"average_1of1"}] * 3  # after steps 2, 4 and the epoch's last, 5


# ---- float16 on the wire, for ranks that are pretended ---------------------------------------------------------------


def summed(message, ranks):
    """The float16 sum of as many equal messages, added in pairs as a tree of ranks does."""
    if ranks == 1:
        return message
    half = summed(message, ranks // 2)
    return half + half + message if ranks % 2 else half + half


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 96, 27_600])
def test_the_divisors_share_the_ranks_between_small_and_large_gradients(ranks):
    before, after = wire.wire_divisors(ranks)
    assert before * after == ranks
    assert ranks**0.5 / 2**0.5 <= before <= ranks**0.5 * 2**0.5
    assert before == 2 ** round(np.log2(before))  # so that it rounds no gradient


def test_at_27600_ranks_gradients_arrive_that_division_by_the_ranks_would_lose():
    ranks = 27_600
    gradients = tf.constant([5e-4, 1e-4, 5e-5, 1e-5], tf.float32)
    assert not np.any(tf.cast(gradients / ranks, tf.float16))  # as it was: less than half the smallest float16
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
    fits, overflows = (wire.to_wire(tf.constant(limit * part), ranks) for part in (0.97, 1.03))
    assert np.isfinite([fits, overflows]).all()  # no message does
    np.testing.assert_allclose(wire.from_wire(summed(fits, ranks), ranks), 0.97 * limit, rtol=5e-3)
    assert np.isinf(wire.from_wire(summed(overflows, ranks), ranks))


# ---- One process ----------------------------------------------------------------------------------------------------


def stepped(choice, batches, **sections):
    config, model = four_ranks.configured(choice), four_ranks.small_model(seed=0)
    config = config.model_validate(config.model_dump() | sections)
    optimizer = precision.with_loss_scale(LarsAdam(config.optimizer), config)
    optimizer.build(model.trainable_variables)
    waiting = lag.gradient_buffers(model.trainable_variables, config.reduction)
    step = make_step(model, optimizer, config, waiting)
    rows = [step(x, y, tf.constant(four_ranks.RATE), tf.constant(10.0)).numpy() for x, y in batches]
    return [weight.numpy() for weight in model.trainable_variables], rows, waiting


def test_without_lag_nothing_waits():
    reduction.start(Reduction())
    plain, _, waiting = stepped({}, four_ranks.batches())
    assert waiting == []
    zero, _, _ = stepped({"lag": 0}, four_ranks.batches())
    for ours, theirs in zip(plain, zero, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_late_gradients_follow_a_changing_loss_scale():
    """A scale that doubles between a gradient and its use changes nothing."""
    reduction.start(Reduction())
    plain, rows, _ = stepped({"lag": 1}, four_ranks.batches())
    scaled = {"compute": "mixed_float16", "initial_loss_scale": 8.0, "growth_steps": 2}
    found, scaled_rows, _ = stepped({"lag": 1}, four_ranks.batches(), precision=scaled)  # the model stays float32
    assert [row[2] for row in scaled_rows] == [8, 8, 16, 16, 32]
    for ours, theirs in zip(found, plain, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-7)
    np.testing.assert_allclose([row[3] for row in scaled_rows], [row[3] for row in rows], rtol=1e-5)
    assert rows[0][3] == 0


def test_horovod_is_told_before_it_starts(monkeypatch):
    reduction.start(Reduction())
    told = {}
    monkeypatch.setattr(reduction.hvd, "init", lambda process_sets: told.update(os.environ))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    reduction.start(Reduction(cache_capacity=0, fusion_threshold_mib=64, cycle_time_ms=0.1, hierarchical=True))
    wanted = {
        "CACHE_CAPACITY": "0",
        "FUSION_THRESHOLD": str(2**26),
        "CYCLE_TIME": "0.1",
        "HIERARCHICAL_ALLREDUCE": "1",
        "DISABLE_GROUP_FUSION": "0",
    }
    assert {name: told[f"HOROVOD_{name}"] for name in wanted} == wanted
    reduction.start(Reduction(fuse_groups=False))
    assert (told["HOROVOD_DISABLE_GROUP_FUSION"], told["HOROVOD_HIERARCHICAL_ALLREDUCE"]) == ("1", "0")
    reduction.start(Reduction(groups=1))
    assert told["HOROVOD_DISABLE_GROUP_FUSION"] == "1"


def test_hierarchical_is_refused_where_horovod_would_ignore_it(monkeypatch):
    reduction.start(Reduction())
    monkeypatch.setattr(reduction.hvd, "init", lambda process_sets: None)
    monkeypatch.setattr(reduction.hvd, "size", lambda: 2)
    monkeypatch.setattr(reduction, "rank_and_size", lambda: (0, 2))
    with pytest.raises(InputError, match="hierarchical needs Horovod built with NCCL"):
        reduction.start(Reduction(hierarchical=True))


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"grouping": "list"}, "go together"),
        ({"group_list": [["*"]]}, "go together"),
        ({"groups": 0, "grouping": "layer"}, "tensor by tensor"),
        ({"synchronise": 4, "lag": 1}, "synchronise: step alone"),
        ({"synchronise": "epoch", "compression": "fp16"}, "synchronise: step alone"),
        ({"synchronise": 2, "hybrid": {"node_ranks": 2, "leaders": 1}}, "synchronise: step alone"),
        ({"hierarchical": True, "hybrid": {"node_ranks": 2, "leaders": 1}}, "unset hierarchical"),
        ({"hybrid": {"node_ranks": 2, "leaders": 3}}, "leaders 3 is more than the 2 ranks of a node"),
        ({"average_moments": True}, "average_moments is for local SGD"),
        ({"transfer": {"precision": 16}}, "transfer is for weights that travel"),
        ({"synchronise": 4, "average_moments": True, "transfer": {"precision": 16}}, "transfer.precision is 16"),
        (
            {"synchronise": 4, "transfer": {"precision": "adaptive", "threshold": 1e-3}},
            "precision adaptive follows the norms of weights from step to step",
        ),
    ],
)
def test_choices_that_do_not_go_together(choice, message):
    with pytest.raises(ValueError, match=message):
        Reduction.model_validate(choice)


def test_local_steps_need_no_loss_scale():
    with pytest.raises(ValueError, match="mixed_bfloat16"):
        four_ranks.training(reduction={"synchronise": 2}, precision={"compute": "mixed_float16"})
