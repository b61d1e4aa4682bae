"""The gain in time of packed weights at a link of a given speed, of a run with sharded weights.

A step is the computation that the run measured, the weights on the link, and, where bits are cut
off, packing and unpacking, which is measured here with as many values. Gradients, which travel
alike with any bits, are left out. A link is one way: a rank receives all weights once per step.
"""

import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ....measure.rows import Row
from .. import packing

REPEATS = 5  # measurements of packing, of which the median counts
WHOLE_BYTES = 4  # of a value that is not packed


class TransferGain(NamedTuple):
    """The steps of one epoch. Times in seconds per step."""

    epoch: int
    weight_bytes: int  # of all weights as they travel
    whole_bytes: int  # of all weights in float32
    packing_s: float  # to pack and to unpack them
    link_s: float  # of the packed weights
    whole_link_s: float  # of float32 weights
    gain: float  # fraction of the time of a step with float32 weights that packed ones save


def gains(
    transfers: Sequence[Row],
    sizes: Mapping[str, int],
    vector_values: int,
    compute_s: float,
    link_bytes_per_s: float,
) -> list[TransferGain]:
    """Returns the gain of each epoch.

    Args:
        transfers: Rows of transfer.jsonl; see `train.measure.rows`.
        sizes: Number of values of each layer, by the path of its variable.
        vector_values: Number of values of biases and normalisations, which travel whole.
        compute_s: Computation of a step, s.
        link_bytes_per_s: Speed of the link.

    Raises:
        KeyError: If a layer of a row is not in `sizes`.
    """
    whole_bytes = WHOLE_BYTES * (sum(sizes.values()) + vector_values)
    whole_link_s = whole_bytes / link_bytes_per_s
    measured: dict[tuple[int, int], float] = {}
    rows = []
    for transfer in transfers:
        values_by_bytes: dict[int, int] = {}
        for path, bits in transfer["bits"].items():
            width = packing.byte_count(bits)
            values_by_bytes[width] = values_by_bytes.get(width, 0) + sizes[path]
        weight_bytes = WHOLE_BYTES * vector_values
        packing_s = 0.0
        for width, values in values_by_bytes.items():
            weight_bytes += width * values
            if width == WHOLE_BYTES:
                continue
            if (width, values) not in measured:
                measured[width, values] = measure_packing_s(values, width)
            packing_s += measured[width, values]
        link_s = weight_bytes / link_bytes_per_s
        packed_s = compute_s + packing_s + link_s
        gain = 1 - packed_s / (compute_s + whole_link_s)
        rows.append(
            TransferGain(
                transfer["epoch"], weight_bytes, whole_bytes, packing_s, link_s, whole_link_s, gain
            )
        )
    return rows


def measure_packing_s(values: int, width: int) -> float:
    """Returns the time to pack so many float32 values into `width` bytes each and to unpack them,
    s.
    """
    weights = tf.constant(np.random.default_rng(0).normal(size=values), tf.float32)

    @tf.function(autograph=False)
    def there_and_back(x: tf.Tensor) -> tf.Tensor:
        return packing.unpack(packing.pack(x, width), width)

    there_and_back(weights)
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        there_and_back(weights).numpy()
        times.append(time.perf_counter() - start)
    return median(times)
