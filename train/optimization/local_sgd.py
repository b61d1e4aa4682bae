"""Local SGD: ranks update by their own gradients, and average their weights after some steps (Lin et al. 2020).

Yoginath et al. (2019) average the weights alone, once an epoch, as one contiguous block. So does this module: what the
ranks average travels as one buffer, with one request and one message, at the cost of a copy into the buffer and one out
of it. The moments of the optimizer are averaged with the weights (Yu et al. 2019) if `reduction.average_moments` says
so. Otherwise each rank keeps its own; `train.optimization.own_moments` says what becomes of them in a checkpoint.
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from train.experiment.reduction import Reduction
from train.ranks import reduction

Tensor = Any


def averaged(model: keras.Model, optimizer: keras.optimizers.Optimizer, config: Reduction) -> list[Any]:
    """Returns the variables that ranks average: weights, moving averages of normalisations, and moments if configured.

    Counters and the seeds of dropout are not among them. With gradients that are averaged in every step the list is
    empty.

    Args:
        model: The network.
        optimizer: Its optimizer, built.
        config: The section training.reduction.
    """
    if not config.local:
        return []
    weights = [variable for variable in model.variables if "float" in variable.dtype]
    return [*weights, *(optimizer.moments if config.average_moments else [])]


def own(optimizer: keras.optimizers.Optimizer, config: Reduction) -> list[Any]:
    """Returns the variables that each rank keeps for itself: the moments, if they are not averaged."""
    return list(optimizer.moments) if config.local and not config.average_moments else []


def due(config: Reduction, step: int, last: bool) -> bool:
    """Returns whether ranks that train with local SGD synchronise after a step.

    Args:
        config: The section training.reduction.
        step: Number of the step in the job.
        last: Whether it is the last step of its epoch.
    """
    every = config.synchronise
    return config.local and (last or (isinstance(every, int) and step % every == 0))


def synchronise(variables: Sequence[Any], numbers: Sequence[float]) -> list[float]:
    """Sets every rank's `variables` to their mean over the ranks. Collective: one reduction of one buffer.

    Args:
        variables: See `averaged`.
        numbers: Numbers of this rank's step, which travel in the same buffer.

    Returns:
        The mean of `numbers` over the ranks.
    """
    if reduction.size() == 1:
        return list(numbers)
    return _average([variable.value for variable in variables], tf.constant(numbers, tf.float32)).numpy().tolist()


@tf.function(autograph=False)
def _average(variables: Sequence[tf.Variable], numbers: Tensor) -> Tensor:
    """Averages `variables` in place and returns the mean of `numbers`. All are float32."""
    with tf.name_scope("synchronise"):  # tells these operations from a step's in a profile
        tensors = [tf.convert_to_tensor(variable) for variable in variables]
        *means, numbers = reduction.average_in_one_message([*tensors, numbers], "average")
        for variable, mean in zip(variables, means, strict=True):
            variable.assign(mean)
    return numbers
