"""How the time per step of synchronous data-parallel training grows with the number of ranks: a model of Horovod.

The model follows the events of a step. A rank computes for `compute_s`. Its gradients become ready one after another,
from the last layer to the first. In cycles, all ranks agree which gradients are ready on every rank (coordination).
Those are reduced in a few fused operations, one after another on the wire, while the rest is still being computed. The
step ends with the slowest rank and the last reduction. The efficiency is the time per step of one rank alone over that
of many ranks.

Coordination (Laanait et al. 2019; Kurth et al. 2018, section V-A3):
  master-worker  every rank tells rank 0 of every ready gradient: rank 0 handles ranks × gradients messages
  tree           the same along a tree in which every rank has `radix` children
  bitvector      the names are agreed on once; from then on all ranks reduce a vector of bits, without messages

Stragglers: a rank is late by a small Gaussian fraction of the step and, with probability `late_rate` per step, by the
fraction `late_share` of it (operating system, clocks, network). A step waits for the slowest of all ranks. The first
delay grows as √(2 ln ranks). The second grows as 1 − exp(−ranks · late_rate): slowly at first, then it is there in
nearly every step (Petrini et al. 2003; Hoefler et al. 2010, on noise).

Reductions (Thakur et al. 2005; Jeaugey 2019 for double binary trees), of B bytes on N nodes, R ranks, g ranks per node:
  ring           2 (R − 1) hops, 2 B over the node's link
  tree           2 log₂ N hops between nodes and 2 (g − 1) within, 2 B over the node's link
  hierarchical   reduce-scatter and all-gather within the node, MPI on the host between nodes, during which the
                 coordination waits
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from fcdensenet.config import NetworkConfig
from fcdensenet.count import BYTES_PER_VALUE, LayerCount, count
from namsa.config.loading import Section

FORWARD_SHARE = 1 / 3  # of a step's computation: backward makes two gradients, by input and by weights

Coordination = Literal["master-worker", "tree", "bitvector"]
Allreduce = Literal["ring", "tree", "hierarchical"]
WireType = Literal["float16", "float32"]


class Machine(Section):
    """What a rank and the network between ranks can do. The defaults are Summit's; see `train.scaling.published`."""

    name: str = "Summit"
    ranks_per_node: PositiveInt = 6
    sustained_flop_per_s: PositiveFloat = Field(59.67e12, description="of a rank, over a whole step")
    node_link_bytes_per_s: PositiveFloat = Field(21e9, description="into and out of a node, as collectives see it")
    within_node_bytes_per_s: PositiveFloat = Field(40e9, description="between the ranks of a node")
    host_float16_bytes_per_s: PositiveFloat = Field(0.9e9, description="MPI's sum of float16 on hosts, per node")
    host_float32_bytes_per_s: PositiveFloat = Field(6e9, description="MPI's sum of float32 on hosts, per node")
    hop_between_nodes_s: NonNegativeFloat = 10e-6
    hop_within_node_s: NonNegativeFloat = 3e-6
    message_s: NonNegativeFloat = Field(1e-6, description="the coordinator's time per message of a rank")
    announcement_s: NonNegativeFloat = Field(7e-6, description="the coordinator's time per gradient and rank")
    jitter: NonNegativeFloat = Field(0.001, description="standard deviation of a rank's step, relative to the step")
    late_rate: NonNegativeFloat = Field(1.9e-5, description="probability per step that a rank is late")
    late_share: NonNegativeFloat = Field(0.2, description="how late, relative to the step")


@dataclass(frozen=True)
class Gradient:
    """One gradient.

    Attributes:
        size: Bytes on the wire.
        ready_s: When an undisturbed rank has it, s from the start of the step.
    """

    size: int
    ready_s: float


@dataclass(frozen=True)
class Workload:
    """A step of one rank without communication.

    Attributes:
        compute_s: Time of the computation, s.
        gradients: The gradients, in the order in which they become ready.
        dtype: Type of the gradients on the wire.
    """

    compute_s: float
    gradients: tuple[Gradient, ...]
    dtype: WireType


@dataclass(frozen=True)
class Strategy:
    """How gradients are reduced.

    Attributes:
        coordination: How ranks agree which gradients are ready.
        groups: Number of groups of about equal bytes, which are reduced only when complete; 0 fuses what is ready.
        allreduce: Algorithm of the reduction.
        lag: Whether the gradients of the previous step are reduced.
        radix: Children per rank of the coordination tree.
        cycle_s: Shortest time between agreements, s.
        fusion_bytes: Largest size of a fused operation, bytes.
    """

    coordination: Coordination
    groups: int
    allreduce: Allreduce
    lag: bool = False
    radix: int = 4
    cycle_s: float = 0.5e-3
    fusion_bytes: int = 128 * 2**20


def workload(network: NetworkConfig, dtype: WireType, compute_s: float) -> Workload:
    """Returns the step of a network. The time of the computation is shared among the layers by their FLOP.

    Args:
        network: The network.
        dtype: Type of the gradients on the wire.
        compute_s: Time of the computation of one step, of the whole batch of a rank, s.
    """
    layers = [layer for layer in count(network).layers if layer.trainable_parameters]
    total_flop = sum(layer.forward_flop for layer in layers)
    forward_s = FORWARD_SHARE * compute_s
    done_flop, gradients = 0, []
    for layer in reversed(layers):
        done_flop += layer.forward_flop
        ready_s = forward_s + (compute_s - forward_s) * done_flop / total_flop
        gradients += [Gradient(size * BYTES_PER_VALUE[dtype], ready_s) for size in _tensor_sizes(layer)]
    return Workload(compute_s, tuple(gradients), dtype)


