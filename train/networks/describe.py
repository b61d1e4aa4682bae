"""The size of any network in JSON types."""

from math import prod

import fcdensenet.describe
from fcdensenet.count import BYTES_PER_VALUE, NetworkCount
from fcdensenet.describe import NetworkDescription

from .registry import Network, count


class NetworkSize(NetworkDescription):
    """A network's size, for one sample: the output of `python -m train describe CONFIG --json`."""

    kind: str  # of the section network
    trainable: int  # number of values in trained variables
    memory_bytes: int  # see `memory_bytes`


def describe(config: Network) -> NetworkSize:
    """Returns the size of the network of a section."""
    counted = count(config)
    return {
        "kind": config.kind,
        "trainable": counted.trainable_parameters,
        "memory_bytes": memory_bytes(counted),
        **fcdensenet.describe.describe(counted),
    }


def memory_bytes(counted: NetworkCount) -> int:
    """Returns the memory of maps in a training step if nothing is shared: the rule of table 1 of Oyama et al. 2020.

    Each layer has its output and an error signal of the same size, in float32. The input counts as two layers. Layers
    without a grid are left out. A framework needs less: see `NetworkCount.activation_bytes`.
    """
    maps = [layer for layer in counted.layers if len(layer.output_shape) > 1 and layer.kind != "output"]
    values = sum(prod(layer.output_shape) * (2 if layer.kind == "input" else 1) for layer in maps)
    return 2 * BYTES_PER_VALUE["float32"] * values
