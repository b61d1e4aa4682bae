"""Local SGD: ranks update by their own gradients, and average their weights after some steps (Lin
et al. 2020).

Yoginath et al. (2019) average the weights alone, once an epoch, as one contiguous block. So does
this module: what the ranks average travels as one buffer, with one request and one message, at the
cost of a copy into the buffer and one out of it. The moments of the optimizer are averaged with the
weights (Yu et al. 2019) if `average_moments` says so. Otherwise each rank keeps its own. Only rank
0 writes checkpoints: it collects those of the others, and a checkpoint holds the whole state of
rank 0 and, behind it, one array of moments for each further rank. The same number of ranks
continues with them, to the same bits as without a stop. Another number of ranks starts with rank
0's moments on all.

With `precision` below 32 the highest bits of changes travel in place of weights: of the change
since the last average, which is the same on all ranks. Changes are small, and so is what is lost of
them. Each rank averages an equal part of the values, and sends its mean, cut off as the changes, to
all. What is cut off is lost.
"""

from collections.abc import Sequence
from functools import partial

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from namsa.base.arrays import Tensor

from ....ranks.connection import engine
from ....ranks.exchange import Exchange
from .. import packing
from ..packing import deliver
from .section import LocalSGD

Moments = npt.NDArray[np.float32]


