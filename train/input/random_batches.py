"""Batches of random numbers in the shapes and types of a job's batches, to time steps without samples."""

from typing import Any

import numpy as np
from keras import ops

from ..experiment.sections import Training
from ..networks import Network


def random_batch(network: Network, training: Training, images_per_sample: int = 1) -> tuple[Any, Any]:
    """Returns random patterns and densities, as `train.input.batches` yields them.

    Args:
        images_per_sample: Images of the network in a sample; see `Experiment.images_per_sample`.
    """
    channels, *image = network.input_shape
    rng = np.random.default_rng(0)

    def images(channels: int) -> Any:
        first = network.data_format == "channels_first"
        size = training.batch_size * images_per_sample
        shape = (size, channels, *image) if first else (size, *image, channels)
        return rng.random(shape, np.float32)

    compute_dtype = training.precision.compute.removeprefix("mixed_")
    return ops.cast(images(channels), compute_dtype), ops.convert_to_tensor(images(1))
