"""`python -m train describe`: the size of a network from its configuration alone."""

import argparse
import json

from namsa.config.loading import read_yaml

from ..networks import count, read_network
from ..networks.describe import describe as size


def describe(options: argparse.Namespace) -> None:
    """Prints parameters, FLOP and memory of the network of a configuration, of any kind."""
    from rich.console import Console

    from fcdensenet.describe import layer_table, sums_table

    config = read_network(read_yaml(options.config, options.overrides), str(options.config))
    if options.json:
        print(json.dumps(size(config)))
    else:
        counted = count(config)
        Console().print(layer_table(counted), sums_table(counted))
