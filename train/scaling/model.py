"""Growth of the time per step of data-parallel training with the number of ranks: a model of
Horovod.

The model follows the events of a step. A rank computes for `compute_s`. Its gradients become ready
one after another, from the last layer to the first. In cycles, all ranks agree which gradients are
ready on every rank (coordination). Those are reduced in a few fused operations, one after another
on the wire, while the rest is still being computed. The step ends with the slowest rank and the
last reduction. With local SGD, ranks compute several steps before they wait for each other and
average weights, which nothing hides. The efficiency is the time per step of one rank alone over
that of many ranks.

Coordination (Laanait et al. 2019; Kurth et al. 2018, section V-A3):
  master-worker  every rank tells rank 0 of every ready gradient, in ranks × gradients messages
  tree           the same along a tree in which every rank has `radix` children
  bitvector      the names are agreed on once; from then on all ranks reduce a vector of bits
  none           the order of the reductions is fixed (LBANN)

Stragglers: a rank is late by a small Gaussian fraction of the step and, with probability
`late_rate` per step, by the fraction `late_share` of it (operating system, clocks, network). A step
waits for the slowest of all ranks. The first delay grows as √(2 ln ranks). The second grows as 1 −
exp(−ranks · late_rate): slowly at first, then it is there in nearly every step (Petrini et al.
2003; Hoefler et al. 2010, on noise).

Reductions (Thakur et al. 2005; Jeaugey 2019 for double binary trees), of B bytes on N nodes, R
ranks, g ranks per node:
  ring           2 (R − 1) hops, 2 B over the node's link
  tree           2 log₂ N hops between nodes and 2 (g − 1) within, 2 B over the node's link
  hierarchical   reduce-scatter and all-gather within the node, MPI on the hosts between nodes,
                 during which the coordination waits: in float32 2 B over MPI's rate, in float16,
                 whose sum is Horovod's own, a ring of 2 (N − 1) hops and B over the rate of the
                 sums (Open MPI up to 4.0 takes it for large messages)
"""

import math
from dataclasses import dataclass
from functools import partial

from .strategy import Allreduce, Machine, Strategy, Unit, fused, units
from .workload import StepWorkload, WireType


@dataclass(frozen=True)
class StepEstimate:
    """The model's step; with local SGD, the mean of the steps between two synchronisations."""

    seconds: float  # time of the whole step, s
    operations: float  # number of reductions on the wire per step
    cycles: float  # number of agreements in which a tensor was ready, per step
    reduced_bytes: float  # bytes that a rank gives to reductions per step


def estimate_step(
    machine: Machine,
    work: StepWorkload,
    strategy: Strategy,
    ranks: int,
    steps_per_epoch: float | None = None,
) -> StepEstimate:
    """Returns the model's step.

    Args:
        steps_per_epoch: Steps per epoch, after which local SGD synchronises, too. `None` leaves the
            ends of epochs out, which a strategy that synchronises by "epoch" does not allow.
    """
    if ranks == 1:
        return StepEstimate(work.compute_s, 0, 0, 0)
    if strategy.synchronise != "step":
        return _local_step(machine, work, strategy, ranks, steps_between(strategy, steps_per_epoch))
    delay_s = partial(straggler_delay_s, machine, ranks, work.compute_s)
    slowest_s = work.compute_s + delay_s(work.compute_s)
    # for the slowest rank, which announces a gradient; with lag it is there when the step begins
    waiting = []
    for unit in units(work.gradients, strategy):
        ready_s = 0.0
        if not strategy.lag:
            ready_s = unit.ready_s + delay_s(unit.ready_s)
        waiting.append(unit._replace(ready_s=ready_s))
    reduced = _reduce(machine, work, strategy, ranks, waiting)
    return StepEstimate(
        max(slowest_s, reduced.seconds), reduced.operations, reduced.cycles, reduced.reduced_bytes
    )


def efficiency(
    machine: Machine, work: StepWorkload, strategy: Strategy, ranks: int, baseline: int = 1
) -> float:
    """Returns the time per step of `baseline` ranks over that of `ranks` ranks, with the same batch
    per rank.
    """
    return (
        estimate_step(machine, work, strategy, baseline).seconds
        / estimate_step(machine, work, strategy, ranks).seconds
    )


def steps_between(strategy: Strategy, steps_per_epoch: float | None) -> float:
    """Returns the mean number of steps from one synchronisation of local SGD to the next.

    Raises ValueError if `strategy` synchronises by "epoch", and the length of epochs is not known.
    """
    every = strategy.synchronise
    if isinstance(every, int):
        if steps_per_epoch:
            return steps_per_epoch / math.ceil(steps_per_epoch / every)
        return every
    if steps_per_epoch is None:
        raise ValueError("steps_per_epoch is needed where ranks synchronise by epoch")
    return max(1, steps_per_epoch)


