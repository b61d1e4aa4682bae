"""A divided sample in one process: its parts are further entries of the batch, and exchanges are
tensor operations.

Differentiation of an exchange is that of the tensor operations, so nothing of the exchange between
ranks is used.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import tensorflow as tf


@dataclass(frozen=True)
class StackedSplit:
    """`fcdensenet.split.PartSplit` for a batch of `ranks`·n parts: part 0 of all n samples first, each
    `copies` times.
    """  # noqa: E501

    ranks: int
    axis: int = 0
    copies: int = 1
    block: int = 0
    further: tuple["StackedSplit", ...] = ()

    @property
    def ways(self) -> int:
        return (self.block or self.ranks) // self.copies

    def halo(
        self, x: tf.Tensor, before: int, after: int, axis: int, name: str, fill: float = 0.0
    ) -> tf.Tensor:
        parts = tf.reshape(x, [-1, self.ways, self.copies, x.shape[0] // self.ranks, *x.shape[1:]])
        rows = x.shape[axis]
        axis = axis + 3
        keep = [slice(None)] * axis
        last = parts[(*keep, slice(rows - before, rows))]
        first = parts[(*keep, slice(0, after))]
        outside = tf.fill(tf.shape(last[:, :1]), tf.cast(fill, x.dtype))
        above = tf.concat([outside, last[:, :-1]], 1)
        outside = tf.fill(tf.shape(first[:, :1]), tf.cast(fill, x.dtype))
        below = tf.concat([first[:, 1:], outside], 1)
        halo = tf.concat([above, below], axis)
        return tf.reshape(halo, tf.concat([[-1], tf.shape(halo)[4:]], 0))

    def mean(self, x: tf.Tensor, name: str) -> tf.Tensor:
        if name.endswith("_moments"):  # of a batch that contains all parts
            return x
        means = tf.reduce_mean(tf.reshape(x, [self.ranks, -1, *x.shape[1:]]), 0)
        return tf.tile(means, [self.ranks] + [1] * (len(x.shape) - 1))

    def join(self, x: tf.Tensor, axis: int, name: str, parts: int | None = None) -> tf.Tensor:
        entries = tf.split(x, self.ranks, 0)
        block = self.copies * (parts or self.ways)
        firsts = [place // block * block + place % self.copies for place in range(self.ranks)]
        return tf.concat(
            [tf.concat(entries[first : first + block : self.copies], axis) for first in firsts], 0
        )

    def widened(self, parts: int) -> "StackedSplit":
        return replace(self, copies=self.copies * parts)

    def stack(self, x: tf.Tensor) -> tf.Tensor:
        """The parts of whole maps of channels last, as a batch."""
        parts = [x]
        for along in (self, *self.further):
            parts = [
                part for piece in parts for part in tf.split(piece, along.ways, 1 + along.axis)
            ]
        return tf.concat(parts, 0)

    def unstack(self, x: tf.Tensor) -> tf.Tensor:
        parts = tf.split(x, self.ranks, 0)
        for along in (self, *self.further)[::-1]:
            starts = range(0, len(parts), along.ways)
            parts = [tf.concat(parts[at : at + along.ways], 1 + along.axis) for at in starts]
        return parts[0]


def stacked_grid(numbers: Sequence[tuple[int, int]]) -> StackedSplit:
    """A division along several axes of the grid, `(axis, ways)` of each."""
    block = ranks = math.prod(ways for _, ways in numbers)
    along = []
    for axis, ways in numbers:
        along.append(StackedSplit(ranks, axis, block // ways, block))
        block //= ways
    return replace(along[0], further=tuple(along[1:]))
