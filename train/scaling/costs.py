"""The parts of a step that grow with the number of ranks: stragglers, agreements, reductions."""

import math

from .machine import Machine
from .strategy import Allreduce, Strategy
from .workload import WireType


def straggler_delay_s(machine: Machine, ranks: int, compute_s: float, time_s: float, steps: float = 1) -> float:
    """Returns the expected delay of the slowest rank.

    Args:
        compute_s: Time of the computation of a step, s.
        time_s: Time in the step at which the delay is asked, for an undisturbed rank, s.
        steps: Number of steps, to their ends, after which ranks wait for each other; then `time_s` is `compute_s`.
    """
    if ranks == 1:
        return 0.0
    part = time_s / compute_s
    gaussian = machine.jitter * math.sqrt(2 * math.log(ranks) * steps)
    rare = machine.late_share * _most_events(machine.late_rate * part * steps, ranks)
    return compute_s * (gaussian * part + rare)


def _most_events(mean: float, ranks: int) -> float:
    """The expected largest of `ranks - 1` Poisson numbers with a mean, on which the others of a step wait."""
    if mean > 100:  # the distribution is nearly normal
        return mean + math.sqrt(2 * mean * math.log(ranks))
    largest, number, term, below = 0.0, 0, math.exp(-mean), 0.0
    while number <= mean or (ranks - 1) * term > 1e-12:
        below = min(below + term, 1.0)  # the probability of at most `number` of them at one rank
        largest -= math.expm1((ranks - 1) * math.log(below))
        number += 1
        term *= mean / number
    return largest


def coordination_s(machine: Machine, strategy: Strategy, ranks: int, announced: int) -> float:
    """Returns the time of the agreement in one cycle, s; 0 for one rank.

    Args:
        strategy: How gradients are reduced.
        announced: Number of gradients that every rank announces.
    """
    if ranks == 1 or strategy.coordination == "none":
        return 0.0
    hop, per_rank = machine.hop_between_nodes_s, machine.message_s + machine.announcement_s * announced
    if strategy.coordination == "master-worker":
        return ranks * per_rank + math.log2(ranks) * hop
    if strategy.coordination == "tree":
        return 2 * math.ceil(math.log(ranks, strategy.radix)) * (strategy.radix * per_rank + hop)
    return 2 * math.log2(ranks) * hop


def allreduce_s(machine: Machine, algorithm: Allreduce, ranks: int, size: int, dtype: WireType) -> float:
    """Returns the time of one reduction, s.

    Args:
        ranks: Number of ranks, which fill the nodes one after another.
        size: Bytes to reduce.
        dtype: Type of the numbers.
    """
    if ranks == 1:
        return 0.0
    inside = min(ranks, machine.ranks_per_node)
    nodes = math.ceil(ranks / machine.ranks_per_node)
    within = (
        2 * (inside - 1) * machine.hop_within_node_s
        + 2 * size * (inside - 1) / inside / machine.within_node_bytes_per_s
    )
    if nodes == 1:
        return within
    between = 2 * size * (nodes - 1) / nodes / machine.node_link_bytes_per_s
    if algorithm == "ring":
        hops = nodes * machine.hop_between_nodes_s + (ranks - nodes) * machine.hop_within_node_s
        return 2 * hops + between
    levels = 2 * math.ceil(math.log2(nodes)) * machine.hop_between_nodes_s
    if algorithm == "tree":
        return levels + 2 * (inside - 1) * machine.hop_within_node_s + between
    if dtype == "float16":  # no type of MPI's: Horovod's own sum, for which MPI takes a ring
        return within + 2 * (nodes - 1) * machine.host_hop_s + size / machine.host_float16_bytes_per_s
    return within + levels + 2 * size * (nodes - 1) / nodes / machine.host_float32_bytes_per_s
