"""Every network at a small size: its count is its model's, it starts from its seed, and it
learns.
"""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_networks import SMALL

from train.networks import build, count
from train.networks.registry import KINDS
from train.networks.resnet50 import ResNet50Config
from train.optimization.precision import policy

VARIANTS = [
    ("fcdensenet", {"block_norm": True}),
    ("fcdensenet", {"transitions": "strided"}),
    ("resnet50", {"classes": None, "conv_bias": False}),
    ("resnet50", {"unit": "basic"}),
    ("cvae", {"output": "sigmoid"}),
    ("deeplabv3plus", {"norm": False}),
    ("cosmoflow", {"norm": True, "pooling": "max", "dropout": 0.0}),
]
ALL = [*((kind, {}) for kind in SMALL), *VARIANTS]


def config(kind, **options):
    return KINDS[kind](**(SMALL[kind] | options))


def inputs(section, n=2, seed=0):
    channels, *extent = section.input_shape
    x = np.random.default_rng(seed).random((n, *extent, channels), dtype=np.float32)
    if section.data_format == "channels_first":
        return np.moveaxis(x, -1, 1)
    return x


def outputs(model, x, training=False):
    return [np.asarray(output) for output in tf.nest.flatten(model(x, training=training))]


@pytest.fixture(scope="module", params=ALL, ids=lambda case: "-".join([case[0], *case[1]]))
def built(request):
    kind, options = request.param
    section = config(kind, **options)
    return section, build(section, seed=0)


def test_the_count_is_the_built_model(built):
    section, model = built
    counted = {layer.name: layer for layer in count(section).layers}
    assert {layer.name for layer in model.layers} == counted.keys()
    for layer in model.layers:
        expected = counted[layer.name]
        assert layer.output.shape[1:] == expected.output_shape, layer.name
        assert (
            sum(math.prod(weight.shape) for weight in layer.trainable_weights)
            == expected.trainable_parameters
        )
        assert layer.count_params() == expected.parameters, layer.name
        if expected.kernel_shape:
            assert layer.kernel.shape == expected.kernel_shape, layer.name


@pytest.mark.slow
def test_gradients_reach_every_weight_and_lower_the_loss(built):
    section, model = built
    x = inputs(section, n=4)
    variables = model.trainable_variables
    target = [
        np.random.default_rng(1).random(output.shape, np.float32) for output in outputs(model, x)
    ]
    optimizer = keras.optimizers.Adam(1e-2)
    optimizer.build(variables)
    history = []
    for step in range(4):
        with tf.GradientTape() as tape:
            parts = tf.nest.flatten(model(x, training=True))
            loss = sum(
                tf.reduce_mean(tf.square(output - goal))
                for output, goal in zip(parts, target, strict=True)
            )
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        history.append(float(loss))
        for variable, gradient in zip(variables if step == 0 else [], gradients, strict=step == 0):
            if not (
                getattr(section, "conv_bias", False) and variable.path.endswith("_conv/bias")
            ):  # a norm follows
                assert np.abs(gradient).max() > 0, variable.path
        optimizer.apply(gradients, variables)
    assert np.isfinite(history).all()
    assert history[-1] < 0.8 * history[0], history


@pytest.mark.parametrize("kind", SMALL)
def test_the_seed_fixes_the_weights_and_names_tell_them_apart(kind):
    one, same, other = (build(config(kind), seed) for seed in (1, 1, 2))
    kernels = []
    for weight in one.trainable_weights:
        if weight.path.endswith("kernel"):
            kernels.append(weight)
    for weight, again in zip(one.weights, same.weights, strict=True):
        np.testing.assert_array_equal(weight, again)
    for weight in kernels:
        theirs = next(candidate for candidate in other.weights if candidate.path == weight.path)
        assert np.abs(np.asarray(weight) - theirs).max() > 0, weight.path
    values = [float(np.asarray(weight).flat[0]) for weight in kernels]
    assert len(set(values)) == len(values)


