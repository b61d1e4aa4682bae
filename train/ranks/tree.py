"""The tree of radix r in which ranks pass messages on (Kurth et al. 2018, section V-A3).

Rank 0 is the root. The children of rank k are the ranks r·k + 1 to r·k + r. In a round every rank but the root sends
its parent one message, and every parent sends each child one. So no rank sends or receives more than r + 1, and what a
rank says reaches the root in at most log_r(number of ranks) + 1 rounds.
"""

from dataclasses import dataclass

STAR_RANKS = 256  # up to which all ranks may be children of rank 0: it reads that many datagrams at any time
RADIX = 32  # of a tree of more ranks: 27,600 are three messages from the root, and a rank has few children


@dataclass(frozen=True)
class Tree:
    """A tree of ranks."""

    ranks: int  # number of ranks
    radix: int  # largest number of children of a rank, at least 1

    def parent(self, rank: int) -> int | None:
        """Returns the parent of `rank`; `None` for rank 0."""
        return (rank - 1) // self.radix if rank else None

    def children(self, rank: int) -> range:
        """Returns the children of `rank`."""
        first = self.radix * rank + 1
        return range(min(first, self.ranks), min(first + self.radix, self.ranks))

    def ancestors(self, rank: int) -> list[int]:
        """Returns the ranks between `rank` and the root, its parent first and the root last."""
        above = []
        while (parent := self.parent(rank)) is not None:
            above.append(parent)
            rank = parent
        return above

    def depth(self) -> int:
        """Returns the largest number of messages between a rank and the root."""
        return len(self.ancestors(self.ranks - 1))

    def round(self) -> list[tuple[int, int]]:
        """Returns sender and receiver of each message of a round: from every rank to its parent, and an answer."""
        up = [(child, parent) for parent in range(self.ranks) for child in self.children(parent)]
        return up + [(parent, child) for child, parent in up]


def watch_tree(ranks: int, radix: int) -> Tree:
    """Returns the tree of training.ranks.watchdog_radix; with 0, up to `STAR_RANKS` ranks are children of rank 0."""
    return Tree(ranks, radix or (max(1, ranks - 1) if ranks <= STAR_RANKS else RADIX))
