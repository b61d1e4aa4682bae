"""Which ranks reduce together: those of a node, and the leaders of the same number, one of each node."""

from dataclasses import dataclass

Members = tuple[int, ...]  # ranks, in order


@dataclass(frozen=True)
class HybridPlan:
    """Which ranks reduce together."""

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
        """Returns the groups that reduce together: the nodes, then the counterparts of each leader."""
        return [*self.nodes, *(self.counterparts(leader) for leader in self.nodes[0][: self.leaders])]

    def shares(self, length: int) -> list[int]:
        """Returns the part of a buffer of `length` values that each rank of a node reduces; 0 if it does not lead."""
        base, longer = divmod(length, self.leaders)
        led = [base + (place < longer) for place in range(self.leaders)]
        return led + [0] * (len(self.nodes[0]) - self.leaders)
