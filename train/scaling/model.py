"""How a step of synchronous data-parallel training grows with the number of ranks: a model of Horovod, event by event.

A rank computes for `compute_s`; its gradients become ready one after another, from the last layer to the first. In
cycles, all ranks agree which gradients are ready everywhere (coordination), and those are reduced in few, fused
operations, one after another on the wire, while the rest is still being computed. The step ends with the slowest rank
and the last reduction. Efficiency is the step of one rank alone over the step of many.

Coordination (Laanait et al. 2019; Kurth et al. 2018, section V-A3):
  master-worker  every rank tells rank 0 of every ready gradient: rank 0 handles ranks × gradients messages
  tree           the same along a tree in which every rank has `radix` children
  bitvector      names are agreed on once; from then on all ranks reduce a vector of bits, and nobody is told anything

Stragglers: a rank is late by a small Gaussian part of the step, and now and then, with probability `late_rate` a step,
by `late_share` of it (operating system, clocks, network). A step waits for the slowest of all ranks: the first grows
as √(2 ln ranks), the second as 1 − exp(−ranks · late_rate), slowly at first and then for nearly every step (Petrini et
al. 2003; Hoefler et al. 2010, on noise).

Reductions (Thakur et al. 2005; Jeaugey 2019 for double binary trees), of B bytes on N nodes of g ranks:
  ring           2 (R − 1) hops, 2 B over the node's link
  tree           2 log₂ N hops between nodes and 2 (g − 1) within, 2 B over the node's link
  hierarchical   reduce-scatter and all-gather within the node, between nodes MPI on the host, during which the
                 coordination waits
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from fcdensenet.config import NetworkConfig
from fcdensenet.count import BYTES, Layer, count
from namsa.config.loading import Section

FORWARD_SHARE = 1 / 3  # of a step's computation: backward makes two gradients, by input and by weights

Coordination = Literal["master-worker", "tree", "bitvector"]
Allreduce = Literal["ring", "tree", "hierarchical"]


class Machine(Section):
    """What a rank and the network between ranks can do. The defaults are Summit's; see `train.scaling.published`."""

    name: str = "Summit"
    ranks_per_node: PositiveInt = 6
    sustained_flop_per_s: PositiveFloat = Field(59.67e12, description="of a rank, over a whole step")
    node_link_bytes_per_s: PositiveFloat = Field(21e9, description="into and out of a node, as collectives see it")
    within_node_bytes_per_s: PositiveFloat = Field(40e9, description="between a node's ranks")
    host_float16_bytes_per_s: PositiveFloat = Field(0.9e9, description="MPI's sum of float16 on hosts, a node")
    host_float32_bytes_per_s: PositiveFloat = Field(6e9, description="MPI's sum of float32 on hosts, a node")
    hop_between_nodes_s: NonNegativeFloat = 10e-6
    hop_within_node_s: NonNegativeFloat = 3e-6
    message_s: NonNegativeFloat = Field(1e-6, description="the coordinator's time for a rank's message")
    announcement_s: NonNegativeFloat = Field(7e-6, description="the coordinator's time for one gradient of one rank")
    jitter: NonNegativeFloat = Field(0.001, description="Gaussian spread of a rank's step, a part of it")
    late_rate: NonNegativeFloat = Field(1.9e-5, description="probability that a rank is late in a step")
    late_share: NonNegativeFloat = Field(0.2, description="by how much, a part of the step")


@dataclass(frozen=True)
class Gradient:
    """One gradient: its bytes on the wire, and when an undisturbed rank has it, in seconds from the step's start."""

    size: int
    ready_s: float


@dataclass(frozen=True)
class Workload:
    """A step's computation without any communication, and its gradients in the order in which they become ready."""

    compute_s: float
    gradients: tuple[Gradient, ...]
    dtype: Literal["float16", "float32"]


@dataclass(frozen=True)
class Strategy:
    """How gradients are reduced. groups: of about equal bytes, reduced only when complete; 0 fuses what is ready."""

    coordination: Coordination
    groups: int
    allreduce: Allreduce
    lag: bool = False
    radix: int = 4
    cycle_s: float = 0.5e-3
    fusion_bytes: int = 128 * 2**20


def workload(
    network: NetworkConfig, dtype: Literal["float16", "float32"], compute_s: float, samples: int = 1
) -> Workload:
    """A step of `network` in `compute_s`, which its layers share by their FLOP.

    dtype: of gradients on the wire; samples: in the rank's batch (they change nothing but what compute_s has to be).
    """
    layers = [layer for layer in count(network).layers if layer.trainable_parameters]
    whole = sum(layer.forward_flop for layer in layers)
    forward_s = FORWARD_SHARE * compute_s
    done, gradients = 0, []
    for layer in reversed(layers):
        done += layer.forward_flop
        ready = forward_s + (compute_s - forward_s) * done / whole
        gradients += [Gradient(size * BYTES[dtype], ready) for size in _sizes(layer)]
    return Workload(compute_s, tuple(gradients), dtype)


