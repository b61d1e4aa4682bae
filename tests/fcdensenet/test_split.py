"""Parts of a divided sample: what is counted, and their convolutions. `train/networks/test_divided`
trains them.
"""

import numpy as np
import pytest
import tensorflow as tf
from stacked_split import StackedSplit

from fcdensenet import NetworkConfig, count
from fcdensenet.divided_layers import DividedConv2D
from fcdensenet.keras_layers import Conv2D

SHAPE = (3, 32, 48)


def config(**options):
    small = {
        "input_shape": SHAPE,
        "layers": (2, 1, 2),
        "growth": 4,
        "first_kernel": 3,
        "first_filters": 6,
    }
    return NetworkConfig.model_validate(small | {"dropout": 0.0} | options)


def test_a_part_is_counted_as_a_fraction_with_halos():
    undivided = count(config(kernel=5))
    divided = count(config(kernel=5), ways=2)
    assert divided.forward_flop * 2 == undivided.forward_flop
    assert divided.activation_bytes("float16") * 2 == undivided.activation_bytes("float16")
    assert divided.parameters == undivided.parameters
    # Two rows of the input for 3×3, and four of each map for 5×5; the input's gradient does not
    # travel.
    forward = 2 * 3 * 48 + 4 * (
        48 * (6 + 4) + 24 * 14 + 48 * (18 + 4)
    )  # 18: 4 new maps and 14 of the skip
    assert divided.halo_bytes("float32") == 4 * (2 * forward - 2 * 3 * 48)
    moments = 2 * 14  # mean and variance of the maps before the only pooling
    assert divided.moment_bytes(ways=2) == 4 * 2 * moments
    assert divided.exchanges == 2 * 6 - 1 + 2
    assert undivided.exchanges == undivided.halo_bytes("float32") == undivided.moment_bytes(1) == 0


def test_a_part_of_two_axes_has_a_quarter_of_the_flop_and_an_exchange_along_each():
    undivided = count(config(kernel=5))
    one_axis = count(config(kernel=5), ways=2)
    divided = count(config(kernel=5), ways=2, axis=0, further=[(1, 2)])
    assert divided.forward_flop * 4 == undivided.forward_flop
    assert divided.parameters == undivided.parameters
    assert divided.exchanges == 2 * (one_axis.exchanges - 2) + 2  # one of moments, forward and back
    assert divided.moment_bytes(ways=4) == 3 * one_axis.moment_bytes(ways=2)
    halos = []
    for layer in divided.layers:
        if layer.name.startswith("first_halo"):
            halos.append(layer)
    # of the input, 3 channels of 16 x 24: two rows, then two columns of 18
    assert [layer.halo_values for layer in halos] == [3 * 2 * 24, 3 * 18 * 2]
    assert [layer.halo_gradients for layer in halos] == [0, 0]
    with pytest.raises(
        ValueError, match="not divisible by 36 ways: use fewer ways along one of the axes"
    ):
        count(config(), ways=2, further=[(1, 36)])


@pytest.mark.parametrize(
    ("ways", "options", "message"),
    [
        (5, {}, "an extent of 32 is not divisible by 5 ways: use fewer ways, at most 4"),
        (
            16,
            {"kernel": 5},
            r"layer bottom_conv1 needs 2 rows of a neighbour, and a part has 1: .*, at most 8",
        ),
        (
            32,
            {"kernel": 3},
            r"layer td1_pool halves its maps, and a part has 1 rows of them: .*, at most 16",
        ),
        (2, {"input_shape": (3, 6, 48), "kernel": 3}, "a part has 3 rows of them: use 3 ways"),
        (
            2,
            {"input_shape": (3, 2, 48), "kernel": 3},
            "a part has 1 rows of them: no number of ways fits along this axis",
        ),
    ],
)
def test_parts_that_are_too_small_are_refused_with_what_would_fit(ways, options, message):
    with pytest.raises(ValueError, match=message):
        count(config(**options), ways=ways)


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_a_kernel_of_one_pixel_with_a_stride_trains(data_format):
    """With 10 channels TensorFlow's own gradient of it ends the process, where oneDNN has
    AVX-512.
    """
    shape, axis = ((2, 10, 6, 8), 1) if data_format == "channels_first" else ((2, 6, 8, 10), 3)
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=shape), tf.float32)
    kernel = rng.normal(size=(1, 1, 10, 3)).astype(np.float32)
    layer = Conv2D(3, 1, strides=2, data_format=data_format, use_bias=False)
    layer.build(shape)
    layer.kernel.assign(kernel)
    with tf.GradientTape() as tape:
        maps = layer(x)
        loss = tf.reduce_sum(tf.square(maps))
    pixels = np.moveaxis(x.numpy(), axis, -1)[:, ::2, ::2]
    wanted = pixels @ kernel[0, 0]
    np.testing.assert_allclose(np.moveaxis(maps.numpy(), axis, -1), wanted, rtol=1e-4, atol=1e-5)
    gradient = 2 * np.einsum("nyxc,nyxf->cf", pixels, wanted)
    np.testing.assert_allclose(
        tape.gradient(loss, layer.kernel.value)[0, 0], gradient, rtol=1e-4, atol=1e-4
    )
    assert layer.compute_output_shape(shape) == maps.shape


class NamedExchanges(StackedSplit):
    """Exchanges, and those of gradients, are operations whose names begin with "exchange"."""

    def halo(self, x, before, after, axis, name, fill=0.0):
        @tf.custom_gradient
        def exchanged(halo):
            return tf.identity(halo, "exchange"), lambda error: tf.identity(error, "exchange_back")

        return exchanged(super().halo(x, before, after, axis, name, fill))


@pytest.mark.parametrize("kernel", [3, 5])
def test_the_convolution_of_a_part_and_its_gradients_do_not_wait_for_the_exchange(kernel):
    layer = DividedConv2D(
        4, kernel, padding="same", data_format="channels_last", split=NamedExchanges(2)
    )
    layer.build((2, 32, 24, 3))

    @tf.function(
        autograph=False,
        input_signature=[tf.TensorSpec((2, 32, 24, 3)), tf.TensorSpec((2, 32, 24, 4))],
    )
    def differentiate(x, error):
        with tf.GradientTape() as tape:
            tape.watch(x)
            maps = layer(x)
        return maps, tape.gradient(maps, [x, layer.kernel.value], error)

    def waits(operation):
        """Whether an operation needs what an exchange, forward or back, gives."""
        pending = [operation]
        seen = set()
        while pending:
            current = pending.pop()
            if current.name.split("/")[-1].startswith("exchange"):
                return True
            if current not in seen:
                seen.add(current)
                pending += [tensor.op for tensor in current.inputs]
        return False

    operations = differentiate.get_concrete_function().graph.get_operations()
    for kind in ("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"):
        convolutions = [operation for operation in operations if operation.type == kind]
        assert len(convolutions) == 3, kind  # of the part, and of the halo's share at both borders
        # Rows of the maps, or of their error, behind the convolution.
        rows = [
            (operation.outputs[0] if kind == "Conv2D" else operation.inputs[2]).shape[1]
            for operation in convolutions
        ]
        assert [waits(operation) for operation in convolutions][rows.index(32)] is False
    assert waits(differentiate.get_concrete_function().graph.outputs[0].op)
