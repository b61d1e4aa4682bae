"""The hybrid reduction of Kurth et al. (2018), section V-A3: within a node, between leaders, within
the node again.

The first k ranks of each node lead. Every rank sends each leader of its node a k-th of its buffer,
and the leader adds them. The leaders of the same number, one of each node, reduce their k-th. Each
leader then sends the sum to the ranks of its node. So k streams run between nodes, each a ring of
as many ranks as there are nodes.

The paper reduces within the node by an allreduce, and ends with broadcasts. Here both are
all-to-all exchanges, which move half the bytes of an allreduce within the node and are kept in
Horovod's response cache; its broadcasts never are.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from namsa.base.arrays import Tensor

from ....ranks.buffers import in_one_buffer
from ....ranks.connection import engine
from ....ranks.exchange import AllreduceExchange
from .section import Hybrid, HybridPlan, Members


class HybridExchange(AllreduceExchange):
    """Averages gradients over all ranks in every step, each group as one buffer by way of the
    nodes' leaders.
    """

    config: Hybrid

    def reduce_group(self, tensors: Sequence[Tensor], name: str, average: bool) -> list[Tensor]:
        rank = engine().rank()
        ranks = engine().size()

        def work(flat: Tensor) -> Tensor:
            total = reduce_sum(flat, self.config.plan(ranks), rank, name, COLLECTIVES)
            return total / ranks if average else total

        return in_one_buffer(tensors, work)


class Collectives(NamedTuple):
    """The collectives among some of the ranks. Each takes the ranks first and the name of the
    message last.
    """

    # Sends values to each rank, with their numbers; returns what the ranks send to this one, in
    # order.
    all_to_all: Callable[[Members, Tensor, Sequence[int], str], Tensor]
    sum: Callable[[Members, Tensor, str], Tensor]  # returns the sum of the values over the ranks


def reduce_sum(
    flat: Tensor, plan: HybridPlan, rank: int, name: str, collectives: Collectives
) -> Tensor:
    """Returns the sum of one axis of values over all ranks, the same bits on all of them.

    Call it inside a tf.function.
    """
    members = plan.node_of(rank)
    if len(members) == 1:
        return collectives.sum(plan.counterparts(rank), flat, name)
    shares = plan.shares(flat.shape[0])
    own_share = shares[members.index(rank)]
    # Values of this rank for each member of its node, and back.
    incoming = list(shares)
    outgoing = [own_share] * len(members)
    message = flat
    if not own_share:
        # Horovod fails where a rank receives nothing, so one without a share sends itself a value,
        # behind all shares.
        place = members.index(rank)
        incoming[place] = 1
        outgoing[place] = 1
        message = tf.concat([flat, flat[:1]], 0)
    received = collectives.all_to_all(members, message, incoming, f"{name}_in")
    if own_share:
        led = tf.reduce_sum(tf.reshape(received, [len(members), own_share]), 0)
        if len(plan.nodes) > 1:
            led = collectives.sum(plan.counterparts(rank), led, f"{name}_between")
        led = tf.tile(led, [len(members)])
    else:
        # no constant: TensorFlow computes what depends on constants alone while it traces
        led = received[:1]
    returned = collectives.all_to_all(members, led, outgoing, f"{name}_out")
    return tf.ensure_shape(returned[: flat.shape[0]], flat.shape)


COLLECTIVES = Collectives(
    lambda members, flat, splits, name: engine().all_to_all(
        flat, tf.constant(splits), name, members
    ),
    lambda members, flat, name: engine().reduce([flat], name, members=members)[0],
)
EXCHANGE = HybridExchange