def block_bytes(work: StepWorkload, strategy: Strategy) -> int:
    """Returns the size of the block that a rank sends when local SGD synchronises."""
    kernels = 0
    others = 0
    for gradient in work.gradients:
        if gradient.path.endswith("/kernel"):
            kernels += gradient.size
        else:
            others += gradient.size
    return strategy.averaged_per_weight * (others + kernels * strategy.kernel_bytes // 4)


def checkpoint_s(machine: Machine, state_bytes: int, between_s: float) -> float:
    """Returns the time for which a checkpoint holds all ranks, s.

    They wait while rank 0 copies its state to the host. It writes it behind the training, which
    waits for that only where the next checkpoint is due before.
    """
    return state_bytes / machine.copy_bytes_per_s + max(
        0.0, state_bytes / machine.disk_bytes_per_s - between_s
    )


def _local_step(
    machine: Machine, work: StepWorkload, strategy: Strategy, ranks: int, steps: float
) -> StepEstimate:
    """The mean of `steps` steps of local SGD, after which weights, and moments if configured,
    travel as one block.
    """
    delay_s = straggler_delay_s(machine, ranks, work.compute_s, work.compute_s, steps)
    together = Unit(steps * work.compute_s + delay_s, (block_bytes(work, strategy),))
    reduced = _reduce(machine, work, strategy, ranks, [together])
    return StepEstimate(*(value / steps for value in vars(reduced).values()))


def _reduce(
    machine: Machine, work: StepWorkload, strategy: Strategy, ranks: int, waiting: list[Unit]
) -> StepEstimate:
    """Agreements and reductions of what becomes ready; `seconds` is when the last reduction
    ends.
    """
    now = 0.0
    wire_free = 0.0
    cycles = 0
    operations = []
    while waiting:
        now = max(now, waiting[0].ready_s)
        ready = [unit for unit in waiting if unit.ready_s <= now]
        waiting = waiting[len(ready) :]
        cycle_start = now
        cycles = cycles + 1
        now += coordination_s(machine, strategy, ranks, sum(len(unit.sizes) for unit in ready))
        for size in fused(ready, strategy):
            wire_free = max(wire_free, now) + allreduce_s(
                machine, strategy.allreduce, ranks, size, work.dtype
            )
            operations.append(size)
        if strategy.allreduce == "hierarchical":
            now = wire_free
        now = max(now, cycle_start + strategy.cycle_s)
    return StepEstimate(wire_free, len(operations), cycles, sum(operations))


def straggler_delay_s(
    machine: Machine, ranks: int, compute_s: float, time_s: float, steps: float = 1
) -> float:
    """Returns the expected delay of the slowest rank.

    Args:
        compute_s: Time of the computation of a step, s.
        time_s: Time in the step at which the delay is asked, for an undisturbed rank, s.
        steps: Number of steps, to their ends, after which ranks wait for each other; then `time_s`
            is `compute_s`.
    """
    if ranks == 1:
        return 0.0
    load = time_s / compute_s
    gaussian = machine.jitter * math.sqrt(2 * math.log(ranks) * steps)
    rare = machine.late_share * _most_events(machine.late_rate * load * steps, ranks)
    return compute_s * (gaussian * load + rare)


def _most_events(mean: float, ranks: int) -> float:
    """The expected largest of `ranks - 1` Poisson numbers with a mean, on which the others of a
    step wait.
    """
    if mean > 100:  # the distribution is nearly normal
        return mean + math.sqrt(2 * mean * math.log(ranks))
    largest = 0.0
    events = 0
    term = math.exp(-mean)
    below = 0.0
    while events <= mean or (ranks - 1) * term > 1e-12:
        below = min(below + term, 1.0)  # the probability of at most `events` of them at one rank
        largest -= math.expm1((ranks - 1) * math.log(below))
        events += 1
        term *= mean / events
    return largest


def coordination_s(machine: Machine, strategy: Strategy, ranks: int, announced: int) -> float:
    """Returns the time of the agreement in one cycle on gradients that every rank announces, s; 0
    for one rank.
    """
    if ranks == 1 or strategy.coordination == "none":
        return 0.0
    hop = machine.hop_between_nodes_s
    per_rank = machine.message_s + machine.announcement_s * announced
    if strategy.coordination == "master-worker":
        return ranks * per_rank + math.log2(ranks) * hop
    if strategy.coordination == "tree":
        return 2 * math.ceil(math.log(ranks, strategy.radix)) * (strategy.radix * per_rank + hop)
    return 2 * math.log2(ranks) * hop


def allreduce_s(
    machine: Machine, algorithm: Allreduce, ranks: int, size: int, dtype: WireType
) -> float:
    """Returns the time of one reduction over ranks that fill the nodes one after another, s."""
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
        return (
            within + 2 * (nodes - 1) * machine.host_hop_s + size / machine.host_float16_bytes_per_s
        )
    return within + levels + 2 * size * (nodes - 1) / nodes / machine.host_float32_bytes_per_s
