"""From a configuration to the network: p dense blocks down, one at the bottom, p up, with skips across.

Levels count from 1 at full resolution: `down2`, `up2`, `td2` and `tu2` (the transitions down from and up to it) are
of level 2.
"""

from typing import TYPE_CHECKING

from fcdensenet.blocks import Layers, Tensor, dense_block, transition_down, transition_up
from fcdensenet.config import NetworkConfig

if TYPE_CHECKING:
    import keras


def network(op: Layers[Tensor], config: NetworkConfig) -> tuple[Tensor, Tensor]:
    """(input, output) of the whole network, made of the layers `op`.

    On the way down a block's input travels on beside its new maps; on the way up only the new maps do, or the
    channels would grow from level to level (Jégou et al. 2017).
    """
    down, bottom, up = config.layers[: config.pools], config.layers[config.pools], config.layers[config.pools + 1 :]

    patterns = op.input("patterns")
    x = op.conv(patterns, config.first_filters, config.first_kernel, "first")

    skips = []
    for level, convolutions in enumerate(down, start=1):
        new = dense_block(op, x, convolutions, config, f"down{level}")
        skips.append(op.concat([x, new], f"down{level}"))
        x = transition_down(op, skips[-1], f"td{level}")

    new = dense_block(op, x, bottom, config, "bottom")

    for level, convolutions in zip(range(config.pools, 0, -1), up, strict=True):
        x = transition_up(op, new, skips.pop(), config, f"tu{level}")
        new = dense_block(op, x, convolutions, config, f"up{level}")

    x = op.conv(op.concat([x, new], "stack"), config.output_channels, 1, "last")
    return patterns, op.output(x, "density")


def build(config: NetworkConfig, seed: int, recompute: bool = False) -> "keras.Model":
    """The network as a Keras model: (n, y, x, channels) or (n, channels, y, x) patterns to maps of the same y, x.

    The output is float32 whatever Keras' dtype policy. `seed` and a layer's name fix its initial weights and dropout.
    `recompute` saves memory for a little time, with the same variables and the same gradients but for rounding; it
    raises ValueError where dense blocks are normalised, whose statistics would be taken twice.
    """
    if recompute and config.block_norm:
        raise ValueError("recompute does not go with network.block_norm: set one of them to false")
    import keras

    from fcdensenet.keras_layers import KerasLayers

    return keras.Model(*network(KerasLayers(config, seed, recompute), config), name="fcdensenet")
