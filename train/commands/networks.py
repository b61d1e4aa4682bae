"""`namsa-train describe` and `schema`: the size of a network, and the keys of a
configuration.
"""

import argparse
import json
from math import prod

from fcdensenet.config import NetworkConfig
from fcdensenet.describe import describe as described
from fcdensenet.layer_counts import BYTES_PER_VALUE, NetworkCount
from namsa.base.console import output_console
from namsa.cli.commands.schema import print_schema
from namsa.config.loading import read_yaml

from ..experiment.experiment import Experiment
from ..networks import count, read_network


def describe(options: argparse.Namespace) -> None:
    """Prints parameters, FLOP and memory of the network of a configuration, of any kind."""
    config = read_network(read_yaml(options.config, options.overrides), str(options.config))
    counted = count(config)
    # which can be computed again
    has_stacks = isinstance(config, NetworkConfig) and not config.block_norm
    recomputed = count(config, recompute=True) if has_stacks else None
    if options.json:
        numbers: dict[str, object] = {
            "kind": config.kind,
            "trainable": counted.trainable_parameters,
        }
        numbers["memory_bytes"] = memory_bytes(counted)
        print(json.dumps(numbers | described(counted, recomputed)))
        return
    from fcdensenet.describe import layer_table, sums_table

    sums = sums_table(counted, recomputed)
    sums.add_row(
        f"{memory_bytes(counted) / 2**30:.3f} GiB",
        "output and error signal of each layer, normalisations too, and the input twice, float32 "
        "(table 1 of Oyama et al. 2020)",
    )
    output_console().print(layer_table(counted), sums)


def schema(options: argparse.Namespace) -> None:
    """Prints the keys of an experiment."""
    print_schema(Experiment, options)


def memory_bytes(counted: NetworkCount) -> int:
    """Returns the memory of maps in a training step if nothing is shared: the rule of table 1 of
    Oyama et al. 2020.

    Each layer has its output and an error signal of the same size, in float32. The input counts as
    two layers. Layers without a grid are left out. A normalisation is a layer, and so doubles what
    the convolution before it needs, but not what poolings and the input need. A framework needs
    less: see `NetworkCount.activation_bytes`.
    """
    values = 0
    for layer in counted.layers:
        if len(layer.output_shape) == 1 or layer.kind == "output":
            continue
        values += prod(layer.output_shape)
        if layer.kind == "input":
            values += prod(layer.output_shape)
    return 2 * BYTES_PER_VALUE["float32"] * values
