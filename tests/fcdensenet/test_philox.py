"""The random bits of dropout under JAX: those of the published generator, each computed once."""

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from fcdensenet import philox


def test_rounds_are_those_of_the_publication():
    """The known answers of the authors' Random123, kat_vectors, philox4x32 10."""
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    key = (0xA4093822, 0x299F31D0)
    answers = {
        ((0, 0, 0, 0), (0, 0)): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        (pi, key): (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    }
    for (counter, of_key), answer in answers.items():
        words = philox._philox([jnp.uint32(w) for w in counter], [jnp.uint32(w) for w in of_key])
        assert tuple(map(int, words)) == answer


@pytest.mark.parametrize("shape", [(3, 5, 7, 4), (2, 3, 5), (7,)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_number_depends_on_its_place_alone_and_is_kept_with_the_rate(shape, dtype):
    """Words 0 to 3 of counter k are numbers 4k to 4k + 3, of which the low bits count."""
    rate = 0.3
    seed = jnp.array([11, 4], jnp.uint32)
    kept = jax.jit(lambda: philox.stateless_at_least(seed, shape, rate, dtype))()
    count = int(np.prod(shape))
    words = np.stack(philox._words(seed, jnp.arange(count // 4 + 1, dtype=jnp.uint32)), axis=-1)
    digits = int(jnp.finfo(dtype).nmant)
    numbers = (words.reshape(-1)[:count] & np.uint32(2**digits - 1)) / 2.0**digits
    expected = numbers >= float(jnp.asarray(rate, dtype))
    np.testing.assert_array_equal(kept, expected.reshape(shape))


def test_xla_computes_the_rounds_once_for_four_numbers():
    """They took four fifths of a training step as long as each number had its own copy of them."""

    def dropout(seed, maps):
        kept = philox.stateless_at_least(seed, maps.shape, 0.1, maps.dtype)
        return jnp.where(kept, maps, 0)

    arguments = jnp.zeros(2, jnp.uint32), jnp.zeros((2, 6, 4, 24))
    program = jax.jit(dropout).lower(*arguments).compile().as_text()
    # 20 of the counters, 20 of the key, which is one number that XLA copies a few times
    assert program.count(" multiply(") <= 6 * 20
