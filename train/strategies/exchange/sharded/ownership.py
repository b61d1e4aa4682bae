"""The rank that owns each variable, and the messages between owners and the others.

Whole variables are assigned, so that the norms of layers, which LARS takes, need no message.
Horovod's alltoall sends a gradient to its owner alone, which takes the sum in the order of ranks:
as a reduce-scatter, and unlike Horovod's own, with an entry in the response cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from namsa.base.arrays import Tensor

from ....ranks.connection import engine


def balanced_owners(sizes: Sequence[int], ranks: int) -> tuple[int, ...]:
    """Returns the rank that owns each variable: the largest first, each to the rank that has least.

    A rank has at most 1/`ranks` of the sum, plus one variable. Each has one at least if there are
    as many as ranks.
    """
    loads = [0] * ranks
    owners = [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        owners[index] = min(range(ranks), key=loads.__getitem__)
        loads[owners[index]] += sizes[index]
    return tuple(owners)


def joined_groups(
    groups: Sequence[Sequence[int]], owners: Sequence[int], ranks: int
) -> list[list[int]]:
    """Joins groups that follow each other until every rank owns a variable of each.

    Horovod's alltoall fails where a rank sends or receives nothing, and TensorFlow drops, on one
    rank alone, a message of which that rank uses nothing.
    """
    joined: list[list[int]] = []
    waiting: list[int] = []
    for group in groups:
        waiting += group
        if len({owners[index] for index in waiting}) == ranks:
            joined.append(waiting)
            waiting = []
    if waiting:
        joined[-1] += waiting
    return joined


def wire_bytes(
    sizes: Sequence[int], weight_bytes: Sequence[int], ranks: int, gradient_bytes: int = 4
) -> int:
    """Returns the bytes that all ranks together send in a step: gradients to their owners, and
    weights back.

    Each value travels `ranks` − 1 times as a gradient and as often as a weight. The numbers of a
    step and the norms of layers (four bytes for each and rank) are not counted. `sizes` are numbers
    of values.
    """
    values = zip(sizes, weight_bytes, strict=True)
    return (ranks - 1) * sum(size * (gradient_bytes + weight) for size, weight in values)


@dataclass(frozen=True)
class Ownership:
    """The owners of the variables of a job. All ranks call the methods, in the same order."""

    owners: tuple[int, ...]  # the rank that owns each variable
    rank: int  # number of this rank
    ranks: int  # number of ranks

    def of(self, rank: int) -> list[int]:
        """Returns the indices of the variables that a rank owns."""
        return [index for index, owner in enumerate(self.owners) if owner == rank]

    @property
    def own(self) -> list[int]:
        """Indices of this rank's variables."""
        return self.of(self.rank)

    def mean_of_own(
        self,
        gradients: Sequence[Tensor],
        groups: Sequence[Sequence[int]],
        dtype: tf.DType = tf.float32,
    ) -> list[Tensor]:
        """Returns the mean over the ranks of the gradients of this rank's variables.

        Call it inside a tf.function.

        Args:
            groups: Indices of `gradients`, see `train.ranks.grouping`; they travel in
                `joined_groups`.
            dtype: Type of a message. The mean is taken in float32.
        """
        if self.ranks == 1:
            return list(gradients)
        means: dict[int, Tensor] = {}
        for group_index, group in enumerate(joined_groups(groups, self.owners, self.ranks)):
            means |= self._means_of_group(gradients, group, dtype, f"owned_g{group_index}")
        return [means[index] for index in self.own]

    def _means_of_group(
        self, gradients: Sequence[Tensor], group: Sequence[int], dtype: tf.DType, name: str
    ) -> dict[int, Tensor]:
        """Returns the means of this rank's gradients of a group, by index, from one message."""
        by_owner = sorted(group, key=self.owners.__getitem__)  # keeps the order of each rank
        message = tf.concat([tf.reshape(gradients[index], [-1]) for index in by_owner], 0)
        counts = [0] * self.ranks
        for index in by_owner:
            counts[self.owners[index]] += gradients[index].shape.num_elements()
        splits = tf.constant(counts, tf.int32)
        received = engine().all_to_all(tf.cast(message, dtype), splits, name)
        of_ranks = tf.split(received, [counts[self.rank]] * self.ranks)
        mean = tf.add_n([tf.cast(values, tf.float32) for values in of_ranks]) / self.ranks
        owned = [index for index in by_owner if self.owners[index] == self.rank]
        sizes = [gradients[index].shape.num_elements() for index in owned]
        means = {}
        for index, values in zip(owned, tf.split(mean, sizes), strict=True):
            means[index] = tf.reshape(values, gradients[index].shape)
        return means

    def total(self, value: Tensor, name: str) -> Tensor:
        """Returns the sum over the ranks of a float32 scalar. Call it inside a tf.function."""
        return self.ranks * engine().average_in_one_message([value], name)[0]

    def to_all(self, message: Tensor, name: str) -> Tensor:
        """Returns the messages of all ranks, in their order. Call it inside a tf.function."""
        if self.ranks == 1:
            return message
        return engine().to_all(message, name)
