"""Section training.exchange of kind hybrid."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from namsa.base.errors import InputError

from ....experiment.exchange import Count, FusedGroups

Members = tuple[int, ...]  # ranks, in order


@dataclass(frozen=True)
class HybridPlan:
    """Ranks that reduce together."""

    nodes: tuple[Members, ...]  # the ranks of each node, as many in each
    leaders: int  # number of leaders per node, the first of its ranks

    def node_of(self, rank: int) -> Members:
        """Returns the ranks of the node of `rank`."""
        return next(members for members in self.nodes if rank in members)

    def counterparts(self, rank: int) -> Members:
        """Returns the ranks, one of each node, that have the place of `rank` on its node."""
        place = self.node_of(rank).index(rank)
        return tuple(members[place] for members in self.nodes)

    def groups(self) -> list[Members]:
        """Returns the groups that reduce together: the nodes, then the counterparts of each
        leader.
        """
        return [
            *self.nodes,
            *(self.counterparts(leader) for leader in self.nodes[0][: self.leaders]),
        ]

    def shares(self, length: int) -> list[int]:
        """Returns the part of a buffer of `length` values that each rank of a node reduces; 0 if it
        does not lead.
        """
        base, longer = divmod(length, self.leaders)
        led = [base + (place < longer) for place in range(self.leaders)]
        return led + [0] * (len(self.nodes[0]) - self.leaders)


class Hybrid(FusedGroups):
    """Gradients are reduced within each node, then between leaders of the nodes, then within each
    node again.

    It needs neither NCCL nor MPI. A group is one buffer.
    """

    excludes: ClassVar[Mapping[str, str]] = {
        "split.ways": "as each divides the ranks into groups of its own"
    }

    kind: Literal["hybrid"] = "hybrid"
    groups: int = Field(
        8, ge=1, le=10_000, description="number of gradient groups of equal size in bytes"
    )
    node_ranks: Count = Field(description="ranks per node; ranks fill one node after another")
    leaders: Count = Field(
        description="ranks per node that reduce between nodes, each an equal share of the buffer; "
        "as many as a node "
        "has network devices (Kurth et al. 2018: 4 of 6)"
    )

    @model_validator(mode="after")
    def _leaders_are_ranks_of_the_node(self) -> "Hybrid":
        if self.leaders > self.node_ranks:
            raise ValueError(
                f"leaders {self.leaders} is more than the {self.node_ranks} ranks of a node: lower "
                "it"
            )
        return self

    def plan(self, ranks: int) -> HybridPlan:
        """Plans the reduction over ranks that fill nodes one by one. Raises InputError if the last
        one has fewer.
        """
        size = self.node_ranks
        if ranks % size:
            raise InputError(
                f"training.exchange.node_ranks is {size}, and {ranks} ranks would leave "
                f"{ranks % size} on the last node: start a multiple of {size} ranks, or take "
                "another exchange.kind"
            )
        return HybridPlan(
            tuple(
                tuple(range(first_rank, first_rank + size)) for first_rank in range(0, ranks, size)
            ),
            self.leaders,
        )

    def process_sets(self, ranks: int) -> Sequence[Members]:
        """See `ExchangeSection`. None if the ranks do not fill the nodes, so that all of them start
        and report it.
        """
        return [] if ranks % self.node_ranks else self.plan(ranks).groups()

    def check_hosts(self, hosts: Sequence[Sequence[int]]) -> None:
        """Checks that the ranks fill nodes, and that no node has ranks on two hosts. A host may be
        several nodes.
        """
        ranks = sum(map(len, hosts))
        for members in self.plan(ranks).nodes if ranks > 1 else ():
            if not any(set(members) <= set(host) for host in hosts):
                numbers = ", ".join(map(str, sorted({len(host) for host in hosts})))
                raise InputError(
                    f"training.exchange.node_ranks is {len(members)}, but ranks {members[0]} to "
                    f"{members[-1]} are on more than one host (hosts have {numbers} ranks): start "
                    f"as many ranks on every host, a multiple of {len(members)}, host after host, "
                    "or set node_ranks to what all hosts have"
                )
