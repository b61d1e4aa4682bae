"""Which FC-DenseNets have a number of parameters that a paper gives, and what their training steps cost.

All networks with three poolings, equal blocks on the way down and up, and the choices below are counted: those from
which the authors of Laanait et al. (2019) draw their random networks (github.com/nlaanait/stemdl,
utils/generate_json.py), with three kernels of the transitions up. Of the 12 that have 220 million parameters, the FLOP
per step that the paper gives leave one: that of configs/paper.yaml. For 40 million (figure 1) it gives no FLOP.
"""

import argparse
import json
from itertools import product

from fcdensenet.config import NetworkConfig
from fcdensenet.count import count

CONVOLUTIONS, GROWTHS, KERNELS, UP_KERNELS = range(1, 6), (64, 128, 256), (3, 5, 7), (1, 2, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--million", type=float, default=40, help="parameters, in millions")
    parser.add_argument("--within", type=float, default=0.5, help="largest difference from it, in millions")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    families = list(product(product(CONVOLUTIONS, repeat=4), GROWTHS, KERNELS, UP_KERNELS))
    found = []
    for half, growth, kernel, up in families:
        layers = [*half, *half[2::-1]]
        network = NetworkConfig(
            input_shape=(1024, 512, 512), layers=layers, growth=growth, first_filters=growth, kernel=kernel,
            first_kernel=kernel, transition_up_kernel=up,
        )  # fmt: skip
        size = count(network)
        if abs(size.trainable_parameters - 1e6 * options.million) <= 1e6 * options.within:
            found.append((size.step_flop, size.trainable_parameters, layers, growth, kernel, up))
    found.sort()
    print(f"{len(found)} of {len(families)} networks have {options.million:g} million parameters")
    print("FLOP/step  parameters  layers                 growth  kernel  kernel up")
    for flop, parameters, layers, growth, kernel, up in found:
        print(f"{flop:.3e}  {parameters:10,}  {layers}  {growth:6}  {kernel:6}  {up:9}")
    if options.json:
        keys = ("step_flop", "parameters", "layers", "growth", "kernel", "transition_up_kernel")
        rows = [dict(zip(keys, row, strict=True)) for row in found]
        print(json.dumps({"ratio": found[-1][0] / found[0][0] if found else None, "results": rows}))


if __name__ == "__main__":
    main()
