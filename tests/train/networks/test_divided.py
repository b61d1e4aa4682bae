"""The networks of the neighbouring papers on parts of a sample, against the networks of whole samples."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from stacked_split import StackedSplit

from namsa.errors import InputError
from train.networks import build, count
from train.networks.registry import KINDS

SMALL = {
    "resnet50": {"input_shape": (2, 24, 33), "units": (1, 2), "width": 4, "classes": 5},
    "deeplabv3plus": {"input_shape": (3, 16, 24), "units": (2, 1, 1, 1), "width": 4, "rates": (2, 3), "filters": 8}
    | {"low_level_filters": 5, "skip_filters": (4, 6)},
    "cosmoflow": {"input_shape": (2, 8, 16, 12), "filters": (4, 6, 8), "strides": (1, 2, 1), "dense": (16, 8)},
    "unet3d": {"input_shape": (2, 4, 8, 12), "levels": 2, "first_filters": 4},
}
CASES = [
    ("deeplabv3plus", 0, {"input_shape": (3, 64, 24), "units": (2, 1, 1, 1)}),
    ("deeplabv3plus", 1, {"input_shape": (3, 24, 64), "norm": False}),
    ("cosmoflow", 0, {"input_shape": (2, 16, 8, 12), "dropout": 0.0, "norm": True}),
    ("unet3d", 1, {}),
]
LARGER = {"unet3d": (2, 8, 8, 12), "cosmoflow": (2, 16, 8, 12), "deeplabv3plus": (3, 64, 24)}


@pytest.mark.parametrize(("kind", "axis", "options"), CASES)
def test_two_parts_are_the_whole_sample(kind, axis, options):
    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    section, split, models = KINDS[kind](**(SMALL[kind] | options)), StackedSplit(2, axis), []
    for each in (None, split):
        keras.utils.clear_session()
        model = build(section, 0, split=each)
        models.append(keras.Model(model.input, model.layers[-1].input))  # the output is float32
    keras.config.set_floatx(before[0])
    keras.config.set_dtype_policy(before[1])
    whole, part = models
    assert [variable.path for variable in part.variables] == [variable.path for variable in whole.variables]
    rng = np.random.default_rng(0)
    channels, *extent = section.input_shape
    x = tf.constant(rng.normal(size=(2, *extent, channels)))

    def results(model, x, weights):
        with tf.GradientTape() as tape:
            maps = model(x, training=True)
            loss = tf.reduce_mean(tf.square(maps) * weights)
        return maps, tape.gradient(loss, [weight.value for weight in model.trainable_variables])

    shape = (2, *whole.output.shape[1:])
    weights = tf.constant(rng.normal(size=shape))
    is_map = len(shape) > 2
    maps, gradients = results(whole, x, weights)
    of_parts = split.stack(weights, 1 + axis) if is_map else tf.concat([weights, weights], 0)
    maps_of_parts, sums = results(part, split.stack(x, 1 + axis), of_parts)
    found = split.unstack(maps_of_parts, 1 + axis) if is_map else maps_of_parts[:2]
    np.testing.assert_allclose(found, maps, atol=1e-11)
    for found, wanted in zip(sums, gradients, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-11)


@pytest.mark.parametrize("kind", LARGER)
def test_a_part_takes_half_of_the_flop_of_convolutions(kind):
    section = KINDS[kind](**(SMALL[kind] | {"input_shape": LARGER[kind]}))
    whole, part = count(section), count(section, ways=2)
    for one, other in zip(part.layers, whole.layers, strict=True):
        if one.is_convolution and not one.name.startswith("pyramid_whole"):  # which has a single pixel on all parts
            assert 2 * one.forward_flop == other.forward_flop, one.name
    assert part.halo_bytes("float32") > 0


def test_networks_with_layers_without_padding_are_refused():
    with pytest.raises(InputError, match="networks of kind resnet50 are not divided: use one of fcdensenet"):
        count(KINDS["resnet50"](**SMALL["resnet50"]), ways=2)
