"""A network of other people's code: a function over the abstract layers of this package.

The function is written once: with Keras' tensors it builds the model, with shapes it counts
parameters, FLOP and memory (`train.networks.layers`).

    def network(layers, section):
        x = layers.input("patterns")
        y = layers.relu(layers.conv(x, 32, 3, "first"), "first_relu")
        return x, layers.output(layers.conv(y, section.output_channels, 1, "last"), "density")
"""

from typing import Literal

from pydantic import Field

from fcdensenet.blocks import Tensor
from namsa.base.registry import FUNCTION_PATTERN, allowed_function

from .config import Image, Maps, NetworkSection
from .layers import NetworkLayers


class FunctionNetworkConfig(NetworkSection):
    """A network that a function composes, whose output is an image on the grid of its input."""

    kind: Literal["function"] = "function"
    function: str = Field(
        min_length=3,
        max_length=4096,
        pattern=FUNCTION_PATTERN,
        description="module:function or file.py:function: of layers and this section, the "
        "network's input and output; see train/networks/function.py",
    )
    input_shape: Image = Field(description="(channels, y, x) of an image")
    output_channels: Maps = Field(1, description="channels of the output")
    arguments: dict[str, object] = Field({}, description="values for the function, by name")


def network(op: NetworkLayers[Tensor], config: FunctionNetworkConfig) -> tuple[Tensor, Tensor]:
    """Composes the network of Keras layers, or of shapes; returns its input and output.

    Raises:
        InputError: If the function is not allowed, or there is none.
    """
    composed: tuple[Tensor, Tensor] = allowed_function(config.function, "network.function")(
        op, config
    )
    return composed
