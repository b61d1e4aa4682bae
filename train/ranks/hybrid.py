"""The hybrid reduction of Kurth et al. (2018), section V-A3: within a node, between leaders, within the node again.

The first k ranks of each node lead. Every rank sends each leader of its node a k-th of its buffer, and the leader adds
them. The leaders of the same number, one of each node, reduce their k-th. Each leader then sends the sum to the ranks
of its node. So k streams run between nodes, each a ring of as many ranks as there are nodes.

The paper reduces within the node by an allreduce, and ends with broadcasts. Here both are all-to-all exchanges, which
move half the bytes of an allreduce within the node and are kept in Horovod's response cache; its broadcasts never are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from namsa.errors import InputError

from ..experiment.reduction import Hybrid, Reduction

Tensor = Any
Members = tuple[int, ...]  # ranks, in order


@dataclass(frozen=True)
class HybridPlan:
    """Which ranks reduce together.

    Attributes:
        nodes: The ranks of each node, as many in each.
        leaders: Number of leaders per node, the first of its ranks.
    """

    nodes: tuple[Members, ...]
    leaders: int

    def node_of(self, rank: int) -> Members:
        """Returns the ranks of the node of `rank`."""
        return next(members for members in self.nodes if rank in members)

    def counterparts(self, rank: int) -> Members:
        """Returns the ranks, one of each node, that have the place of `rank` on its node."""
        place = self.node_of(rank).index(rank)
        return tuple(members[place] for members in self.nodes)

    def groups(self) -> list[Members]:
        """Returns the groups that reduce together: the nodes, then the counterparts of each leader."""
        return [*self.nodes, *(self.counterparts(leader) for leader in self.nodes[0][: self.leaders])]

    def shares(self, length: int) -> list[int]:
        """Returns the part of a buffer of `length` values that each rank of a node reduces; 0 if it does not lead."""
        base, longer = divmod(length, self.leaders)
        led = [base + (place < longer) for place in range(self.leaders)]
        return led + [0] * (len(self.nodes[0]) - self.leaders)


def plan_hybrid(config: Hybrid, ranks: int) -> HybridPlan:
    """Plans the reduction over ranks that fill one node after another.

    Args:
        config: The section training.reduction.hybrid.
        ranks: Number of ranks.

    Raises:
        InputError: If the last node would have fewer ranks than the others.
    """
    size = config.node_ranks
    if ranks % size:
        raise InputError(
            f"training.reduction.hybrid.node_ranks is {size}, and {ranks} ranks would leave {ranks % size} on the last "
            f"node: start a multiple of {size} ranks, or leave training.reduction.hybrid out"
        )
    nodes = tuple(tuple(range(first, first + size)) for first in range(0, ranks, size))
    return HybridPlan(nodes, config.leaders)


def groups_of(config: Reduction, ranks: int) -> list[Members]:
    """Returns the groups of some of the ranks that reduce together; none if the ranks do not fill the nodes."""
    if not config.hybrid or ranks % config.hybrid.node_ranks:
        return []
    return [members for members in plan_hybrid(config.hybrid, ranks).groups() if 1 < len(members) < ranks]


def check_hosts(config: Reduction, hosts: Sequence[Sequence[int]]) -> None:
    """Checks that the ranks fill nodes, and that no node has ranks on two hosts. A host may be several nodes.

    Args:
        config: The section training.reduction.
        hosts: The ranks of each host.

    Raises:
        InputError: If the ranks do not fill the nodes of training.reduction.hybrid, or one has ranks on two hosts.
    """
    ranks = sum(map(len, hosts))
    if not config.hybrid or ranks == 1:
        return
    for members in plan_hybrid(config.hybrid, ranks).nodes:
        if not any(set(members) <= set(host) for host in hosts):
            numbers = ", ".join(map(str, sorted({len(host) for host in hosts})))
            raise InputError(
                f"training.reduction.hybrid.node_ranks is {len(members)}, but ranks {members[0]} to {members[-1]} are "
                f"on more than one host (hosts have {numbers} ranks): start as many ranks on every host, a multiple of "
                f"{len(members)}, host after host, or set node_ranks to what all hosts have"
            )


# ---- The reduction --------------------------------------------------------------------------------------------------


class Collectives(NamedTuple):
    """The collectives among some of the ranks. Each takes the ranks first and the name of the message last.

    Attributes:
        all_to_all: Sends values to each rank, with their numbers; returns what the ranks send to this one, in order.
        sum: Returns the sum of the values over the ranks.
    """

    all_to_all: Callable[[Members, Tensor, Sequence[int], str], Tensor]
    sum: Callable[[Members, Tensor, str], Tensor]


def reduce_sum(flat: Tensor, plan: HybridPlan, rank: int, name: str, collectives: Collectives) -> Tensor:
    """Returns the sum of `flat` over all ranks, the same bits on all of them. Call it inside a tf.function.

    Args:
        flat: One axis of known length, at least 1.
        plan: Which ranks reduce together.
        rank: This rank.
        name: The same on all ranks, and unique in a step.
        collectives: `train.ranks.reduction`.
    """
    members, shares = plan.node_of(rank), plan.shares(flat.shape[0])
    if len(members) == 1:
        return collectives.sum(plan.counterparts(rank), flat, name)
    own = shares[members.index(rank)]
    # Horovod fails where a rank receives nothing, so one without a share sends itself a value, behind all shares.
    to_itself = [int(not own and member == rank) for member in members]
    outgoing = flat if own else tf.concat([flat, flat[:1]], 0)
    splits = [share + extra for share, extra in zip(shares, to_itself, strict=True)]
    received = collectives.all_to_all(members, outgoing, splits, f"{name}_in")
    if own:
        led = tf.reduce_sum(tf.reshape(received, [len(members), own]), 0)
        led = collectives.sum(plan.counterparts(rank), led, f"{name}_between") if len(plan.nodes) > 1 else led
        led = tf.tile(led, [len(members)])
    else:
        led = received[:1]  # no constant: TensorFlow computes what depends on constants alone while it traces
    returned = collectives.all_to_all(members, led, [own or to for to in to_itself], f"{name}_out")
    return tf.ensure_shape(returned[: flat.shape[0]], flat.shape)
