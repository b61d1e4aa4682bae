"""The computation of a step, and when its gradients are ready."""

from dataclasses import dataclass
from typing import Literal

from fcdensenet.count import BYTES_PER_VALUE, LayerCount
from train.networks import Network, count

FORWARD_SHARE = 1 / 3  # of a step's computation: backward makes two gradients, by input and by weights

WireType = Literal["float16", "float32"]


@dataclass(frozen=True)
class Gradient:
    """One gradient.

    Attributes:
        size: Bytes on the wire.
        ready_s: When an undisturbed rank has it, s from the start of the step.
        path: Path of its variable, as `down1_conv2/kernel`.
    """

    size: int
    ready_s: float
    path: str = ""


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


def workload(network: Network, dtype: WireType, compute_s: float, accumulate: int = 1) -> Workload:
    """Returns the step of a network. The time of the computation is shared among the layers by their FLOP.

    Args:
        network: The network.
        dtype: Type of the gradients on the wire.
        compute_s: Time of the computation of one step, of all samples of a rank, s.
        accumulate: Number of forward and backward passes per step. The gradients are complete in the last one.
    """
    layers = [layer for layer in count(network).layers if layer.trainable_parameters]
    total_flop = sum(layer.forward_flop for layer in layers)
    pass_s = compute_s / accumulate
    backward_start_s = compute_s - (1 - FORWARD_SHARE) * pass_s
    done_flop, gradients = 0, []
    for layer in reversed(layers):
        done_flop += layer.forward_flop
        ready_s = backward_start_s + (compute_s - backward_start_s) * done_flop / total_flop
        gradients += [
            Gradient(values * BYTES_PER_VALUE[dtype], ready_s, f"{layer.name}/{name}")
            for name, values in _tensors(layer)
        ]
    return Workload(compute_s, tuple(gradients), dtype)


def _tensors(layer: LayerCount) -> list[tuple[str, int]]:
    """Name and number of values of each trainable tensor of a layer."""
    if not layer.kernel_shape:
        return [("gamma", layer.trainable_parameters // 2), ("beta", layer.trainable_parameters // 2)]
    bias = layer.trainable_parameters - layer.weights
    return [("kernel", layer.weights)] + [("bias", bias)] * bool(bias)
