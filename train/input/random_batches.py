"""Batches of random numbers in the shapes and types of a job's batches, to time steps without samples."""

from typing import Any

import numpy as np
import tensorflow as tf

from fcdensenet.config import NetworkConfig
from train.experiment.sections import Training


def random_batch(network: NetworkConfig, training: Training) -> tuple[Any, Any]:
    """Returns random patterns and densities, as `train.input.batches` yields them."""
    channels, *image = network.input_shape
    rng = np.random.default_rng(0)

    def images(channels: int) -> Any:
        first = network.data_format == "channels_first"
        shape = (training.batch_size, channels, *image) if first else (training.batch_size, *image, channels)
        return rng.random(shape, np.float32)

    compute_dtype = training.precision.compute.removeprefix("mixed_")
    return tf.cast(images(channels), compute_dtype), tf.constant(images(1))
