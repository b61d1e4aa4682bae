"""Division of samples among ranks: shares of equal cost, from the manifest, rank and number of
ranks alone.

The samples of a specimen are simulated together, by one rank.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from namsa.dataset.entry import Entry


@dataclass(frozen=True)
class RankLayout:
    """The place of one rank among all."""

    rank: int = 0  # the rank's number
    size: int = 1  # the number of ranks
    local_size: int = 1  # the number of ranks that write to the same disk


ONE_RANK = RankLayout()


def share(entries: Sequence[Entry], rank: int, size: int) -> list[Entry]:
    """Returns the entries of `rank` out of `size` ranks, specimen by specimen, in an order that
    ignores their cost.

    Specimens are assigned in order of decreasing cost, each to the rank with the least work so far
    (Graham's rule: no rank has more than 4/3 of what the best division would give it). Those for
    training come first, so that they are divided equally too: all ranks take equally many steps,
    and the rank with the fewest samples decides how many. Every part of a share, and so what a time
    limit leaves of it, mixes materials, orientations and thicknesses as the whole does. Entries
    that cannot be built are dealt out evenly.
    """
    feasible = by_specimen(entry for entry in entries if not entry.skipped)
    skipped = shuffled(entry for entry in entries if entry.skipped)
    # by cost, then by number if costs are equal or unknown
    loads = [(0, 0, other) for other in range(size)]
    own_entries = skipped[rank::size]
    for group in sorted(feasible, key=lambda group: (group[0].split != "train", -_cost(group))):
        cost, count, least_busy = loads[0]
        heapq.heapreplace(loads, (cost + _cost(group), count + len(group), least_busy))
        if least_busy == rank:
            own_entries += group
    return [entry for group in by_specimen(own_entries) for entry in group]


def by_specimen(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Returns the entries of each specimen. Specimens, and the entries of each, are in the order of
    `shuffled`.
    """
    groups: dict[str, list[Entry]] = defaultdict(list)
    for entry in shuffled(entries):
        groups[entry.specimen or entry.id].append(entry)
    return list(groups.values())


def _cost(group: Sequence[Entry]) -> int:
    return sum(entry.cost for entry in group)


def shuffled(entries: Iterable[Entry]) -> list[Entry]:
    """Returns `entries` in a random order that is always the same."""
    return sorted(entries, key=lambda entry: (entry.seed, entry.id))
