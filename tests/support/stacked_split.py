"""A divided sample in one process: its parts are further entries of the batch, and exchanges are tensor operations.

Differentiation of an exchange is that of the tensor operations, so nothing of the exchange between ranks is used.
"""

from dataclasses import dataclass

import tensorflow as tf


@dataclass(frozen=True)
class StackedSplit:
    """`fcdensenet.split.Split` for a batch of `ways`·n parts: part 0 of all n samples first."""

    ways: int
    axis: int = 0

    def halo(self, x, before, after, axis, name, fill=0.0):
        parts = tf.reshape(x, [self.ways, -1, *x.shape[1:]])
        rows, axis = x.shape[axis], axis + 1
        keep = [slice(None)] * axis
        last, first = parts[(*keep, slice(rows - before, rows))], parts[(*keep, slice(0, after))]
        above = tf.concat([tf.fill(tf.shape(last[:1]), tf.cast(fill, x.dtype)), last[:-1]], 0)
        below = tf.concat([first[1:], tf.fill(tf.shape(first[:1]), tf.cast(fill, x.dtype))], 0)
        halo = tf.concat([above, below], axis)
        return tf.reshape(halo, tf.concat([[-1], tf.shape(halo)[2:]], 0))

    def mean(self, x, name):
        if name.endswith("_moments"):  # of a batch that contains all parts
            return x
        means = tf.reduce_mean(tf.reshape(x, [self.ways, -1, *x.shape[1:]]), 0)
        return tf.tile(means, [self.ways] + [1] * (len(x.shape) - 1))

    def join(self, x, axis, name):
        parts = tf.split(x, self.ways, 0)
        return tf.tile(tf.concat(parts, axis), [self.ways] + [1] * (len(x.shape) - 1))

    def stack(self, x, axis):
        """The parts of whole maps, as a batch."""
        return tf.concat(tf.split(x, self.ways, axis), 0)

    def unstack(self, x, axis):
        return tf.concat(tf.split(x, self.ways, 0), axis)
