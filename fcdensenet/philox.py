"""The random numbers of TensorFlow's `tf.random.stateless_uniform`, under JAX: Philox 4×32-10 (Salmon et al. 2011).

Networks are so trained with the same dropout whatever computes them.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

Array = Any

MULTIPLIERS = np.uint32(0xD2511F53), np.uint32(0xCD9E8D57)
WEYL = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
SEED_KEY = np.uint32(0x3EC8F720), np.uint32(0x02461E29)  # by which TensorFlow makes a key of a seed


def stateless_uniform(seed: Array, shape: Sequence[int], dtype: Any) -> Array:
    """Returns random numbers in [0, 1).

    Args:
        seed: Two integers, as of a `keras.random.SeedGenerator`.
        shape: Of the result.
        dtype: Of the result: float32, float16 or bfloat16.
    """
    first, second = jnp.asarray(seed) % np.uint32(2**31 - 2)  # as Keras makes it an int32
    key_0, key_1, counter_2, counter_3 = _philox((first, jnp.uint32(0), second, jnp.uint32(0)), SEED_KEY)
    count = prod(shape)
    blocks = jax.lax.iota(jnp.uint32, -(-count // 4))
    zero = jnp.zeros_like(blocks)
    words = _philox((blocks, zero, zero + counter_2, zero + counter_3), (key_0, key_1))
    bits = jnp.stack(words, axis=-1).reshape(-1)[:count].reshape(shape)
    digits = jnp.finfo(dtype).nmant
    return (bits & np.uint32(2**digits - 1)).astype(dtype) * jnp.asarray(2.0**-digits, dtype)


def _philox(counter: Sequence[Array], key: Sequence[Array]) -> Sequence[Array]:
    """Returns four random words of each counter, four words each."""
    for _ in range(10):
        (high_0, low_0), (high_1, low_1) = (_product(m, counter[2 * at]) for at, m in enumerate(MULTIPLIERS))
        counter = high_1 ^ counter[1] ^ key[0], low_1, high_0 ^ counter[3] ^ key[1], low_0
        key = [word + jnp.asarray(step) for word, step in zip(key, WEYL, strict=True)]
    return counter


def _product(a: np.uint32, b: Array) -> tuple[Array, Array]:
    """Returns the upper and the lower word of a product of two words."""
    a_high, a_low, b_high, b_low = a >> 16, a & 0xFFFF, b >> 16, b & 0xFFFF
    middle = a_high * b_low + (a_low * b_low >> 16)
    other = a_low * b_high + (middle & 0xFFFF)
    return a_high * b_high + (middle >> 16) + (other >> 16), a * b
