"""The computation of a step, and when its gradients are ready."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, NamedTuple

from fcdensenet.layer_counts import BYTES_PER_VALUE, LayerCount

from ..networks import Network, count

# of a step's computation: backward makes two gradients, by input and by weights
FORWARD_SHARE = 1 / 3

WireType = Literal["float16", "float32"]


@dataclass(frozen=True)
class Gradient:
    """One gradient."""

    size: int  # bytes on the wire
    ready_s: float  # when an undisturbed rank has it, s from the start of the step
    path: str = ""  # path of its variable, as `down1_conv2/kernel`


@dataclass(frozen=True)
class StepWorkload:
    """A step of one rank without communication of gradients."""

    compute_s: float  # time of the computation, with what a part of a sample exchanges, s
    gradients: tuple[Gradient, ...]  # the gradients, in the order in which they become ready
    dtype: WireType  # type of the gradients on the wire


class LayerTime(NamedTuple):
    """Time of one layer in one forward and one backward pass, s."""

    layer: LayerCount
    forward_s: float
    backward_s: float


def workload(
    network: Network, dtype: WireType, compute_s: float, accumulate: int = 1
) -> StepWorkload:
    """Returns the step of a network. The time of the computation is shared among the layers by
    their FLOP.

    That time is of all samples of a rank, s, in so many passes; the gradients are complete in the
    last one.
    """
    layers = count(network).layers
    # per FLOP of the forward pass
    pass_s = compute_s / accumulate / sum(layer.forward_flop for layer in layers)
    forward_s = FORWARD_SHARE * pass_s
    backward_s = (1 - FORWARD_SHARE) * pass_s
    times = [
        LayerTime(layer, forward_s * layer.forward_flop, backward_s * layer.forward_flop)
        for layer in layers
    ]
    return workload_of(times, dtype, accumulate)


def workload_of(times: Sequence[LayerTime], dtype: WireType, accumulate: int = 1) -> StepWorkload:
    """Returns the step of a network whose layers take given times, in the order in which they run
    forward.
    """
    forward_s = sum(time.forward_s for time in times)
    backward_s = sum(time.backward_s for time in times)
    compute_s = accumulate * (forward_s + backward_s)
    ready_s = compute_s - backward_s
    gradients = list[Gradient]()
    for time in reversed(times):
        ready_s += time.backward_s
        gradients += [
            Gradient(values * BYTES_PER_VALUE[dtype], ready_s, f"{time.layer.name}/{name}")
            for name, values in _tensors(time.layer)
        ]
    return StepWorkload(compute_s, tuple(gradients), dtype)


def _tensors(layer: LayerCount) -> list[tuple[str, int]]:
    """Name and number of values of each trainable tensor of a layer."""
    if not layer.trainable_parameters:
        return []
    if not layer.kernel_shape:
        return [
            ("gamma", layer.trainable_parameters // 2),
            ("beta", layer.trainable_parameters // 2),
        ]
    weights = prod(layer.kernel_shape)
    bias = layer.trainable_parameters - weights
    return [("kernel", weights)] + [("bias", bias)] * bool(bias)