class LocalSGDExchange(Exchange):
    """Averages weights and moving averages of normalisations after some steps, and moments if
    configured.

    Counters and the seeds of dropout are not among them.

    Attributes:
        own: Variables that each rank keeps for itself: the moments, if they are not averaged.
        whole: Variables that travel in float32.
        changed: Weights of which changes travel. Vectors (biases, normalisations) are few values
            and travel whole.
        last: The last average of each of `changed`, the same on all ranks.
    """

    averages_in_step = False
    config: LocalSGD

    def begin(self, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
        super().begin(model, optimizer)
        moments = list(optimizer.moments)
        sends_changes = self.config.precision < 32
        self.own = []
        self.whole = []
        self.changed = []
        for variable in model.variables:
            if "float" not in variable.dtype:
                continue
            if sends_changes and len(variable.shape) > 1:
                self.changed.append(variable)
            else:
                self.whole.append(variable)
        if self.config.average_moments:
            self.whole.extend(moments)
        else:
            self.own = moments
        self.last = [tf.Variable(variable.value, trainable=False) for variable in self.changed]

    def mean(self, gradients: Sequence[Tensor], scale: Tensor) -> tuple[list[Tensor], Tensor]:
        """See `train.ranks.exchange.Exchange`. Gradients stay those of the rank."""
        return list(gradients), tf.linalg.global_norm(gradients)

    def mean_numbers(self, numbers: Sequence[Tensor]) -> list[Tensor]:
        """See `train.ranks.exchange.Exchange`. Numbers stay those of the rank until the next
        average.
        """
        return list(numbers)

    def restore(
        self, state: Sequence["keras.Variable"], of_ranks: Sequence[Moments], resumed: bool
    ) -> str:
        super().restore(state, of_ranks, resumed)
        for last, variable in zip(self.last, self.changed, strict=True):
            last.assign(variable.value)
        taken = distribute(self.own, of_ranks)
        new = resumed and self.own and not taken
        if new:
            return (
                "every rank starts with the moments of rank 0, for the checkpoint has none of its "
                "own"
            )
        return ""

    def after_step(self, step: int, last: bool, numbers: Sequence[float]) -> list[float] | None:
        every = self.config.synchronise
        if not last and (every == "epoch" or step % every):
            return None
        return self.synchronise(numbers)

    def synchronise(self, numbers: Sequence[float]) -> list[float]:
        """Sets every rank's variables to their mean over the ranks. Collective.

        Returns the means of a step's numbers.
        """
        if engine().size() == 1:
            return list(numbers)
        if self.changed:
            changed = [variable.value for variable in self.changed]
            _average_changes(changed, self.last, self.config.value_bytes)
        weights = [variable.value for variable in self.whole]
        means: list[float] = _average(weights, tf.constant(numbers, tf.float32)).numpy().tolist()
        return means

    def state_of_ranks(self) -> list[Moments]:
        return gather(self.own)


@tf.function(autograph=False)
def _average(variables: Sequence[tf.Variable], numbers: Tensor) -> Tensor:
    """Averages `variables` in place and returns the mean of `numbers`. All are float32."""
    with tf.name_scope("synchronise"):  # tells these operations from a step's in a profile
        tensors = [tf.convert_to_tensor(variable) for variable in variables]
        *means, numbers = engine().average_in_one_message([*tensors, numbers], "average")
        for variable, mean in zip(variables, means, strict=True):
            variable.assign(mean)
    return numbers


@tf.function(autograph=False)
def _average_changes(
    variables: Sequence[tf.Variable], last: Sequence[tf.Variable], size: int
) -> None:
    """Adds to `last` the mean change of `variables` since then, and sets them to it.

    A value travels in `size` bytes. Bytes that a rank sends are those of a ring: 2 (N − 1) / N of
    the packed values.
    """
    ranks = engine().size()
    with tf.name_scope("synchronise"):
        changes = []
        for variable, previous in zip(variables, last, strict=True):
            changes.append(tf.reshape(variable - previous, [-1]))
        counts = [change.shape.num_elements() for change in changes]
        total = sum(counts)
        share = -(-total // ranks)  # values that a rank averages; the last rank's are padded
        padded = tf.pad(tf.concat(changes, 0), [[0, ranks * share - total]])
        packed = tf.map_fn(
            partial(packing.pack, size=size),
            tf.reshape(padded, [ranks, share]),
            fn_output_signature=tf.uint8,
        )
        splits = tf.fill([ranks], share * size)
        received = engine().all_to_all(tf.reshape(packed, [-1]), splits, "changes")
        mean = tf.reduce_mean(_unpacked(received, ranks, size), axis=0)
        means = _unpacked(engine().to_all(packing.pack(mean, size), "mean_changes"), ranks, size)
        flat = tf.reshape(means, [-1])[:total]
        for variable, previous, change in zip(variables, last, tf.split(flat, counts), strict=True):
            variable.assign(previous.assign_add(tf.reshape(change, previous.shape)))


def _unpacked(messages: Tensor, ranks: int, size: int) -> Tensor:
    """Returns the values of packed messages of equal length, `(ranks, values)`."""
    rows = tf.reshape(messages, [ranks, -1])
    return tf.map_fn(partial(packing.unpack, size=size), rows, fn_output_signature=tf.float32)


def gather(moments: Sequence["keras.Variable"]) -> list[Moments]:
    """Returns the moments of each rank but the first on rank 0, flat. Collective.

    On the other ranks, the list is empty.
    """
    if not moments:
        return []
    flat = _flat(moments)
    is_first = engine().rank() == 0
    of_others = []
    for rank in range(1, engine().size()):
        data = np.empty_like(flat) if is_first else flat
        deliver(data, rank, 0)
        of_others.append(data)
    return of_others if is_first else []


def distribute(moments: Sequence["keras.Variable"], stored: Sequence[Moments]) -> bool:
    """Sets each rank's moments to those that a checkpoint has for it. Collective.

    Args:
        moments: Variables to set; rank 0's stay as they are.
        stored: On rank 0, what `gather` returned there; of other ranks it is ignored.

    Returns:
        Whether there were moments for exactly these ranks; otherwise nothing changes.
    """
    if not moments:
        return False
    ranks = engine().size()
    is_first = engine().rank() == 0
    flat = _flat(moments)
    sizes = engine().gather_json([array.size for array in stored])[0]
    if sizes != [flat.size] * (ranks - 1):
        return False
    for rank in range(1, ranks):
        data = np.ascontiguousarray(stored[rank - 1]) if is_first else flat
        deliver(data, 0, rank)
    if not is_first:
        ends = np.cumsum([variable.value.shape.num_elements() for variable in moments])
        for variable, values in zip(moments, np.split(flat, ends[:-1]), strict=True):
            variable.assign(values.reshape(variable.shape))
    return True


def _flat(moments: Sequence["keras.Variable"]) -> Moments:
    """All values in one array."""
    return np.concatenate([np.ravel(variable.numpy()) for variable in moments])


EXCHANGE = LocalSGDExchange
