"""The reduction by nodes and leaders: plans, what they send, and numbers, with emulated ranks and
with Horovod's.
"""

import exchange_ranks
import numpy as np
import pytest
import tensorflow as tf
import thread_ranks
from exchange_training import assert_close

from namsa.base.errors import InputError
from train.strategies.exchange.hybrid.exchange import Collectives, reduce_sum
from train.strategies.exchange.hybrid.section import Hybrid, HybridPlan

# Ranks, those of a node, leaders.
CASES = [(4, 2, 1), (4, 2, 2), (6, 3, 2), (6, 2, 2), (12, 6, 4), (8, 4, 3), (6, 6, 4), (3, 1, 1)]


def plan_of(ranks, node_ranks, leaders):
    return Hybrid(node_ranks=node_ranks, leaders=leaders).plan(ranks)


def test_nodes_leaders_and_their_counterparts():
    plan = plan_of(6, 3, 2)
    assert plan == HybridPlan(((0, 1, 2), (3, 4, 5)), 2)
    assert plan.groups() == [(0, 1, 2), (3, 4, 5), (0, 3), (1, 4)]
    assert Hybrid(node_ranks=3, leaders=2).process_sets(6) == plan.groups()


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 1000])
@pytest.mark.parametrize("case", CASES)
def test_leaders_share_a_buffer_of_any_length_evenly(case, length):
    plan = plan_of(*case)
    shares = plan.shares(length)
    assert len(shares) == case[1]
    assert sum(shares) == length
    led = shares[: case[2]]
    rest = shares[case[2] :]
    assert max(led) - min(led) <= 1
    assert not any(rest)


# ---- Numbers


def reduced(plan, buffers):
    """Values that each rank has in the end."""
    groups = {members: thread_ranks.Group([members]) for members in plan.groups()}

    def on_rank(ranks):
        rank = ranks.rank()

        def gather(members, value):
            return groups[members].gather(members.index(rank), value)

        def all_to_all(members, flat, splits, name):
            received = []
            for parts in gather(members, tf.split(flat, splits)):
                received.append(parts[members.index(rank)])
            assert sum(piece.shape[0] for piece in received), (
                "Horovod fails where a rank receives nothing"
            )
            return tf.concat(received, 0)

        collectives = Collectives(
            all_to_all, lambda members, flat, name: tf.add_n(gather(members, flat))
        )
        return reduce_sum(tf.constant(buffers[rank]), plan, rank, "g", collectives).numpy()

    return thread_ranks.run(plan.nodes, on_rank)


@pytest.mark.parametrize("length", [1, 3, 23])
@pytest.mark.parametrize("case", CASES)
def test_every_rank_has_the_sum_of_all_in_the_same_bits(case, length):
    buffers = np.random.default_rng(0).normal(size=(case[0], length))
    results = reduced(plan_of(*case), buffers)
    np.testing.assert_allclose(results[0], buffers.sum(0), rtol=1e-12, atol=1e-14)
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


# ---- Refused


def test_nodes_with_different_numbers_of_ranks_are_refused():
    config = Hybrid(node_ranks=4, leaders=2)
    with pytest.raises(
        InputError, match=r"node_ranks is 4, and 6 ranks would leave 2 on the last node"
    ):
        config.check_hosts([[0, 1, 2, 3], [4, 5]])
    assert config.process_sets(6) == []  # so that all ranks start, and report it
    with pytest.raises(
        InputError, match=r"ranks 0 to 3 are on more than one host \(hosts have 3, 5 ranks\)"
    ):
        config.check_hosts([[0, 1, 2], [3, 4, 5, 6, 7]])
    with pytest.raises(InputError, match="on more than one host"):  # ranks that go round the hosts
        config.check_hosts([[0, 2, 4, 6], [1, 3, 5, 7]])
    config.check_hosts([[0, 1, 2, 3], [4, 5, 6, 7]])
    config.check_hosts([[0, 1, 2, 3, 4, 5, 6, 7]])  # one host as two nodes
    config.check_hosts([[0]])


# ---- Horovod's ranks


@pytest.mark.slow
def test_by_nodes_and_leaders_the_sums_are_those_of_all_ranks(together):
    """Two nodes of two ranks, one and two leaders, lengths that do not divide."""
    for result in together[1]:
        for name in exchange_ranks.HYBRID:
            assert max(result["float64"][name].values()) < 1e-12, name
    assert_close(together[0], "hybrid", np.load(together[0] / "groups.npz").values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flat", *exchange_ranks.HYBRID])
def test_between_nodes_travel_the_bytes_of_the_plan(together, name):
    """By the sockets' own counts: a ring of n passes on each nth of its values twice, less the two
    that a rank keeps.

    The flat ring has all ranks, and those of the leaders have the nodes. Horovod's agreements come
    on top.
    """
    ring = 4 if name == "flat" else 2
    planned = 2 * (ring - 1) * exchange_ranks.COUNTED // ring
    received = [result["received"][name] for result in together[1]]
    for here, there in ((0, 1), (2, 3)), ((2, 3), (0, 1)):
        measured = sum(received[rank].get(str(by), 0) for by in here for rank in there)
        assert 8 * planned <= measured < 8 * planned * 1.02
