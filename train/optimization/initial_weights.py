"""Weights to start from: those of another network, as far as they fit."""

from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np

from namsa.errors import InputError

from . import checkpoint


def take_weights(path: Path, variables: Sequence[keras.Variable]) -> list[str]:
    """Sets the variables that a file of weights has in the same shape; the others stay as they are.

    The networks may differ in their input channels, as those for two microscopes do, and in their output.

    Args:
        path: A checkpoint or a model's file of weights.
        variables: Of the network, without those of the optimizer.

    Returns:
        The paths of the variables that were not set.

    Raises:
        InputError: If the file is broken, or if no convolution of it fits.
    """
    try:
        header, arrays = checkpoint.read(path)
    except checkpoint.BROKEN as error:
        raise InputError(f"cannot read the weights {path} to start from: {error}") from None
    stored = dict(zip(header["variables"], arrays, strict=True))
    fitting = {v.path: v for v in variables if v.path in stored and stored[v.path].shape == tuple(v.shape)}
    if not any(len(variable.shape) == 4 for variable in fitting.values()):
        raise InputError(
            f"no convolution of {path} fits this network: set network.layers, growth and first_filters to those of "
            "the network to start from, or training.start_from to none"
        )
    for name, variable in fitting.items():
        variable.assign(np.asarray(stored[name], np.float32))
    return [variable.path for variable in variables if variable.path not in fitting]
