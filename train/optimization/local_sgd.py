"""Local SGD: ranks update by their own gradients, and average their weights after some steps (Lin et al. 2020).

Yoginath et al. (2019) average the weights alone, once an epoch, as one contiguous block. So does this module: what the
ranks average travels as one buffer, with one request and one message, at the cost of a copy into the buffer and one out
of it. The moments of the optimizer are averaged with the weights (Yu et al. 2019) if `reduction.average_moments` says
so. Otherwise each rank keeps its own; `train.optimization.own_moments` says what becomes of them in a checkpoint.

With `reduction.transfer.precision` below 32 the highest bits of changes travel in place of weights: of the change since
the last average, which is the same on all ranks. Changes are small, and so is what is lost of them. Each rank averages
an equal part of the values, and sends its mean, cut off as the changes, to all. What is cut off is lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import keras
import tensorflow as tf

from fcdensenet.count import NetworkCount

from ..experiment.reduction import Reduction
from ..experiment.sections import Training
from ..ranks import reduction
from . import packing

Tensor = Any


@dataclass(frozen=True)
class Averaged:
    """What ranks average.

    Attributes:
        whole: Variables that travel in float32.
        changed: Weights of which changes travel.
        last: The last average of each of `changed`, the same on all ranks.
        size: Bytes of a value of a change.
    """

    whole: Sequence[Any] = ()
    changed: Sequence[Any] = ()
    last: Sequence[tf.Variable] = field(default=(), repr=False)
    size: int = 4


NOTHING = Averaged()


def averaged(model: keras.Model, optimizer: keras.optimizers.Optimizer, config: Reduction) -> Averaged:
    """Returns what ranks average: weights, moving averages of normalisations, and moments if configured.

    Counters and the seeds of dropout are not among them. With gradients that are averaged in every step there is
    nothing. Call it where all ranks have the same weights.

    Args:
        model: The network.
        optimizer: Its optimizer, built.
        config: The section training.reduction.
    """
    if not config.local:
        return NOTHING
    weights = [variable for variable in model.variables if "float" in variable.dtype]
    if config.transfer.precision == 32:
        return Averaged([*weights, *(optimizer.moments if config.average_moments else [])])
    # As with sharded weights, vectors (biases, normalisations) are few values and travel whole.
    changed = [variable for variable in weights if len(variable.shape) > 1]
    whole = [variable for variable in weights if len(variable.shape) <= 1]
    last = [tf.Variable(variable.value, trainable=False) for variable in changed]
    return Averaged(whole, changed, last, packing.byte_count(config.transfer.first_bits))


def averaged_bytes(network: NetworkCount, training: Training) -> int:
    """Returns the size of what a rank averages at once, bytes, without the numbers of a step.

    Args:
        network: The sizes of the network.
        training: The section training.
    """
    moments = training.optimizer.moments if training.reduction.average_moments else 0
    changed = sum(prod(layer.kernel_shape) for layer in network.layers if layer.kernel_shape)
    size = packing.byte_count(training.reduction.transfer.first_bits)
    return size * changed + 4 * (network.parameters - changed + moments * network.trainable_parameters)


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


def synchronise(state: Averaged, numbers: Sequence[float]) -> list[float]:
    """Sets every rank's variables to their mean over the ranks. Collective.

    Args:
        state: See `averaged`.
        numbers: Numbers of this rank's step, which travel with what travels whole.

    Returns:
        The mean of `numbers` over the ranks.
    """
    if reduction.size() == 1:
        return list(numbers)
    if state.changed:
        _average_changes([variable.value for variable in state.changed], state.last, state.size)
    return _average([variable.value for variable in state.whole], tf.constant(numbers, tf.float32)).numpy().tolist()


@tf.function(autograph=False)
def _average(variables: Sequence[tf.Variable], numbers: Tensor) -> Tensor:
    """Averages `variables` in place and returns the mean of `numbers`. All are float32."""
    with tf.name_scope("synchronise"):  # tells these operations from a step's in a profile
        tensors = [tf.convert_to_tensor(variable) for variable in variables]
        *means, numbers = reduction.average_in_one_message([*tensors, numbers], "average")
        for variable, mean in zip(variables, means, strict=True):
            variable.assign(mean)
    return numbers


@tf.function(autograph=False)
def _average_changes(variables: Sequence[tf.Variable], last: Sequence[tf.Variable], size: int) -> None:
    """Adds to `last` the mean change of `variables` since then, and sets them to it. A value travels in `size` bytes.

    Bytes that a rank sends are those of a ring: 2 (N − 1) / N of the packed values.
    """
    ranks = reduction.size()
    with tf.name_scope("synchronise"):
        changes = [tf.reshape(now - before, [-1]) for now, before in zip(variables, last, strict=True)]
        counts = [change.shape.num_elements() for change in changes]
        part = -(-sum(counts) // ranks)  # values that a rank averages; the last rank's are padded
        parts = tf.reshape(tf.pad(tf.concat(changes, 0), [[0, ranks * part - sum(counts)]]), [ranks, part])
        packed = tf.map_fn(partial(packing.pack, size=size), parts, fn_output_signature=tf.uint8)
        received = reduction.all_to_all(tf.reshape(packed, [-1]), tf.fill([ranks], part * size), "changes")
        mean = tf.reduce_mean(_unpacked(received, ranks, size), axis=0)
        means = _unpacked(reduction.to_all(packing.pack(mean, size), "mean_changes"), ranks, size)
        flat = tf.reshape(means, [-1])[: sum(counts)]
        for variable, before, change in zip(variables, last, tf.split(flat, counts), strict=True):
            variable.assign(before.assign_add(tf.reshape(change, before.shape)))


def _unpacked(messages: Tensor, ranks: int, size: int) -> Tensor:
    """Returns the values of packed messages of equal length, `(ranks, values)`."""
    rows = tf.reshape(messages, [ranks, -1])
    return tf.map_fn(partial(packing.unpack, size=size), rows, fn_output_signature=tf.float32)
