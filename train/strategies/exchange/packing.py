"""Weights in fewer bytes: the highest bytes of each float32, as ADT sends them (Zhuang, Malossi &
Casas 2020).

Lower bytes are cut off, not rounded, and zero where a weight is unpacked. Two bytes are bfloat16's
bits. One byte has the sign and seven of the exponent's eight bits: magnitudes are then twice powers
of four, and 1.0 becomes 0.5.

Shifts of whole words are several times faster in TensorFlow than slices of bytes
(docs/benchmarks/training.md), so that the bytes of a value of three are not beside each other: the
upper two of all values come first, then the third.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from namsa.base.arrays import Tensor

from ...ranks.connection import engine

MESSAGE_BYTES = 32 * 2**20  # at once


def byte_count(bits: Tensor) -> Tensor:
    """Returns the bytes that hold so many bits, of a number or of an integer tensor."""
    return (bits + 7) // 8


def pack(values: Tensor, size: object) -> Tensor:
    """Returns the `size` highest bytes, 1 to 4, of each of n float32 values, `(n · size,)`,
    uint8.
    """
    words = tf.bitcast(tf.reshape(values, [-1]), tf.uint32)
    return _choose(size, [partial(_pack, words, n_bytes) for n_bytes in (1, 2, 3, 4)])


def unpack(packed: Tensor, size: object) -> Tensor:
    """Returns float32 values, `(n,)`, of `(n · size,)` bytes; what `pack` has cut off is zero."""
    return _choose(size, [partial(_unpack, packed, n_bytes) for n_bytes in (1, 2, 3, 4)])


def truncated(values: Tensor, size: object) -> Tensor:
    """Returns `values` as they arrive when `size` bytes of each travel."""
    return tf.reshape(unpack(pack(values, size), size), values.shape)


def _choose(size: Tensor, ways: list[Callable[[], Tensor]]) -> Tensor:
    if isinstance(size, int):
        return ways[size - 1]()
    return tf.switch_case(size - 1, ways)


def _pack(words: Tensor, size: int) -> Tensor:
    if size == 1:
        return tf.cast(_down(words, 24), tf.uint8)
    if size == 4:
        return _as_bytes(words)
    upper = _as_bytes(tf.cast(_down(words, 16), tf.uint16))
    if size == 2:
        return upper
    return tf.concat([upper, tf.cast(_down(words, 8), tf.uint8)], 0)


def _unpack(packed: Tensor, size: int) -> Tensor:
    if size == 4:
        return tf.bitcast(tf.reshape(packed, [-1, 4]), tf.float32)
    if size == 1:
        return tf.bitcast(_up(packed, 24), tf.float32)
    count = tf.size(packed) // size
    words = _up(tf.bitcast(tf.reshape(packed[: 2 * count], [-1, 2]), tf.uint16), 16)
    if size == 3:
        words = tf.bitwise.bitwise_or(words, _up(packed[2 * count :], 8))
    return tf.bitcast(words, tf.float32)


def _as_bytes(words: Tensor) -> Tensor:
    return tf.reshape(tf.bitcast(words, tf.uint8), [-1])


def _down(words: Tensor, bits: int) -> Tensor:
    return tf.bitwise.right_shift(words, tf.constant(bits, tf.uint32))


def _up(parts: Tensor, bits: int) -> Tensor:
    return tf.bitwise.left_shift(tf.cast(parts, tf.uint32), tf.constant(bits, tf.uint32))


def deliver(data: npt.NDArray[np.float32], source: int, destination: int) -> None:
    """Overwrites `data` on one rank with that of another. Collective.

    It is contiguous and of one size. On other ranks it is not touched.
    """
    if source == destination:
        return
    content = data.reshape(-1).view(np.uint8)
    rank = engine().rank()
    for start in range(0, len(content), MESSAGE_BYTES):
        piece = content[start : start + MESSAGE_BYTES]
        outgoing = [piece[:0]] * engine().size()
        # Horovod fails where a rank sends or receives nothing.
        outgoing[rank] = np.zeros(1, np.uint8)
        if rank == source:
            outgoing[destination] = piece
        incoming = engine().exchange_bytes(outgoing)
        if rank == destination:
            piece[:] = incoming[source]
