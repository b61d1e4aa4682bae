"""The machine, and how gradients are reduced on it, as the model of scaling takes them from a
configuration.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from namsa.base.errors import InputError
from namsa.config.loading import Section

from ..experiment import exchange
from ..experiment.sections import Training
from ..ranks import grouping
from .workload import Gradient


class Machine(Section):
    """The ranks of a machine and the network between them. The defaults are Summit's.

    Three defaults are fitted to published results, see `train.scaling.published`: `announcement_s`,
    `host_hop_s` and `late_rate`. The others are published, from data sheets, or assumed, as said
    here.
    """

    name: str = "Summit"
    ranks_per_node: PositiveInt = 6  # and so GPUs. Summit: V100 (Laanait et al. 2019, section 2.1)
    # of one rank over a whole step. Summit: Laanait et al., table 1
    sustained_flop_per_s: PositiveFloat = 59.67e12
    # Of one rank while it computes convolutions, which the paper calls peak; `None` if not known. A
    # V100 on Summit: 83.92e12 (Laanait et al., section 5.3).
    convolution_flop_per_s: PositiveFloat | None = None
    # Rate at which a collective sends from a node, and receives into it. Summit: two EDR links of
    # 12.5 GB/s; that collectives see 21 GB/s of the 25 is assumed.
    node_link_bytes_per_s: PositiveFloat = 21e9
    # Rate of a collective between the ranks of a node. Summit: NVLink with 50 GB/s per direction
    # between neighbours; that collectives see 40 GB/s is assumed.
    within_node_bytes_per_s: PositiveFloat = 40e9
    # at which the hosts of a node sum float16 in software; assumed
    host_float16_bytes_per_s: PositiveFloat = 2e9
    host_hop_s: NonNegativeFloat = 295e-6  # of MPI's ring between hosts, on top of the sums; fitted
    # at which MPI reduces float32 between hosts of nodes; assumed
    host_float32_bytes_per_s: PositiveFloat = 6e9
    # latency of a message, with the software's share; assumed
    hop_between_nodes_s: NonNegativeFloat = 10e-6
    hop_within_node_s: NonNegativeFloat = 3e-6  # latency of a message; assumed
    # CPU time of the coordinator per message of a rank; assumed, and measured by
    # `train.scaling.fit`.
    message_s: NonNegativeFloat = 1e-6
    # CPU time of the coordinator per gradient and rank; fitted
    announcement_s: NonNegativeFloat = 2.8e-6
    # standard deviation of a rank's time per step, as a fraction of it; assumed
    jitter: NonNegativeFloat = 0.001
    # probability that a rank is late in a step; fitted
    late_rate: NonNegativeFloat = Field(1.95e-5, le=1)
    # delay of a rank that is late, as a fraction of the step; assumed
    late_share: NonNegativeFloat = 0.2
    # at which a rank copies its state to its host for a checkpoint; assumed
    copy_bytes_per_s: PositiveFloat = 5e9
    # at which a node writes to its own disk. Summit: data sheet of the NVMe
    disk_bytes_per_s: PositiveFloat = 2.1e9
    # Rows of maps by which the kernels of a divided sample seem longer: those of r rows take the
    # time of r plus so many. Summit: not known, and none.
    kernel_rows: NonNegativeFloat = 0.0


# The rate of the convolutions belongs to the machine whose other rates are the defaults, not to any
# machine.
SUMMIT = Machine(convolution_flop_per_s=83.92e12)


Coordination = Literal["master-worker", "tree", "bitvector", "none"]
Allreduce = Literal["ring", "tree", "hierarchical"]


@dataclass(frozen=True)
class Strategy:
    """Reduction of gradients."""

    coordination: Coordination  # how ranks agree which gradients are ready
    # number of groups of about equal bytes, which are reduced only when complete; 0 makes no groups
    groups: int
    allreduce: Allreduce  # algorithm of the reduction
    lag: bool = False  # whether the gradients of the previous step are reduced
    radix: int = 4  # children per rank of the coordination tree
    cycle_s: float = 0.5e-3  # shortest time between agreements, s
    fusion_bytes: int = 128 * 2**20  # largest size of a fused operation, bytes
    # Whether groups, or tensors without groups, that are ready in the same cycle are fused.
    # Otherwise each is an operation of its own.
    fuse_groups: bool = True
    # Contents of a group, as `training.exchange.grouping`. All but "bytes" overrule `groups`.
    grouping: Literal["bytes", "layer", "block", "list"] = "bytes"
    # patterns of the variables of each group, for the grouping "list"
    group_list: tuple[tuple[str, ...], ...] = ()
    contiguous: bool = False  # whether a group is announced and sent as one tensor
    # "step" averages gradients in every step. A number k or "epoch" is local SGD: the ranks average
    # weights, as one block, after every k steps and at the end of each epoch.
    synchronise: Literal["step", "epoch"] | int = "step"
    # Values that local SGD averages per weight: 1, and 1 more for each moment that it averages.
    averaged_per_weight: int = 1
    kernel_bytes: int = 4  # bytes in which local SGD sends a value of a kernel


class Unit(NamedTuple):
    """Tensors that are announced together, when all of them are ready."""

    ready_s: float  # when an undisturbed rank has all of them, s from the start of the step
    sizes: tuple[int, ...]  # bytes of each tensor


def strategy_of(training: Training, gradients: Sequence[Gradient]) -> Strategy:
    """Returns the model's strategy of a configuration. Raises InputError if it has none, or
    group_list does not fit.
    """
    ranks = training.ranks
    strategy = Strategy(
        "bitvector" if ranks.cache_capacity else "master-worker",
        **training.exchange.modelled(training.optimizer.moments),
        cycle_s=ranks.cycle_time_ms / 1e3,
        fusion_bytes=ranks.fusion_threshold_mib * 2**20,
    )
    names = sum(len(unit.sizes) for unit in units(gradients, strategy))
    if 0 < ranks.cache_capacity < names:
        raise InputError(
            f"training.ranks.cache_capacity {ranks.cache_capacity} holds some of the {names} names "
            "that ranks announce, which namsa-train scaling does not model: set it to "
            f"{names} or more, or to 0"
        )
    return strategy


def units(gradients: Sequence[Gradient], strategy: Strategy) -> list[Unit]:
    """Returns the gradients that are announced together, the first ready first.

    It is each gradient, or each group when it is complete.

    Raises:
        InputError: If `strategy.group_list` does not fit the gradients.
    """
    order = range(len(gradients))
    if strategy.grouping != "bytes":
        section = exchange.Allreduce(grouping=strategy.grouping, group_list=strategy.group_list)
        colours = grouping.colours([gradient.path for gradient in gradients], section)
        groups = grouping.by_colour(colours, order)
    elif strategy.groups:
        sizes = [gradient.size for gradient in gradients]
        groups = grouping.equal_runs(sizes, order, strategy.groups)
    else:
        return [_unit([gradient], strategy.contiguous) for gradient in gradients]
    announced = []
    for group in groups:
        members = [gradients[index] for index in group]
        announced.append(_unit(members, strategy.contiguous))
    return announced


def _unit(members: Sequence[Gradient], contiguous: bool) -> Unit:
    """Returns a group of gradients, sent as a list of tensors or as one."""
    sizes = tuple(gradient.size for gradient in members)
    if contiguous:
        sizes = (sum(sizes),)
    return Unit(max(gradient.ready_s for gradient in members), sizes)


def fused(ready: Sequence[Unit], strategy: Strategy) -> list[int]:
    """Returns the bytes of each operation for units that are ready together.

    Horovod packs tensors into operations up to the fusion threshold. A larger tensor is an
    operation of its own.
    """
    operations: list[int] = []
    may_join = False
    for unit in ready:
        may_join = may_join and strategy.fuse_groups
        for size in unit.sizes:
            if may_join and operations[-1] + size <= strategy.fusion_bytes:
                operations[-1] += size
            else:
                operations.append(size)
            may_join = True
    return operations