@pytest.mark.parametrize("kind", SMALL)
def test_orders_of_axes_agree(kind):
    channels_last, channels_first = (
        config(kind, data_format=f"channels_{where}") for where in ("last", "first")
    )
    expected = build(channels_last, seed=3)
    x = inputs(channels_last)
    model = build(channels_first, seed=3)
    assert {layer.name for layer in count(channels_first).layers} == {
        layer.name for layer in model.layers
    }
    for layer in count(channels_first).layers:
        assert model.get_layer(layer.name).output.shape[1:] == layer.output_shape, layer.name
    for mine, theirs in zip(
        outputs(model, np.moveaxis(x, -1, 1)), outputs(expected, x), strict=True
    ):
        moved = np.moveaxis(mine, 1, -1) if mine.ndim > 2 else mine
        np.testing.assert_allclose(moved, theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())


@pytest.mark.parametrize("kind", SMALL)
def test_mixed_precision_computes_in_float16_and_puts_out_float32(kind):
    with policy("mixed_float16"):
        model = build(config(kind), seed=0, recompute=kind == "fcdensenet")
    assert {weight.dtype for weight in model.trainable_weights} == {"float32"}
    assert {layer.output.dtype for layer in model.layers if "Conv" in type(layer).__name__} == {
        "float16"
    }
    for output in outputs(model, inputs(config(kind)), training=True):
        assert output.dtype == np.float32
        assert np.isfinite(output).all()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("fcdensenet", {"transition_up_kernel": 1}),
        ("fcdensenet", {}),  # a kernel of 2
        ("resnet50", {}),
        ("cvae", {}),
        ("cosmoflow", {}),
        ("lenet", {}),
        ("alexnet", {}),
        # The encoder's grid of 8×12 is a multiple of all dilations: TensorFlow pads none of its
        # rearranged images.
        ("deeplabv3plus", {"input_shape": (3, 64, 96), "rates": (2, 4)}),
    ],
)
def test_flop_agree_with_tensorflow_profiler(kind, options):
    from tensorflow.python.profiler.model_analyzer import profile
    from tensorflow.python.profiler.option_builder import ProfileOptionBuilder

    section = config(kind, **options)
    model = build(section, seed=0)
    spec = tf.TensorSpec(inputs(section, n=1).shape)
    graph = tf.function(lambda x: model(x, training=False)).get_concrete_function(spec).graph
    settings = (
        ProfileOptionBuilder(ProfileOptionBuilder.float_operation()).with_empty_output().build()
    )
    settings["account_type_regexes"] = ["Conv2D.*", "Conv3D.*", "MatMul"]
    assert profile(graph, options=settings).total_float_ops == count(section).forward_flop


@pytest.fixture(scope="module")
def models():
    theirs = keras.applications.ResNet50(
        weights=None,
        input_shape=(40, 35, 3),
        classes=5,
        classifier_activation=None,
        include_top=True,
    )
    return build(ResNet50Config(input_shape=(3, 40, 35), classes=5), seed=0), theirs


def test_with_the_same_weights_it_computes_what_keras_applications_does(models):
    ours, theirs = models
    rng = np.random.default_rng(2)
    for layer in theirs.layers:
        if layer.weights:
            # A spread of moving statistics, too, so that nothing agrees because it is 0 or 1.
            layer.set_weights(
                [
                    w + rng.uniform(0, 0.2, w.shape).astype(np.float32) * (w.ndim == 1)
                    for w in layer.get_weights()
                ]
            )
            ours.get_layer(layer.name).set_weights(layer.get_weights())
    x = rng.random((2, 40, 35, 3), np.float32)
    expected = np.asarray(theirs(x))
    np.testing.assert_allclose(ours(x), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_images_below_the_smallest_of_keras_applications():
    model = build(ResNet50Config(input_shape=(3, 6, 9), units=(1, 1), width=4, classes=2), seed=0)
    assert model(np.zeros((1, 6, 9, 3), np.float32)).shape == (1, 2)


def test_moving_statistics_follow_within_a_hundred_steps(models):
    norms = []
    for layer in models[0].layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            norms.append(layer)
    assert len(norms) == 53
    assert {layer.momentum for layer in norms} == {0.9}


# ---- The autoencoder's parts, its draws, and its loss against integrals


# ---- As plain Keras models
