"""The size of a network from its configuration alone: parameters, FLOP, and the activations that a
training step keeps.

The network is composed of bare shapes, without Keras. FLOP are those of the convolutions:
2·H·W·C·K·R·S on the grid (H, W) where the kernel is applied, which is the output's grid, and the
input's for a transposed convolution (the convention of Laanait et al. 2019). Taps that lie on
padding are counted; those between the taps of a dilated kernel do not exist. A training step is
three forward passes: the forward pass itself, and the gradients by input and by weights.

Activations are the values of the forward pass that differentiation needs, each counted once: a
convolution's input, ReLU's output, the input and output of max pooling, dropout's mask (one byte
per value), and the input of batch normalisation in float32, in which Keras normalises whatever the
dtype. Concatenation and average pooling need none. TensorFlow 2.18 was measured to agree within 1%.
Workspace, weights and optimizer state are not included.

For a divided sample (`fcdensenet.split`), all sizes are those of one part. Each exchange of a halo
is one message to each neighbour, and one back with the gradients, except for the halo of the
network's input, which has none. The moments of a normalisation go from each part to all others, and
so do their gradients. Along several axes, there is one exchange per axis, and a layer "halo" is the
copy of the maps between their halos.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from fcdensenet.build import network
from fcdensenet.config import NetworkConfig
from fcdensenet.layer_counts import NetworkCount
from fcdensenet.shape_layers import ShapeLayers
from fcdensenet.split import FEWER_WAYS, FurtherAxes, part_shape


def count(
    config: NetworkConfig,
    recompute: bool = False,
    ways: int = 1,
    axis: int = 0,
    further: FurtherAxes = (),
) -> NetworkCount:
    """Counts the layers of the network that `fcdensenet.build` makes, without Keras.

    Args:
        config: The network's configuration.
        recompute: Whether the stacks of dense blocks are computed again in the backward pass.
        ways: Number of parts of a sample, of which one is counted; see `fcdensenet.split`.
        axis: The divided axis of the grid, from 0.
        further: Further divided axes, with the number of parts along each.

    Raises:
        ValueError: If the sample cannot be divided so; names a number of ways that is possible.

    Example:
        >>> from fcdensenet import NetworkConfig, count
        >>> count(NetworkConfig(input_shape=(9, 32, 32))).parameters
        219623425
    """

    def counted(ways: int) -> NetworkCount:
        shape = part_shape(config.input_shape, ways, axis, further)
        shapes = ShapeLayers(shape, config.data_format, recompute)
        if ways > 1:
            axes = tuple(further_axis for further_axis, _ in further)
            shapes = replace(shapes, divided_axis=axis, further_axes=axes)
        network(shapes, config)
        return shapes.counted()

    return counted_part(counted, ways, config.input_shape[1 + axis], bool(further))


def counted_part(
    counted: Callable[[int], NetworkCount], ways: int, extent: int, several: bool = False
) -> NetworkCount:
    """Returns `counted(ways)`.

    Args:
        counted: From a number of ways to the layers of a part.
        extent: Extent of the divided axis.
        several: Whether several axes are divided.

    Raises:
        ValueError: If `counted` does. Of one axis, it names the largest number of ways that is
            possible, or the least if all are larger.
    """
    try:
        return counted(ways)
    except ValueError as error:
        if several:
            raise ValueError(f"{error} along one of the axes") from None
        message = str(error)
    for other in (*range(ways - 1, 1, -1), *range(ways + 1, extent + 1)):
        with suppress(ValueError):
            counted(other)
            break
    else:
        raise ValueError(
            message.removesuffix(FEWER_WAYS) + "no number of ways fits along this axis; make its "
            "extent larger, or divide along another"
        )
    if other < ways:
        raise ValueError(f"{message}, at most {other}")
    raise ValueError(message.removesuffix(FEWER_WAYS) + f"use {other} ways")
