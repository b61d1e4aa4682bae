"""The reduction by nodes and leaders: plans, what they send, and numbers, with pretended ranks and with Horovod's."""

from collections import Counter
from collections.abc import Iterable

import exchange_ranks
import numpy as np
import pytest
import tensorflow as tf
import thread_ranks
from exchange_ranks import assert_close

from namsa.errors import InputError
from train.strategies.exchange.hybrid.exchange import Collectives, reduce_sum
from train.strategies.exchange.hybrid.section import Hybrid, HybridPlan, Members

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
    led, rest = shares[: case[2]], shares[case[2] :]
    assert max(led) - min(led) <= 1
    assert not any(rest)


# ---- Numbers --------------------------------------------------------------------------------------------------------


def reduced(plan, buffers):
    """What each rank has in the end."""
    groups = {members: thread_ranks.Group([members]) for members in plan.groups()}

    def on_rank(ranks):
        rank = ranks.rank()

        def gather(members, value):
            return groups[members].gather(members.index(rank), value)

        def all_to_all(members, flat, splits, name):
            received = [parts[members.index(rank)] for parts in gather(members, tf.split(flat, splits))]
            assert sum(part.shape[0] for part in received), "Horovod fails where a rank receives nothing"
            return tf.concat(received, 0)

        collectives = Collectives(all_to_all, lambda members, flat, name: tf.add_n(gather(members, flat)))
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


# ---- What travels, derived from the published schemes ----------------------------------------------------------------

Traffic = Counter[tuple[int, int]]  # values sent, by sender and receiver


def ring_traffic(members: Members, length: int) -> Traffic:
    """Returns what a ring allreduce sends: each rank passes on all parts but one of the buffer, twice."""
    count = len(members)
    base, longer = divmod(length, count)
    parts = [base + (number < longer) for number in range(count)]
    sent: Traffic = Counter()
    for place, member in enumerate(members):
        following = members[(place + 1) % count]
        for kept in (place + 1, place + 2):  # in the reduction the part that it completes, then the one that it has
            sent[member, following] += sum(parts) - parts[kept % count]
    return sent


def hybrid_traffic(plan: HybridPlan, length: int) -> Traffic:
    """Returns what the hybrid reduction of `length` values sends, less the values that ranks send themselves."""
    sent: Traffic = Counter()
    shares = plan.shares(length)
    for members in plan.nodes:
        for leader, share in zip(members, shares, strict=True):
            for other in members:
                sent[other, leader] += share
                sent[leader, other] += share
    for leader, share in zip(plan.nodes[0], shares, strict=True):
        if share:
            sent += ring_traffic(plan.counterparts(leader), share)
    return Counter({(sender, receiver): count for (sender, receiver), count in sent.items() if sender != receiver})


def between_nodes(traffic: Traffic, nodes: Iterable[Members]) -> list[int]:
    """Returns how many values of `traffic` leave each of the `nodes`."""
    return [
        sum(count for (sender, receiver), count in traffic.items() if sender in members and receiver not in members)
        for members in nodes
    ]


def per_rank(traffic, ranks):
    return [sum(count for (sender, _), count in traffic.items() if sender == rank) for rank in range(ranks)]


@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_a_ring_sends_each_part_twice_but_once(ranks):
    length = ranks * 12
    traffic = ring_traffic(tuple(range(ranks)), length)
    assert per_rank(traffic, ranks) == [2 * (ranks - 1) * length // ranks] * ranks
    assert set(traffic) == {(rank, (rank + 1) % ranks) for rank in range(ranks)}
    assert sum(ring_traffic(tuple(range(ranks)), 5).values()) == 2 * (ranks - 1) * 5  # with parts of unequal size


@pytest.mark.parametrize("case", [case for case in CASES if 1 < case[1] < case[0]])
def test_bytes_between_nodes_are_those_of_the_formula_and_fewer_than_the_flat_rings(case):
    ranks, node_ranks, leaders = case
    nodes, length = ranks // node_ranks, 12 * ranks * leaders
    plan = plan_of(*case)
    traffic = hybrid_traffic(plan, length)
    between = between_nodes(traffic, plan.nodes)
    flat = between_nodes(ring_traffic(tuple(range(ranks)), length), plan.nodes)
    assert between == [2 * (nodes - 1) * length // nodes] * nodes
    assert flat == [2 * (ranks - 1) * length // ranks] * nodes
    assert between[0] / flat[0] == pytest.approx((1 - 1 / nodes) / (1 - 1 / ranks))
    crossing = {pair for pair in traffic if plan.node_of(pair[0]) != plan.node_of(pair[1])}
    assert len(crossing) == leaders * nodes  # streams, where the flat ring has one per node
    within = sum(traffic.values()) - sum(between)
    assert within == 2 * nodes * (node_ranks - 1) * length  # half of an allreduce on each node and one back


# ---- Refused --------------------------------------------------------------------------------------------------------


def test_nodes_with_different_numbers_of_ranks_are_refused():
    config = Hybrid(node_ranks=4, leaders=2)
    with pytest.raises(InputError, match=r"node_ranks is 4, and 6 ranks would leave 2 on the last node"):
        config.check_hosts([[0, 1, 2, 3], [4, 5]])
    assert config.process_sets(6) == []  # so that all ranks start, and report it
    with pytest.raises(InputError, match=r"ranks 0 to 3 are on more than one host \(hosts have 3, 5 ranks\)"):
        config.check_hosts([[0, 1, 2], [3, 4, 5, 6, 7]])
    with pytest.raises(InputError, match="on more than one host"):  # ranks that go round the hosts
        config.check_hosts([[0, 2, 4, 6], [1, 3, 5, 7]])
    config.check_hosts([[0, 1, 2, 3], [4, 5, 6, 7]])
    config.check_hosts([[0, 1, 2, 3, 4, 5, 6, 7]])  # one host as two nodes
    config.check_hosts([[0]])


# ---- Horovod's ranks ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_by_nodes_and_leaders_the_sums_are_those_of_all_ranks(together):
    """Two nodes of two ranks, one and two leaders, lengths that do not divide."""
    for found in together[1]:
        for name in exchange_ranks.HYBRID:
            assert max(found["float64"][name].values()) < 1e-12, name
    assert_close(together[0], "hybrid", np.load(together[0] / "groups.npz").values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flat", *exchange_ranks.HYBRID])
def test_between_nodes_travel_the_bytes_of_the_plan(together, name):
    """By the sockets' own counts. Horovod's agreements come on top."""
    nodes = ((0, 1), (2, 3))
    if name == "flat":
        planned = ring_traffic((0, 1, 2, 3), exchange_ranks.COUNTED)
    else:
        plan = exchange_ranks.configured(exchange_ranks.HYBRID[name]).exchange.plan(4)
        planned = hybrid_traffic(plan, exchange_ranks.COUNTED)
    sent = Counter(
        {(int(by), rank): n for rank, found in enumerate(together[1]) for by, n in found["received"][name].items()}
    )
    for measured, values in zip(between_nodes(sent, nodes), between_nodes(planned, nodes), strict=True):
        assert 8 * values <= measured < 8 * values * 1.02
