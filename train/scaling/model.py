"""How the time per step of data-parallel training grows with the number of ranks: a model of Horovod.

The model follows the events of a step. A rank computes for `compute_s`. Its gradients become ready one after another,
from the last layer to the first. In cycles, all ranks agree which gradients are ready on every rank (coordination).
Those are reduced in a few fused operations, one after another on the wire, while the rest is still being computed. The
step ends with the slowest rank and the last reduction. With local SGD, ranks compute several steps before they wait
for each other and average weights, which nothing hides. The efficiency is the time per step of one rank
alone over that of many ranks.

Coordination (Laanait et al. 2019; Kurth et al. 2018, section V-A3):
  master-worker  every rank tells rank 0 of every ready gradient: rank 0 handles ranks × gradients messages
  tree           the same along a tree in which every rank has `radix` children
  bitvector      the names are agreed on once; from then on all ranks reduce a vector of bits, without messages
  none           the order of the reductions is fixed (LBANN)

Stragglers: a rank is late by a small Gaussian fraction of the step and, with probability `late_rate` per step, by the
fraction `late_share` of it (operating system, clocks, network). A step waits for the slowest of all ranks. The first
delay grows as √(2 ln ranks). The second grows as 1 − exp(−ranks · late_rate): slowly at first, then it is there in
nearly every step (Petrini et al. 2003; Hoefler et al. 2010, on noise).

Reductions (Thakur et al. 2005; Jeaugey 2019 for double binary trees), of B bytes on N nodes, R ranks, g ranks per node:
  ring           2 (R − 1) hops, 2 B over the node's link
  tree           2 log₂ N hops between nodes and 2 (g − 1) within, 2 B over the node's link
  hierarchical   reduce-scatter and all-gather within the node, MPI on the hosts between nodes, during which the
                 coordination waits: in float32 2 B over MPI's rate, in float16, whose sum is Horovod's own, a ring of
                 2 (N − 1) hops and B over the rate of the sums (Open MPI up to 4.0 takes it for large messages)
"""

import math
from dataclasses import dataclass

from .costs import allreduce_s, coordination_s, straggler_delay_s
from .machine import Machine
from .strategy import Strategy, Unit, fused, units
from .workload import Workload


@dataclass(frozen=True)
class StepEstimate:
    """The model's step; with local SGD, the mean of the steps between two synchronisations."""

    seconds: float  # time of the whole step, s
    operations: float  # number of reductions on the wire per step
    cycles: float  # number of agreements in which a tensor was ready, per step
    reduced_bytes: float  # bytes that a rank gives to reductions per step


def estimate_step(
    machine: Machine, work: Workload, strategy: Strategy, ranks: int, steps_per_epoch: float | None = None
) -> StepEstimate:
    """Returns the model's step.

    Args:
        work: The step of one rank without communication.
        strategy: How gradients are reduced.
        steps_per_epoch: Steps per epoch, after which local SGD synchronises, too. `None` leaves the ends of epochs
            out, which a strategy that synchronises by "epoch" does not allow.
    """
    if ranks == 1:
        return StepEstimate(work.compute_s, 0, 0, 0)
    if strategy.synchronise != "step":
        return _local_step(machine, work, strategy, ranks, steps_between(strategy, steps_per_epoch))
    slowest_s = work.compute_s + straggler_delay_s(machine, ranks, work.compute_s, work.compute_s)

    def announced_s(ready_s: float) -> float:
        """When the slowest rank announces a gradient; with lag it is there when the step begins."""
        return 0.0 if strategy.lag else ready_s + straggler_delay_s(machine, ranks, work.compute_s, ready_s)

    waiting = [unit._replace(ready_s=announced_s(unit.ready_s)) for unit in units(work.gradients, strategy)]
    reduced = _reduce(machine, work, strategy, ranks, waiting)
    return StepEstimate(max(slowest_s, reduced.seconds), reduced.operations, reduced.cycles, reduced.reduced_bytes)


def efficiency(machine: Machine, work: Workload, strategy: Strategy, ranks: int, baseline: int = 1) -> float:
    """Returns the time per step of `baseline` ranks over that of `ranks` ranks, with the same batch per rank."""
    return (
        estimate_step(machine, work, strategy, baseline).seconds / estimate_step(machine, work, strategy, ranks).seconds
    )


def steps_between(strategy: Strategy, steps_per_epoch: float | None) -> float:
    """Returns the mean number of steps from one synchronisation of local SGD to the next.

    Args:
        strategy: How ranks synchronise, "epoch" or a number of steps.
        steps_per_epoch: Steps per epoch; `None` if not known.

    Raises:
        ValueError: If `strategy` synchronises by "epoch" and `steps_per_epoch` is not known.
    """
    every = strategy.synchronise
    if isinstance(every, int):
        return steps_per_epoch / math.ceil(steps_per_epoch / every) if steps_per_epoch else every
    if steps_per_epoch is None:
        raise ValueError("steps_per_epoch is needed where ranks synchronise by epoch")
    return max(1, steps_per_epoch)


def block_bytes(work: Workload, strategy: Strategy) -> int:
    """Returns the size of the block that a rank sends when local SGD synchronises."""
    values = sum(gradient.size for gradient in work.gradients)
    kernels = sum(gradient.size for gradient in work.gradients if gradient.path.endswith("/kernel"))
    return strategy.averaged_per_weight * (values - kernels + kernels * strategy.kernel_bytes // 4)


def checkpoint_s(machine: Machine, state_bytes: int, between_s: float) -> float:
    """Returns the time for which a checkpoint holds all ranks, s.

    They wait while rank 0 copies its state to the host. It writes it behind the training, which waits for that only
    where the next checkpoint is due before.

    Args:
        state_bytes: Size of the checkpoint.
        between_s: Time of the steps between two checkpoints, s.
    """
    return state_bytes / machine.copy_bytes_per_s + max(0.0, state_bytes / machine.disk_bytes_per_s - between_s)


def _local_step(machine: Machine, work: Workload, strategy: Strategy, ranks: int, steps: float) -> StepEstimate:
    """The mean of `steps` steps of local SGD, after which weights, and moments if configured, travel as one block."""
    delay_s = straggler_delay_s(machine, ranks, work.compute_s, work.compute_s, steps)
    together = Unit(steps * work.compute_s + delay_s, (block_bytes(work, strategy),))
    reduced = _reduce(machine, work, strategy, ranks, [together])
    return StepEstimate(*(value / steps for value in vars(reduced).values()))


def _reduce(machine: Machine, work: Workload, strategy: Strategy, ranks: int, waiting: list[Unit]) -> StepEstimate:
    """Agreements and reductions of what becomes ready; `seconds` is when the last reduction ends."""
    now, wire_free, cycles, operations = 0.0, 0.0, 0, []
    while waiting:
        now = max(now, waiting[0].ready_s)
        ready = [unit for unit in waiting if unit.ready_s <= now]
        waiting = waiting[len(ready) :]
        cycle_start, cycles = now, cycles + 1
        now += coordination_s(machine, strategy, ranks, sum(len(unit.sizes) for unit in ready))
        for size in fused(ready, strategy):
            wire_free = max(wire_free, now) + allreduce_s(machine, strategy.allreduce, ranks, size, work.dtype)
            operations.append(size)
        if strategy.allreduce == "hierarchical":
            now = wire_free
        now = max(now, cycle_start + strategy.cycle_s)
    return StepEstimate(wire_free, len(operations), cycles, sum(operations))
