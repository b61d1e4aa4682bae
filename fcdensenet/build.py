"""From a configuration to the network: p dense blocks down, one at the bottom, p up, with skip
connections across.

Levels count from 1 at full resolution. The layers of level 2 are `down2` and `up2`, and the
transitions down from it and up to it, `td2` and `tu2`.
"""

from typing import TYPE_CHECKING

from fcdensenet.blocks import Layers, Tensor, dense_block, transition_down, transition_up
from fcdensenet.config import NetworkConfig
from fcdensenet.split import PartSplit, shape_of_part

if TYPE_CHECKING:
    import keras


def network(op: Layers[Tensor], config: NetworkConfig) -> tuple[Tensor, Tensor]:
    """Composes the whole network; returns the network's input and output.

    On the way down, a block's input is passed on together with its new maps. On the way up only the
    new maps are, because the number of channels would otherwise grow from level to level (Jégou et
    al. 2017).
    """
    down = config.layers[: config.pools]
    bottom = config.layers[config.pools]
    up = config.layers[config.pools + 1 :]

    patterns = op.input("patterns")
    x = op.conv(patterns, config.first_filters, config.first_kernel, "first")
    if config.transitions == "strided":
        x = op.relu(x, "first_relu")

    skips = []
    for level, convolutions in enumerate(down, start=1):
        new = dense_block(op, x, convolutions, config, f"down{level}")
        skips.append(op.concat([x, new], f"down{level}"))
        x = transition_down(op, skips[-1], config, f"td{level}")

    new = dense_block(op, x, bottom, config, "bottom")

    for level, convolutions in zip(range(config.pools, 0, -1), up, strict=True):
        x = transition_up(op, new, skips.pop(), config, f"tu{level}")
        new = dense_block(op, x, convolutions, config, f"up{level}")

    x = op.conv(op.concat([x, new], "stack"), config.output_channels, 1, "last")
    return patterns, op.output(x, "density")


def build(
    config: NetworkConfig, seed: int | None, recompute: bool = False, split: PartSplit | None = None
) -> "keras.Model":
    """Builds the network as a Keras model.

    Args:
        config: The network's configuration.
        seed: Together with a layer's name, it determines the layer's initial weights and its
            dropout. `None`: weights are zero, for what does not depend on them.
        recompute: Computes the stacks of dense blocks again in the backward pass: less memory for a
            little time, with the same variables and, up to rounding, the same gradients.
        split: How the parts of a divided sample exchange what they need of each other; `None` for
            whole samples.

    Returns:
        A model from patterns, `(n, y, x, channels)` or `(n, channels, y, x)`, to maps of the
        same y and x. The output is float32 for every Keras dtype policy. With `split`, it is the
        model of a part, of which y or x, or both, is a fraction, with the same variables in the
        same order.

    Raises:
        ValueError: If `recompute` is set and dense blocks are normalised: their statistics would be
            updated twice. If the sample cannot be divided into so many parts; `fcdensenet.count`
            names a number that is possible.
    """
    if recompute and config.block_norm:
        raise ValueError("recompute does not go with network.block_norm: set one of them to false")
    import keras

    from fcdensenet.keras_layers import KerasLayers

    if split is None:
        layers = KerasLayers(config.input_shape, config.data_format, seed, recompute)
    else:
        from fcdensenet.divided_layers import DividedKerasLayers

        shape = shape_of_part(config.input_shape, split)
        layers = DividedKerasLayers(shape, config.data_format, seed, recompute, split=split)
    return keras.Model(*network(layers, config), name="fcdensenet")
