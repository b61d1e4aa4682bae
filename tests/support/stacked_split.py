"""A divided sample in one process: its parts are further entries of the batch, and exchanges are tensor operations.

Differentiation of an exchange is that of the tensor operations, so nothing of the exchange between ranks is used.
"""

from dataclasses import dataclass, replace

import tensorflow as tf


@dataclass(frozen=True)
class StackedSplit:
    """`fcdensenet.split.Split` for a batch of `ranks`·n parts: part 0 of all n samples first, each `copies` times."""

    ranks: int
    axis: int = 0
    copies: int = 1

    @property
    def ways(self):
        return self.ranks // self.copies

    def halo(self, x, before, after, axis, name, fill=0.0):
        parts = tf.reshape(x, [self.ranks, -1, *x.shape[1:]])
        rows, axis = x.shape[axis], axis + 1
        keep = [slice(None)] * axis
        last, first = parts[(*keep, slice(rows - before, rows))], parts[(*keep, slice(0, after))]
        end = self.copies
        above = tf.concat([tf.fill(tf.shape(last[:end]), tf.cast(fill, x.dtype)), last[:-end]], 0)
        below = tf.concat([first[end:], tf.fill(tf.shape(first[:end]), tf.cast(fill, x.dtype))], 0)
        halo = tf.concat([above, below], axis)
        return tf.reshape(halo, tf.concat([[-1], tf.shape(halo)[2:]], 0))

    def mean(self, x, name):
        if name.endswith("_moments"):  # of a batch that contains all parts
            return x
        means = tf.reduce_mean(tf.reshape(x, [self.ranks, -1, *x.shape[1:]]), 0)
        return tf.tile(means, [self.ranks] + [1] * (len(x.shape) - 1))

    def join(self, x, axis, name, parts=None):
        entries, block = tf.split(x, self.ranks, 0), self.copies * (parts or self.ways)
        firsts = [place // block * block + place % self.copies for place in range(self.ranks)]
        return tf.concat([tf.concat(entries[first : first + block : self.copies], axis) for first in firsts], 0)

    def widened(self, parts):
        return replace(self, copies=self.copies * parts)

    def stack(self, x, axis):
        """The parts of whole maps, as a batch."""
        return tf.concat(tf.split(x, self.ranks, axis), 0)

    def unstack(self, x, axis):
        return tf.concat(tf.split(x, self.ranks, 0), axis)
