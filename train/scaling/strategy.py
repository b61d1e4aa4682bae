"""How gradients are reduced, as the model of scaling takes it from a configuration."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from namsa.errors import InputError

from ..experiment import exchange
from ..experiment.sections import Training
from ..ranks import grouping
from .workload import Gradient

Coordination = Literal["master-worker", "tree", "bitvector", "none"]
Allreduce = Literal["ring", "tree", "hierarchical"]


@dataclass(frozen=True)
class Strategy:
    """How gradients are reduced."""

    coordination: Coordination  # how ranks agree which gradients are ready
    groups: int  # number of groups of about equal bytes, which are reduced only when complete; 0 makes no groups
    allreduce: Allreduce  # algorithm of the reduction
    lag: bool = False  # whether the gradients of the previous step are reduced
    radix: int = 4  # children per rank of the coordination tree
    cycle_s: float = 0.5e-3  # shortest time between agreements, s
    fusion_bytes: int = 128 * 2**20  # largest size of a fused operation, bytes
    # Whether groups, or tensors without groups, that are ready in the same cycle are fused. Otherwise each is an
    # operation of its own.
    fuse_groups: bool = True
    # Contents of a group, as `training.exchange.grouping`. All but "bytes" overrule `groups`.
    grouping: Literal["bytes", "layer", "block", "list"] = "bytes"
    group_list: tuple[tuple[str, ...], ...] = ()  # patterns of the variables of each group, for the grouping "list"
    contiguous: bool = False  # whether a group is announced and sent as one tensor
    # "step" averages gradients in every step. A number k or "epoch" is local SGD: the ranks average weights, as one
    # block, after every k steps and at the end of each epoch.
    synchronise: Literal["step", "epoch"] | int = "step"
    # Values that local SGD averages per weight: 1, and 1 more for each moment that it averages.
    averaged_per_weight: int = 1
    kernel_bytes: int = 4  # bytes in which local SGD sends a value of a kernel


class Unit(NamedTuple):
    """Tensors that are announced together, when all of them are ready."""

    ready_s: float  # when an undisturbed rank has all of them, s from the start of the step
    sizes: tuple[int, ...]  # bytes of each tensor


def strategy_of(training: Training, gradients: Sequence[Gradient]) -> Strategy:
    """Returns the model's strategy of a configuration.

    Raises:
        InputError: If the model does not know the configured strategy, or group_list does not fit the gradients.
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
            f"training.ranks.cache_capacity {ranks.cache_capacity} holds some of the {names} names that ranks "
            f"announce, which train scaling does not model: set it to {names} or more, or to 0"
        )
    return strategy


def units(gradients: Sequence[Gradient], strategy: Strategy) -> list[Unit]:
    """Returns what is announced together: each gradient, or each group when complete; the first ready first.

    Args:
        gradients: In the order in which they become ready.

    Raises:
        InputError: If `strategy.group_list` does not fit the gradients.
    """
    order = range(len(gradients))
    if strategy.grouping != "bytes":
        section = exchange.Allreduce(grouping=strategy.grouping, group_list=strategy.group_list)
        groups = grouping.by_colour(grouping.colours([gradient.path for gradient in gradients], section), order)
    elif strategy.groups:
        groups = grouping.equal_runs([gradient.size for gradient in gradients], order, strategy.groups)
    else:
        groups = [[index] for index in order]
    return [_unit([gradients[index] for index in group], strategy.contiguous) for group in groups]


def _unit(members: Sequence[Gradient], contiguous: bool) -> Unit:
    """A group of gradients, sent as a list of tensors or as one."""
    sizes = tuple(gradient.size for gradient in members)
    return Unit(max(gradient.ready_s for gradient in members), (sum(sizes),) if contiguous else sizes)


def fused(ready: Sequence[Unit], strategy: Strategy) -> list[int]:
    """Returns the bytes of each operation for units that are ready together.

    Horovod packs tensors into operations up to the fusion threshold. A larger tensor is an operation of its own.
    """
    operations: list[int] = []
    together = [[size for unit in ready for size in unit.sizes]]
    for sizes in together if strategy.fuse_groups else [unit.sizes for unit in ready]:
        first = len(operations)
        for size in sizes:
            if len(operations) > first and operations[-1] + size <= strategy.fusion_bytes:
                operations[-1] += size
            else:
                operations.append(size)
    return operations
