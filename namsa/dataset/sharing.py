"""Who makes which samples: shares of equal cost, which follow from the manifest, rank and number of ranks alone."""

import heapq
from collections.abc import Iterable, Sequence

from namsa.dataset.manifest import Entry


def share(entries: Sequence[Entry], rank: int, size: int) -> list[Entry]:
    """`rank`'s entries, in an order that has nothing to do with their cost.

    The costliest first, each goes to the rank that has least to do (Graham's rule: no rank has more than 4/3 of what
    the best division would give it). Within a share, and so in whatever part of it a time limit leaves, materials,
    orientations and thicknesses are mixed as in the whole. Entries that cannot be built are dealt out evenly.
    """
    feasible = shuffled(entry for entry in entries if not entry.skipped)
    skipped = shuffled(entry for entry in entries if entry.skipped)
    loads = [(0, 0, other) for other in range(size)]  # by cost, then by number where costs are equal or not known
    mine = skipped[rank::size]
    for entry in sorted(feasible, key=lambda entry: -entry.cost):
        cost, count, least_busy = loads[0]
        heapq.heapreplace(loads, (cost + entry.cost, count + 1, least_busy))
        if least_busy == rank:
            mine.append(entry)
    return shuffled(mine)


def shuffled(entries: Iterable[Entry]) -> list[Entry]:
    """`entries` in an order that is random and always the same."""
    return sorted(entries, key=lambda entry: (entry.seed, entry.id))
