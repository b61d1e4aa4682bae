"""The random numbers of TensorFlow's `tf.random.stateless_*`, under JAX: Philox 4×32-10 (Salmon et al. 2011).

Networks so have the same initial weights and the same dropout whatever computes them.
"""

from collections.abc import Sequence
from functools import partial
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
        dtype: Of the result: float32, float16 or bfloat16.
    """
    words = _words(seed, jnp.arange(-(-prod(shape) // 4), dtype=jnp.uint32))
    return _uniform(words.reshape(-1)[: prod(shape)].reshape(shape), dtype)


def stateless_truncated_normal(seed: tuple[int, int], shape: Sequence[int]) -> Array:
    """Returns normal numbers of standard deviation 1, without those beyond 2, a NumPy array of float32.

    A network has dozens of shapes. Compiling each operation for each of them takes minutes on a GPU, so that what is
    compiled depends on the next power of two alone.

    Args:
        seed: As of `stateless_uniform`.
    """
    groups = 1 << ((prod(shape) - 1) // 4).bit_length()
    drawn = _truncated_normal(np.asarray(seed, np.uint32), groups)
    return np.asarray(drawn)[: prod(shape)].reshape(shape)


@partial(jax.jit, static_argnums=1)
def _truncated_normal(seed: Array, groups: int) -> Array:
    """Returns four numbers of each group: the first below 2 of 256 reserved blocks, of which four are enough."""
    blocks = np.uint32(256) * jnp.arange(groups, dtype=jnp.uint32)
    words = _words(seed, blocks[:, None] + jnp.arange(4, dtype=jnp.uint32)).reshape(groups, 8, 2)
    radius = jnp.sqrt(-2 * jnp.log(jnp.maximum(_uniform(words[..., 0], jnp.float32), 1e-7)))
    angle = np.float32(2 * np.pi) * _uniform(words[..., 1], jnp.float32)
    normal = (radius[..., None] * jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=-1)).reshape(groups, 16)
    order = jnp.argsort(jnp.abs(normal) >= 2, axis=1, stable=True)[:, :4]
    return jnp.take_along_axis(normal, order, axis=1).reshape(-1)


def _uniform(words: Array, dtype: Any) -> Array:
    digits = jnp.finfo(dtype).nmant
    return (words & np.uint32(2**digits - 1)).astype(dtype) * jnp.asarray(2.0**-digits, dtype)


def _words(seed: Array, blocks: Array) -> Array:
    """Returns the four random words of each block of a seed's, `(..., 4)`."""
    first, second = jnp.asarray(seed) % np.uint32(2**31 - 2)  # as Keras makes it an int32
    key_0, key_1, counter_2, counter_3 = _philox((first, jnp.uint32(0), second, jnp.uint32(0)), SEED_KEY)
    zero = jnp.zeros_like(blocks)
    return jnp.stack(_philox((blocks, zero, zero + counter_2, zero + counter_3), (key_0, key_1)), axis=-1)


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
