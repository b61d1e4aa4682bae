"""The random numbers of TensorFlow's `tf.random.stateless_*`, under JAX: Philox 4×32-10 (Salmon et
al. 2011).

Networks so have the same initial weights and the same dropout whatever computes them.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

Array = Any

MULTIPLIERS = np.uint32(0xD2511F53), np.uint32(0xCD9E8D57)
WEYL = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
SEED_KEY = np.uint32(0x3EC8F720), np.uint32(0x02461E29)  # by which TensorFlow makes a key of a seed


def stateless_at_least(seed: Array, shape: Sequence[int], rate: float, dtype: Any) -> Array:
    """Returns where TensorFlow's random numbers in [0, 1) are at least `rate`, as dropout needs it.

    A counter gives the four numbers that follow each other. Their comparisons are the four bytes of
    one word: with words that are joined along an axis, XLA would compute all rounds again for each
    number.

    Args:
        seed: Two integers, as of a `keras.random.SeedGenerator`.
        dtype: Of the random numbers: float32, float16 or bfloat16.
    """
    rows, row_length = _rows_of_counters(shape)
    counters = lax.broadcasted_iota(jnp.uint32, (rows, row_length), 0) * np.uint32(row_length)
    counters += lax.broadcasted_iota(jnp.uint32, (rows, row_length), 1)
    digits = int(jnp.finfo(dtype).nmant)
    least = np.uint32(math.ceil(float(np.asarray(rate, dtype)) * 2**digits))
    flags = jnp.zeros((rows, row_length), jnp.uint32)
    for place, word in enumerate(_words(seed, counters)):
        at_least = (word & np.uint32(2**digits - 1)) >= least
        flags |= at_least.astype(jnp.uint32) << np.uint32(8 * place)
    flat = lax.bitcast_convert_type(flags, jnp.uint8).reshape(-1)
    return flat[: math.prod(shape)].reshape(shape) != 0


def _rows_of_counters(shape: Sequence[int]) -> tuple[int, int]:
    """Returns the number of rows of counters, and of counters in a row.

    A row belongs to an image where that is possible, so that devices which divide a batch compute
    the numbers of their images alone.
    """
    numbers = math.prod(shape)
    if shape and shape[0] and numbers // shape[0] % 4 == 0:
        return shape[0], numbers // shape[0] // 4
    return 1, -(-numbers // 4)


def stateless_truncated_normal(seed: tuple[int, int], shape: Sequence[int]) -> Array:
    """Returns normal numbers of standard deviation 1, without those beyond 2, a NumPy array of
    float32.

    A network has dozens of shapes. Compiling each operation for each of them takes minutes on a
    GPU, so that what is compiled depends on the next power of two alone.

    Args:
        seed: As of `stateless_uniform`.
    """
    groups = 1 << ((math.prod(shape) - 1) // 4).bit_length()
    drawn = _truncated_normal(np.asarray(seed, np.uint32), groups)
    return np.asarray(drawn)[: math.prod(shape)].reshape(shape)


@partial(jax.jit, static_argnums=1)
def _truncated_normal(seed: Array, groups: int) -> Array:
    """Returns four numbers of each group: the first below 2 of 256 reserved blocks, of which four
    are enough.
    """
    blocks = np.uint32(256) * jnp.arange(groups, dtype=jnp.uint32)
    counters = blocks[:, None] + jnp.arange(4, dtype=jnp.uint32)
    words = jnp.stack(_words(seed, counters), axis=-1).reshape(groups, 8, 2)
    radius = jnp.sqrt(-2 * jnp.log(jnp.maximum(_uniform(words[..., 0]), 1e-7)))
    angle = np.float32(2 * np.pi) * _uniform(words[..., 1])
    normal = (radius[..., None] * jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=-1)).reshape(
        groups, 16
    )
    order = jnp.argsort(jnp.abs(normal) >= 2, axis=1, stable=True)[:, :4]
    return jnp.take_along_axis(normal, order, axis=1).reshape(-1)


def _uniform(words: Array) -> Array:
    """Returns numbers in [0, 1), float32, of random words."""
    digits = jnp.finfo(jnp.float32).nmant
    return (words & np.uint32(2**digits - 1)).astype(jnp.float32) * np.float32(2.0**-digits)


def _words(seed: Array, counters: Array) -> tuple[Array, ...]:
    """Returns the four random words of each counter of a seed's, an array for each."""
    first, second = jnp.asarray(seed) % np.uint32(2**31 - 2)  # as Keras makes it an int32
    zero = jnp.uint32(0)
    key_0, key_1, counter_2, counter_3 = _philox((first, zero, second, zero), SEED_KEY)
    zeros = jnp.zeros_like(counters)
    return _philox((counters, zeros, zeros + counter_2, zeros + counter_3), (key_0, key_1))


def _philox(counter: Sequence[Array], key: Sequence[Array]) -> tuple[Array, ...]:
    """Returns four random words of each counter, four words each."""
    counter_0, counter_1, counter_2, counter_3 = counter
    key_0, key_1 = key
    for _ in range(10):
        high_0, low_0 = _product(MULTIPLIERS[0], counter_0)
        high_1, low_1 = _product(MULTIPLIERS[1], counter_2)
        counter_0 = high_1 ^ counter_1 ^ key_0
        counter_1 = low_1
        counter_2 = high_0 ^ counter_3 ^ key_1
        counter_3 = low_0
        key_0 = key_0 + jnp.asarray(WEYL[0])
        key_1 = key_1 + jnp.asarray(WEYL[1])
    return counter_0, counter_1, counter_2, counter_3


def _product(multiplier: np.uint32, word: Array) -> tuple[Array, Array]:
    """Returns the upper and the lower word of a product of two words.

    Processors and GPUs have an instruction for it, which XLA finds in a product of 64 bits. JAX
    has these in this context alone.
    """
    with jax.enable_x64(True):
        product = lax.convert_element_type(word, jnp.uint64) * np.uint64(multiplier)
        high = lax.convert_element_type(product >> np.uint64(32), jnp.uint32)
        low = lax.convert_element_type(product, jnp.uint32)
    return high, low