def _tensor_sizes(layer: LayerCount) -> list[int]:
    """Numbers in each trainable tensor: a kernel and its bias, or the scale and shift of a normalisation."""
    if not layer.kernel_shape:
        return 2 * [layer.trainable_parameters // 2]
    bias = layer.trainable_parameters - layer.weights
    return [layer.weights, bias] if bias else [layer.weights]


# ---- Parts of a step ------------------------------------------------------------------------------------------------


def straggler_delay_s(machine: Machine, ranks: int, compute_s: float, time_s: float) -> float:
    """Returns the expected delay of the slowest rank.

    Args:
        machine: The machine.
        ranks: Number of ranks.
        compute_s: Time of the computation of a step, s.
        time_s: Time in the step at which the delay is asked, for an undisturbed rank, s.
    """
    part = time_s / compute_s
    gaussian = machine.jitter * math.sqrt(2 * math.log(ranks))
    rare = machine.late_share * -math.expm1(-machine.late_rate * (ranks - 1) * part)
    return compute_s * (gaussian * part + rare)


def coordination_s(machine: Machine, strategy: Strategy, ranks: int, announced: int) -> float:
    """Returns the time of the agreement in one cycle, s; 0 for one rank.

    Args:
        machine: The machine.
        strategy: How gradients are reduced.
        ranks: Number of ranks.
        announced: Number of gradients that every rank announces.
    """
    if ranks == 1:
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
        machine: The machine.
        algorithm: Algorithm of the reduction.
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
    if dtype == "float16":  # MPI reduces a user-defined sum by recursive doubling: all bytes at every level
        return within + levels + math.ceil(math.log2(nodes)) * size / machine.host_float16_bytes_per_s
    return within + levels + 2 * size * (nodes - 1) / nodes / machine.host_float32_bytes_per_s


# ---- A step ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StepEstimate:
    """The model's step.

    Attributes:
        seconds: Time of the whole step, s.
        operations: Number of reductions on the wire.
        cycles: Number of agreements in which a gradient was ready.
    """

    seconds: float
    operations: int
    cycles: int


class _Unit(NamedTuple):
    """Gradients that are announced and reduced together: their number, their bytes and when all are ready, s."""

    ready_s: float
    gradients: int
    size: int


def estimate_step(machine: Machine, work: Workload, strategy: Strategy, ranks: int) -> StepEstimate:
    """Returns the model's step.

    Args:
        machine: The machine.
        work: The step of one rank without communication.
        strategy: How gradients are reduced.
        ranks: Number of ranks.
    """
    slowest_s = work.compute_s + straggler_delay_s(machine, ranks, work.compute_s, work.compute_s)
    if ranks == 1:
        return StepEstimate(work.compute_s, 0, 0)

    def announced_s(ready_s: float) -> float:
        """When the slowest rank announces a gradient; with lag it is there when the step begins."""
        return 0.0 if strategy.lag else ready_s + straggler_delay_s(machine, ranks, work.compute_s, ready_s)

    waiting = [unit._replace(ready_s=announced_s(unit.ready_s)) for unit in _units(work.gradients, strategy.groups)]
    now, wire_free, operations, cycles = 0.0, 0.0, 0, 0
    while waiting:
        now = max(now, waiting[0].ready_s)
        ready = [unit for unit in waiting if unit.ready_s <= now]
        waiting = waiting[len(ready) :]
        cycle_start, cycles = now, cycles + 1
        now += coordination_s(machine, strategy, ranks, sum(unit.gradients for unit in ready))
        for size in _fused([unit.size for unit in ready], strategy):
            wire_free = max(wire_free, now) + allreduce_s(machine, strategy.allreduce, ranks, size, work.dtype)
            operations += 1
        if strategy.allreduce == "hierarchical":
            now = wire_free
        now = max(now, cycle_start + strategy.cycle_s)
    return StepEstimate(max(slowest_s, wire_free), operations, cycles)


def efficiency(machine: Machine, work: Workload, strategy: Strategy, ranks: int) -> float:
    """Returns the time per step of one rank over that of `ranks` ranks, each with the batch of the one rank."""
    return work.compute_s / estimate_step(machine, work, strategy, ranks).seconds


def _units(gradients: Sequence[Gradient], groups: int) -> list[_Unit]:
    """What is announced and reduced as one: each gradient, or each group when complete."""
    total, before = sum(gradient.size for gradient in gradients), 0.0
    members_of: dict[int, list[Gradient]] = {}
    for index, gradient in enumerate(gradients):
        group = min(groups - 1, int(groups * (before + gradient.size / 2) / total)) if groups else index
        members_of.setdefault(group, []).append(gradient)
        before += gradient.size
    return [
        _Unit(max(gradient.ready_s for gradient in members), len(members), sum(gradient.size for gradient in members))
        for members in members_of.values()
    ]


def _fused(sizes: Sequence[int], strategy: Strategy) -> list[int]:
    """Bytes of each operation: what is ready together is sent together, up to the fusion threshold."""
    operations: list[int] = []
    for size in sizes:
        if operations and operations[-1] + size <= strategy.fusion_bytes:
            operations[-1] += size
        else:
            operations.append(size)
    return operations
