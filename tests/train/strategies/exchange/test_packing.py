import numpy as np
import pytest
import tensorflow as tf

from train.strategies.exchange.packing import byte_count, pack, truncated, unpack

VALUES = np.array(
    [[0.0, -0.0, 1.0, -0.3, 1e-40], [3e38, np.inf, -np.inf, np.pi, 65504.0]], np.float32
)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_highest_bytes_travel_and_the_others_are_zero(size):
    wanted = VALUES.view(np.uint32) & np.uint32(2**32 - 2 ** (32 - 8 * size))
    assert unpack(pack(tf.zeros(0), size), size).shape == (0,)
    for given in (size, tf.constant(size)):
        packed = pack(tf.constant(VALUES), given)
        assert (packed.dtype, tuple(packed.shape)) == (tf.uint8, (VALUES.size * size,))
        np.testing.assert_array_equal(unpack(packed, given).numpy().view(np.uint32), wanted.ravel())
        np.testing.assert_array_equal(
            truncated(tf.constant(VALUES), given).numpy().view(np.uint32), wanted
        )


def test_one_byte_has_powers_of_four_and_two_are_bfloat16_cut_off():
    values = tf.constant([1.0, 0.3, -0.3, 5.0])
    np.testing.assert_array_equal(truncated(values, 1), [0.5, 0.125, -0.125, 2.0])
    np.testing.assert_array_equal(
        truncated(tf.constant([1 + 2**-7 + 2**-8, np.nan]), 2), [1 + 2**-7, np.nan]
    )


def test_bits_are_rounded_up_to_bytes():
    assert [byte_count(bits) for bits in (1, 8, 14, 16, 24, 25, 32)] == [1, 1, 2, 2, 3, 4, 4]
    np.testing.assert_array_equal(byte_count(tf.constant([14, 24])), [2, 3])