def _sizes(layer: Layer) -> list[int]:
    """Numbers in each trainable tensor: a kernel and its bias, or the scale and shift of a normalisation."""
    if not layer.kernel_shape:
        return 2 * [layer.trainable_parameters // 2]
    bias = layer.trainable_parameters - layer.weights
    return [layer.weights, bias] if bias else [layer.weights]


# ---- Parts of a step ------------------------------------------------------------------------------------------------


def late_s(machine: Machine, ranks: int, compute_s: float, at_s: float) -> float:
    """How far the slowest of `ranks` is expected to be behind once an undisturbed one has come to `at_s`."""
    part = at_s / compute_s
    gaussian = machine.jitter * math.sqrt(2 * math.log(ranks))
    rare = machine.late_share * -math.expm1(-machine.late_rate * (ranks - 1) * part)
    return compute_s * (gaussian * part + rare)


def coordination_s(machine: Machine, strategy: Strategy, ranks: int, announced: int) -> float:
    """One cycle's agreement, in which every rank announces as many gradients; none for a rank alone."""
    if ranks == 1:
        return 0.0
    hop, a_rank = machine.hop_between_nodes_s, machine.message_s + machine.announcement_s * announced
    if strategy.coordination == "master-worker":
        return ranks * a_rank + math.log2(ranks) * hop
    if strategy.coordination == "tree":
        return 2 * math.ceil(math.log(ranks, strategy.radix)) * (strategy.radix * a_rank + hop)
    return 2 * math.log2(ranks) * hop


def allreduce_s(machine: Machine, algorithm: Allreduce, ranks: int, size: int, dtype: str) -> float:
    """One reduction of `size` bytes over `ranks`, which fill nodes."""
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
    if dtype == "float16":  # MPI takes a user's own sum through recursive doubling: all bytes at every level
        return within + levels + math.ceil(math.log2(nodes)) * size / machine.host_float16_bytes_per_s
    return within + levels + 2 * size * (nodes - 1) / nodes / machine.host_float32_bytes_per_s


# ---- A step ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """seconds: the whole step; operations: reductions on the wire; cycles: agreements in which something was ready."""

    seconds: float
    operations: int
    cycles: int


def step(machine: Machine, load: Workload, strategy: Strategy, ranks: int) -> Step:
    """One step of `load` on `ranks` ranks."""
    slowest = load.compute_s + late_s(machine, ranks, load.compute_s, load.compute_s)
    if ranks == 1:
        return Step(load.compute_s, 0, 0)
    waiting = [
        (0.0 if strategy.lag else ready + late_s(machine, ranks, load.compute_s, ready), len(members), size)
        for ready, members, size in _units(load.gradients, strategy.groups)
    ]
    now, wire_free, operations, cycles = 0.0, 0.0, 0, 0
    while waiting:
        now = max(now, waiting[0][0])
        arrived = [unit for unit in waiting if unit[0] <= now]
        waiting = waiting[len(arrived) :]
        began, cycles = now, cycles + 1
        now += coordination_s(machine, strategy, ranks, sum(number for _, number, _ in arrived))
        for size in _fused([size for _, _, size in arrived], strategy):
            wire_free = max(wire_free, now) + allreduce_s(machine, strategy.allreduce, ranks, size, load.dtype)
            operations += 1
        if strategy.allreduce == "hierarchical":
            now = wire_free
        now = max(now, began + strategy.cycle_s)
    return Step(max(slowest, wire_free), operations, cycles)


def efficiency(machine: Machine, load: Workload, strategy: Strategy, ranks: int) -> float:
    """The step of a rank alone over that of `ranks` ranks, each with as many samples as that one."""
    return load.compute_s / step(machine, load, strategy, ranks).seconds


def _units(gradients: Sequence[Gradient], groups: int) -> list[tuple[float, Sequence[Gradient], int]]:
    """(ready, gradients, bytes) of what is announced and reduced as one: each gradient, or each group when complete."""
    whole, before = sum(gradient.size for gradient in gradients), 0.0
    runs: dict[int, list[Gradient]] = {}
    for index, gradient in enumerate(gradients):
        run = min(groups - 1, int(groups * (before + gradient.size / 2) / whole)) if groups else index
        runs.setdefault(run, []).append(gradient)
        before += gradient.size
    return [(max(g.ready_s for g in run), run, sum(g.size for g in run)) for run in runs.values()]


def _fused(sizes: Sequence[int], strategy: Strategy) -> list[int]:
    """Bytes of each operation: what is ready together travels together, up to the fusion threshold."""
    operations: list[int] = []
    for size in sizes:
        if operations and operations[-1] + size <= strategy.fusion_bytes:
            operations[-1] += size
        else:
            operations.append(size)
    return operations
