"""The size of any network in JSON types."""

from math import prod
from typing import TypedDict

from fcdensenet.count import BYTES_PER_VALUE, NetworkCount
from fcdensenet.describe import LayerDescription, describe_layers

from .registry import Network, count


class NetworkSize(TypedDict):
    """A network's size, for one sample: the output of `python -m train describe CONFIG --json`.

    Attributes:
        kind: Of the section network.
        parameters: Number of values in all variables, with the moving statistics of batch normalisation.
        trainable: Number of values in trained variables.
        conv_weights: Number of values in the kernels of convolutions.
        convolutions: Number of convolutions, transposed ones included.
        forward_flop: FLOP of convolutions and dense layers in the forward pass.
        step_flop: FLOP of a training step, three times those of the forward pass.
        memory_bytes: See `memory_bytes`.
        activation_bytes: Memory that a training step keeps of the forward pass, by dtype; see `fcdensenet.count`.
        layers: The layers in the order in which they run.
    """

    kind: str
    parameters: int
    trainable: int
    conv_weights: int
    convolutions: int
    forward_flop: int
    step_flop: int
    memory_bytes: int
    activation_bytes: dict[str, int]
    layers: list[LayerDescription]


def describe(config: Network) -> NetworkSize:
    """Returns the size of the network of a section."""
    counted = count(config)
    return {
        "kind": config.kind,
        "parameters": counted.parameters,
        "trainable": counted.trainable_parameters,
        "conv_weights": counted.conv_weights,
        "convolutions": counted.convolutions,
        "forward_flop": counted.forward_flop,
        "step_flop": counted.step_flop,
        "memory_bytes": memory_bytes(counted),
        "activation_bytes": {dtype: counted.activation_bytes(dtype) for dtype in BYTES_PER_VALUE},
        "layers": describe_layers(counted),
    }


def memory_bytes(counted: NetworkCount) -> int:
    """Returns the memory of maps in a training step if nothing is shared: the rule of table 1 of Oyama et al. 2020.

    Each layer has its output and an error signal of the same size, in float32. The input counts as two layers. Layers
    without a grid are left out. A framework needs less: see `NetworkCount.activation_bytes`.
    """
    maps = [layer for layer in counted.layers if len(layer.output_shape) > 1 and layer.kind != "output"]
    values = sum(prod(layer.output_shape) * (2 if layer.kind == "input" else 1) for layer in maps)
    return 2 * BYTES_PER_VALUE["float32"] * values
