"""The three parts of a fully convolutional DenseNet, after Jégou et al. 2017 (arXiv:1611.09326).

The network is written once, over an abstract set of `Layers`. With Keras tensors it builds the
model (`fcdensenet.keras_layers`). With bare shapes it counts parameters and FLOP
(`fcdensenet.count`).

A convolution has a bias only if a non-linearity or the output follows. After the linear
convolutions of pooled transitions, the bias of the next convolution has the same effect.
"""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeVar

from fcdensenet.config import NetworkConfig

Tensor = TypeVar("Tensor")
Pooling = Literal["average", "max"]


class Layers(Protocol[Tensor]):
    """The layers that a network is made of, for one kind of tensor.

    Every layer has a unique name. The layers know the axis of the channels, and how many axes the
    grid has.
    """

    def input(self, name: str) -> Tensor:
        """The network's input."""
        ...

    def conv(
        self,
        x: Tensor,
        filters: int,
        kernel: int,
        name: str,
        bias: bool = True,
        stride: int = 1,
        dilation: int = 1,
    ) -> Tensor:
        """A convolution that keeps the grid, or of an extent n of it the ⌈n/stride⌉."""
        ...

    def stacked_conv(
        self, parts: Sequence[Tensor], filters: int, kernel: int, name: str, stack: str
    ) -> Tensor:
        """Concatenation and convolution of maps that the next stacks contain, too; `stack` names
        the first.
        """
        ...

    def transposed_conv(
        self, x: Tensor, filters: int, kernel: int, name: str, bias: bool = False
    ) -> Tensor:
        """A transposed convolution of stride 2, which doubles the grid."""
        ...

    def norm(self, x: Tensor, name: str) -> Tensor:
        """Batch normalisation."""
        ...

    def relu(self, x: Tensor, name: str) -> Tensor:
        """Rectification."""
        ...

    def dropout(self, x: Tensor, rate: float, name: str) -> Tensor:
        """Dropout."""
        ...

    def pool(self, x: Tensor, kind: Pooling, name: str) -> Tensor:
        """Pooling by 2 along every axis of the grid."""
        ...

    def concat(self, parts: Sequence[Tensor], name: str) -> Tensor:
        """Concatenation of channels."""
        ...

    def output(self, x: Tensor, name: str) -> Tensor:
        """The network's output, in float32."""
        ...

    def channels(self, x: Tensor) -> int:
        """The number of channels of a tensor."""
        ...


def dense_block(
    op: Layers[Tensor], x: Tensor, convolutions: int, config: NetworkConfig, name: str
) -> Tensor:
    """Adds a dense block; returns the block's new maps, convolutions·growth channels, without `x`.

    Every convolution sees the rectified stack of `x` and all new maps so far. The block's output
    passes ReLU and dropout once (Laanait et al. 2019), so that each map is dropped at most once,
    however often it is passed on. The memory of stacks grows with the square of the number of
    convolutions, and computing them again costs little (Pleiss et al. 2017).

    A stack of rectified maps is the rectified stack: each map is rectified once, not in every stack
    that it is part of. A normalisation between stack and ReLU does not allow that.
    """
    stack = _normalised_stack if config.block_norm else _rectified_stack
    new = stack(op, x, convolutions, config, name)
    maps = new[0]
    if len(new) > 1:
        maps = op.concat(new, f"{name}_new")
    if config.dropout:
        return op.dropout(maps, config.dropout, f"{name}_dropout")
    return maps


def _rectified_stack(
    op: Layers[Tensor], x: Tensor, convolutions: int, config: NetworkConfig, name: str
) -> list[Tensor]:
    """Returns the rectified new maps of a block's convolutions."""
    parts = [op.relu(x, f"{name}_relu0")]
    for i in range(1, convolutions + 1):
        maps = op.stacked_conv(
            parts, config.growth, config.kernel, f"{name}_conv{i}", f"{name}_stack{i}"
        )
        parts.append(op.relu(maps, f"{name}_relu{i}"))
    return parts[1:]


def _normalised_stack(
    op: Layers[Tensor], x: Tensor, convolutions: int, config: NetworkConfig, name: str
) -> list[Tensor]:
    """Returns the rectified new maps of a block's convolutions, with a normalisation before each
    convolution.
    """
    new: list[Tensor] = []
    for i in range(1, convolutions + 1):
        stack = x
        if new:
            stack = op.concat([x, *new], f"{name}_stack{i}")
        stack = op.relu(op.norm(stack, f"{name}_norm{i}"), f"{name}_relu{i}")
        new.append(op.conv(stack, config.growth, config.kernel, f"{name}_conv{i}"))
    return [op.relu(maps, f"{name}_new{i}_relu") for i, maps in enumerate(new, start=1)]


def transition_down(op: Layers[Tensor], x: Tensor, config: NetworkConfig, name: str) -> Tensor:
    """Adds a transition down. Returns all channels of `x` on half the grid."""
    if config.transitions == "strided":
        return op.relu(op.conv(x, op.channels(x), 1, f"{name}_conv", stride=2), f"{name}_relu")
    if config.transition_norm:
        x = op.norm(x, f"{name}_norm")
    x = op.relu(x, f"{name}_relu")
    return op.pool(
        op.conv(x, op.channels(x), 1, f"{name}_conv", bias=False), config.pooling, f"{name}_pool"
    )


def transition_up(
    op: Layers[Tensor], new: Tensor, skip: Tensor, config: NetworkConfig, name: str
) -> Tensor:
    """Adds a transition up. Returns a block's new maps on twice the grid, followed by the skip
    connection.
    """
    bias = config.transitions == "strided"
    up = op.transposed_conv(
        new, op.channels(new), config.transition_up_kernel, f"{name}_conv", bias
    )
    return op.concat([up, skip], f"{name}_skip")
