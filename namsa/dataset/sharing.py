"""Which rank simulates which samples: shares of equal cost, from the manifest, rank and number of ranks alone."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from namsa.dataset.entry import Entry


@dataclass(frozen=True)
class RankLayout:
    """The place of one rank among all.

    Attributes:
        rank: The rank's number.
        size: The number of ranks.
        local_size: The number of ranks that write to the same disk.
    """

    rank: int = 0
    size: int = 1
    local_size: int = 1


ONE_RANK = RankLayout()


def share(entries: Sequence[Entry], rank: int, size: int) -> list[Entry]:
    """Returns the entries of `rank` out of `size` ranks, in an order that does not depend on their cost.

    Entries are assigned in order of decreasing cost, each to the rank with the least work so far (Graham's rule: no
    rank has more than 4/3 of what the best division would give it). Those for training come first, so that they are
    divided equally too: all ranks take equally many steps, and the rank with the fewest samples decides how many. Every
    part of a share, and so what a time limit
    leaves of it, mixes materials, orientations and thicknesses as the whole does. Entries that cannot be built are
    dealt out evenly.
    """
    feasible = shuffled(entry for entry in entries if not entry.skipped)
    skipped = shuffled(entry for entry in entries if entry.skipped)
    loads = [(0, 0, other) for other in range(size)]  # by cost, then by number if costs are equal or unknown
    own_entries = skipped[rank::size]
    for entry in sorted(feasible, key=lambda entry: (entry.split != "train", -entry.cost)):
        cost, count, least_busy = loads[0]
        heapq.heapreplace(loads, (cost + entry.cost, count + 1, least_busy))
        if least_busy == rank:
            own_entries.append(entry)
    return shuffled(own_entries)


def shuffled(entries: Iterable[Entry]) -> list[Entry]:
    """Returns `entries` in a random order that is always the same."""
    return sorted(entries, key=lambda entry: (entry.seed, entry.id))
