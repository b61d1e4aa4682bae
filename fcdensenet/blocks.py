"""The three parts a fully convolutional DenseNet is made of, after Jégou et al. 2017 (arXiv:1611.09326).

The network is written once, over an abstract set of `Layers`: run on Keras tensors it builds the model
(`keras_layers.py`), run on bare shapes it counts parameters and FLOP (`count.py`).

A convolution has a bias only where a non-linearity or the output follows; after the linear convolutions of the
transitions the next convolution's bias does its work.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from fcdensenet.config import NetworkConfig

Tensor = TypeVar("Tensor")


class Layers(Protocol[Tensor]):
    """What a network is made of. Every layer has a name of its own; channels lie where the configuration says.

    recompute: whether a dense block's stacks are computed again in the backward pass rather than kept
    """

    @property
    def recompute(self) -> bool: ...
    def input(self, name: str) -> Tensor: ...
    def conv(self, x: Tensor, filters: int, kernel: int, name: str, bias: bool = True) -> Tensor: ...
    def stacked_conv(self, parts: Sequence[Tensor], filters: int, kernel: int, name: str) -> Tensor: ...
    def transposed_conv(self, x: Tensor, filters: int, kernel: int, name: str) -> Tensor: ...
    def norm(self, x: Tensor, name: str) -> Tensor: ...
    def relu(self, x: Tensor, name: str) -> Tensor: ...
    def dropout(self, x: Tensor, name: str) -> Tensor: ...
    def pool(self, x: Tensor, name: str) -> Tensor: ...
    def concat(self, parts: Sequence[Tensor], name: str) -> Tensor: ...
    def output(self, x: Tensor, name: str) -> Tensor: ...
    def channels(self, x: Tensor) -> int: ...


def dense_block(op: Layers[Tensor], x: Tensor, convolutions: int, config: NetworkConfig, name: str) -> Tensor:
    """The block's new maps, convolutions·growth of them, without `x`.

    Every convolution sees the rectified stack of `x` and all new maps so far. The block's output passes ReLU and
    dropout once (Laanait et al. 2019), so that no map is dropped more than once however often it is passed on.
    Stacks grow with the square of the convolutions and cost little to make again (Pleiss et al. 2017).
    """
    new: list[Tensor] = []
    for i in range(1, convolutions + 1):
        if op.recompute:
            new.append(op.stacked_conv([x, *new], config.growth, config.kernel, f"{name}_conv{i}"))
            continue
        stack = op.concat([x, *new], f"{name}_stack{i}") if new else x
        if config.block_norm:
            stack = op.norm(stack, f"{name}_norm{i}")
        new.append(op.conv(op.relu(stack, f"{name}_relu{i}"), config.growth, config.kernel, f"{name}_conv{i}"))
    maps = op.concat(new, f"{name}_new") if len(new) > 1 else new[0]
    maps = op.relu(maps, f"{name}_relu")
    return op.dropout(maps, f"{name}_dropout") if config.dropout else maps


def transition_down(op: Layers[Tensor], x: Tensor, name: str) -> Tensor:
    """All channels of `x` on half the grid."""
    x = op.relu(op.norm(x, f"{name}_norm"), f"{name}_relu")
    return op.pool(op.conv(x, op.channels(x), 1, f"{name}_conv", bias=False), f"{name}_pool")


def transition_up(op: Layers[Tensor], new: Tensor, skip: Tensor, config: NetworkConfig, name: str) -> Tensor:
    """A block's new maps on twice the grid, and behind them the skip connection."""
    up = op.transposed_conv(new, op.channels(new), config.transition_up_kernel, f"{name}_conv")
    return op.concat([up, skip], f"{name}_skip")
