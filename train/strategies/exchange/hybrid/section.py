"""Section training.exchange of kind hybrid."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from namsa.errors import InputError

from ....experiment.exchange import Count, FusedGroups
from .plan import HybridPlan, Members


class Hybrid(FusedGroups):
    """Gradients are reduced within each node, then between leaders of the nodes, then within each node again.

    It needs neither NCCL nor MPI. A group is one buffer.
    """

    excludes: ClassVar[Mapping[str, str]] = {"split.ways": "as each divides the ranks into groups of its own"}

    kind: Literal["hybrid"] = "hybrid"
    groups: int = Field(8, ge=1, le=10_000, description="number of gradient groups of equal size in bytes")
    node_ranks: Count = Field(description="ranks per node; ranks fill one node after another")
    leaders: Count = Field(
        description="ranks per node that reduce between nodes, each an equal share of the buffer; as many as a node "
        "has network devices (Kurth et al. 2018: 4 of 6)"
    )

    @model_validator(mode="after")
    def _leaders_are_ranks_of_the_node(self) -> "Hybrid":
        if self.leaders > self.node_ranks:
            raise ValueError(f"leaders {self.leaders} is more than the {self.node_ranks} ranks of a node: lower it")
        return self

    def plan(self, ranks: int) -> HybridPlan:
        """Plans the reduction over ranks that fill one node after another.

        Raises:
            InputError: If the last node would have fewer ranks than the others.
        """
        size = self.node_ranks
        if ranks % size:
            raise InputError(
                f"training.exchange.node_ranks is {size}, and {ranks} ranks would leave {ranks % size} on the last "
                f"node: start a multiple of {size} ranks, or take another exchange.kind"
            )
        return HybridPlan(tuple(tuple(range(first, first + size)) for first in range(0, ranks, size)), self.leaders)

    def process_sets(self, ranks: int) -> Sequence[Members]:
        """See `ExchangeSection`. None if the ranks do not fill the nodes, so that all of them start and report it."""
        return [] if ranks % self.node_ranks else self.plan(ranks).groups()

    def check_hosts(self, hosts: Sequence[Sequence[int]]) -> None:
        """Checks that the ranks fill nodes, and that no node has ranks on two hosts. A host may be several nodes."""
        ranks = sum(map(len, hosts))
        for members in self.plan(ranks).nodes if ranks > 1 else ():
            if not any(set(members) <= set(host) for host in hosts):
                numbers = ", ".join(map(str, sorted({len(host) for host in hosts})))
                raise InputError(
                    f"training.exchange.node_ranks is {len(members)}, but ranks {members[0]} to {members[-1]} are on "
                    f"more than one host (hosts have {numbers} ranks): start as many ranks on every host, a multiple "
                    f"of {len(members)}, host after host, or set node_ranks to what all hosts have"
                )
