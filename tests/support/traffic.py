"""How many values each rank of a reduction should send to each other one, derived from the published schemes."""

from collections import Counter
from collections.abc import Iterable

from train.strategies.exchange.hybrid.section import HybridPlan, Members

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
