"""Local SGD: ranks update by their own gradients, and average their weights after some steps (Lin et al. 2020).

Yoginath et al. (2019) average the weights alone, once an epoch, as one contiguous block. So does this module: what the
ranks average travels as one buffer, with one request and one message, at the cost of a copy into the buffer and one out
of it. The moments of the optimizer are averaged with the weights (Yu et al. 2019) if `average_moments` says so.
Otherwise each rank keeps its own. Only rank 0 writes checkpoints: it collects those of the others, and a checkpoint
holds the whole state of rank 0 and, behind it, one array of moments for each further rank. The same number of ranks
continues with them, to the same bits as without a stop. Another number of ranks starts with rank 0's moments on all.

With `precision` below 32 the highest bits of changes travel in place of weights: of the change since the last average,
which is the same on all ranks. Changes are small, and so is what is lost of them. Each rank averages an equal part of
the values, and sends its mean, cut off as the changes, to all. What is cut off is lost.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from namsa.arrays import Tensor

from ....ranks import reduction
from ....ranks.exchange import Exchange
from .. import packing
from ..packing import deliver
from .section import LocalSGD

Moments = npt.NDArray[np.float32]


class LocalSGDExchange(Exchange):
    """Averages weights and moving averages of normalisations after some steps, and moments if configured.

    Counters and the seeds of dropout are not among them.

    Attributes:
        own: Variables that each rank keeps for itself: the moments, if they are not averaged.
        whole: Variables that travel in float32.
        changed: Weights of which changes travel. Vectors (biases, normalisations) are few values and travel whole.
        last: The last average of each of `changed`, the same on all ranks.
    """

    averages_in_step = False
    config: LocalSGD

    def begin(self, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
        super().begin(model, optimizer)
        averaged = self.config.average_moments
        self.own = [] if averaged else list(optimizer.moments)
        weights = [variable for variable in model.variables if "float" in variable.dtype]
        in_parts = self.config.precision < 32
        self.changed = [variable for variable in weights if in_parts and len(variable.shape) > 1]
        self.whole = [variable for variable in weights if not in_parts or len(variable.shape) <= 1]
        self.whole += list(optimizer.moments) if averaged else []
        self.last = [tf.Variable(variable.value, trainable=False) for variable in self.changed]

    def mean(self, gradients: Sequence[Tensor], scale: Tensor) -> tuple[list[Tensor], Tensor]:
        """See `train.ranks.exchange.Exchange`. Gradients stay those of the rank."""
        return list(gradients), tf.linalg.global_norm(gradients)

    def mean_numbers(self, numbers: Sequence[Tensor]) -> list[Tensor]:
        """See `train.ranks.exchange.Exchange`. Numbers stay those of the rank until the next average."""
        return list(numbers)

    def restore(self, state: Sequence[Any], of_ranks: Sequence[Moments], resumed: bool) -> str:
        super().restore(state, of_ranks, resumed)
        for last, variable in zip(self.last, self.changed, strict=True):
            last.assign(variable.value)
        taken = distribute(self.own, of_ranks)
        new = resumed and self.own and not taken
        return "every rank starts with the moments of rank 0, for the checkpoint has none of its own" if new else ""

    def after_step(self, step: int, last: bool, numbers: Sequence[float]) -> list[float] | None:
        every = self.config.synchronise
        if not last and (every == "epoch" or step % every):
            return None
        return self.synchronise(numbers)

    def synchronise(self, numbers: Sequence[float]) -> list[float]:
        """Sets every rank's variables to their mean over the ranks; returns that of a step's numbers. Collective."""
        if reduction.size() == 1:
            return list(numbers)
        if self.changed:
            _average_changes([variable.value for variable in self.changed], self.last, self.config.value_bytes)
        return _average([variable.value for variable in self.whole], tf.constant(numbers, tf.float32)).numpy().tolist()

    def state_of_ranks(self) -> list[Moments]:
        return gather(self.own)


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


def gather(moments: Sequence[Any]) -> list[Moments]:
    """Returns the moments of each rank but the first on rank 0, flat; an empty list on the others. Collective."""
    if not moments:
        return []
    flat, others = _flat(moments), []
    for rank in range(1, reduction.size()):
        data = np.empty_like(flat) if reduction.rank() == 0 else flat
        deliver(data, rank, 0)
        others.append(data)
    return others if reduction.rank() == 0 else []


def distribute(moments: Sequence[Any], stored: Sequence[Moments]) -> bool:
    """Sets each rank's moments to those that a checkpoint has for it. Collective.

    Args:
        moments: Variables to set; rank 0's stay as they are.
        stored: On rank 0, what `gather` returned there; of other ranks it is ignored.

    Returns:
        Whether there were moments for exactly these ranks; otherwise nothing changes.
    """
    if not moments:
        return False
    flat = _flat(moments)
    sizes = reduction.gather_json([each.size for each in stored])[0]
    if sizes != [flat.size] * (reduction.size() - 1):
        return False
    for rank in range(1, reduction.size()):
        deliver(np.ascontiguousarray(stored[rank - 1]) if reduction.rank() == 0 else flat, 0, rank)
    if reduction.rank():
        ends = np.cumsum([variable.value.shape.num_elements() for variable in moments])
        for variable, part in zip(moments, np.split(flat, ends[:-1]), strict=True):
            variable.assign(part.reshape(variable.shape))
    return True


def _flat(moments: Sequence[Any]) -> Moments:
    """All values in one array."""
    return np.concatenate([np.ravel(variable.numpy()) for variable in moments])


EXCHANGE = LocalSGDExchange
