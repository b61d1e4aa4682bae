"""Every network at a small size: its count is its model's, it starts from its seed, and it
learns.
"""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.integrate import quad
from scipy.stats import norm

from train.experiment.sections import Optimizer
from train.networks import build, count
from train.networks.cvae import CVAEConfig, decoder, losses
from train.networks.registry import KINDS
from train.networks.resnet50 import ResNet50Config
from train.optimization.optimizers import make_optimizer
from train.optimization.precision import policy

SMALL = {
    "fcdensenet": {
        "input_shape": (3, 8, 16),
        "layers": (1, 2, 1),
        "growth": 6,
        "first_filters": 8,
        "kernel": 3,
    },
    "resnet50": {"input_shape": (2, 24, 33), "units": (1, 2), "width": 4, "classes": 5},
    "cvae": {"input_shape": (2, 6, 9), "filters": (5, 4), "hidden": 16, "latent": 3},
    "deeplabv3plus": {
        "input_shape": (3, 16, 24),
        "units": (2, 1, 1, 1),
        "width": 4,
        "rates": (2, 3),
        "filters": 8,
    }
    | {"low_level_filters": 5, "skip_filters": (4, 6)},
    "cosmoflow": {
        "input_shape": (2, 8, 16, 12),
        "filters": (4, 6, 8),
        "strides": (1, 2, 1),
        "dense": (16, 8),
    },
    "unet3d": {"input_shape": (2, 4, 8, 12), "levels": 2, "first_filters": 4},
    "lenet": {"input_shape": (2, 16, 19), "classes": 5},
    "alexnet": {
        "input_shape": (2, 59, 66),
        "classes": 5,
        "filters": ((4,), (6,), (8, 8)),
        "dense": (16,),
    },
    "vgg": {
        "input_shape": (2, 9, 13),
        "classes": 5,
        "filters": ((4,), (6, 8)),
        "kernels": (3, 5),
        "dense": (16,),
    },
}
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
    return [np.asarray(part) for part in tf.nest.flatten(model(x, training=training))]


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
    target = [np.random.default_rng(1).random(part.shape, np.float32) for part in outputs(model, x)]
    optimizer = keras.optimizers.Adam(1e-2)
    optimizer.build(variables)
    history = []
    for step in range(4):
        with tf.GradientTape() as tape:
            parts = tf.nest.flatten(model(x, training=True))
            loss = sum(
                tf.reduce_mean(tf.square(part - goal))
                for part, goal in zip(parts, target, strict=True)
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
    kernels = [weight for weight in one.trainable_weights if weight.path.endswith("kernel")]
    for weight, again in zip(one.weights, same.weights, strict=True):
        np.testing.assert_array_equal(weight, again)
    for weight in kernels:
        theirs = next(candidate for candidate in other.weights if candidate.path == weight.path)
        assert np.abs(np.asarray(weight) - theirs).max() > 0, weight.path
    values = [float(np.asarray(weight).flat[0]) for weight in kernels]
    assert len(set(values)) == len(values)


@pytest.mark.parametrize("kind", SMALL)
def test_orders_of_axes_agree(kind):
    last, first = (config(kind, data_format=f"channels_{where}") for where in ("last", "first"))
    expected = build(last, seed=3)
    x = inputs(last)
    model = build(first, seed=3)
    assert {layer.name for layer in count(first).layers} == {layer.name for layer in model.layers}
    for layer in count(first).layers:
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
    for part in outputs(model, inputs(config(kind)), training=True):
        assert part.dtype == np.float32
        assert np.isfinite(part).all()


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
    norms = [
        layer for layer in models[0].layers if isinstance(layer, keras.layers.BatchNormalization)
    ]
    assert len(norms) == 53
    assert {layer.momentum for layer in norms} == {0.9}


# ---- The autoencoder's parts, its draws, and its loss against integrals

CONFIG = CVAEConfig(input_shape=(1, 6, 9), filters=(4, 5), hidden=8, latent=3)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((4, 6, 9, 1), dtype=np.float32)


@pytest.fixture(scope="module")
def model():
    return build(CONFIG, seed=1)


def test_the_decoder_apart_decodes_as_the_whole_with_its_weights(model, images):
    decoded, mean, _ = model(images)
    np.testing.assert_allclose(decoder(model)(mean), decoded, rtol=1e-5, atol=1e-6)
    assert decoder(model)(np.zeros((2, 3), np.float32)).shape == (2, 6, 9, 1)
    decoding = {id(variable) for variable in decoder(model).trainable_variables}
    assert decoding < {id(variable) for variable in model.trainable_variables}


def test_draws_follow_from_the_seed(images):
    def draws(seed):
        model = build(CONFIG, seed)
        return [np.asarray(model(images, training=True)[0]) for _ in range(2)]

    one = draws(1)
    same = draws(1)
    other = draws(2)
    np.testing.assert_array_equal(one, same)
    assert np.abs(one[0] - one[1]).max() > 0
    assert np.abs(one[0] - other[0]).max() > 0


def test_draws_have_the_distribution_of_the_encoder(model):
    sample = model.get_layer("sample")
    mean = np.full((20_000, 2), 0.5, np.float32)
    log_variance = np.full((20_000, 2), np.log(4.0), np.float32)
    drawn = np.asarray(sample([mean, log_variance], training=True))
    assert drawn.mean() == pytest.approx(0.5, abs=0.05)
    assert drawn.std() == pytest.approx(2.0, rel=0.02)
    np.testing.assert_array_equal(sample([mean, log_variance], training=False), mean)


def test_divergence_is_the_integral_that_defines_it():
    mean = 0.7
    variance = 0.3
    integral, _ = quad(
        lambda z: (
            norm.pdf(z, mean, variance**0.5)
            * (norm.logpdf(z, mean, variance**0.5) - norm.logpdf(z))
        ),
        -8,
        8,
    )
    zeros = np.zeros((2, 6, 9, 1), np.float32)
    moments = np.full((2, 3), mean, np.float32), np.full((2, 3), np.log(variance), np.float32)
    assert float(losses(zeros, zeros, *moments)[1]) == pytest.approx(3 * integral, rel=1e-5)


def test_root_is_of_each_image(images):
    moments = np.zeros((4, 3), np.float32), np.zeros((4, 3), np.float32)
    decoded = images + np.array([0.1, 0.2, 0.3, 0.4], np.float32)[:, None, None, None]
    root, divergence = losses(images, decoded, *moments)
    assert float(root) == pytest.approx(0.25, rel=1e-5)
    assert float(divergence) == 0


def test_training_lowers_the_loss_and_orders_the_latent_space(model):
    """Images of one bright row each: after training, the decoded image of each is nearest to
    itself.
    """
    rows = np.repeat(np.eye(6, dtype=np.float32)[:, :, None, None], 9, axis=2)
    network = build(CONFIG.model_copy(update={"hidden": 32}), seed=0)
    optimizer = keras.optimizers.Adam(3e-3)
    optimizer.build(network.trainable_variables)

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            root, divergence = losses(rows, *network(rows, training=True))
            loss = root + 1e-3 * divergence
        gradients = tape.gradient(
            loss, [variable.value for variable in network.trainable_variables]
        )
        optimizer.apply(gradients, network.trainable_variables)
        return root

    first = float(step())
    for _ in range(150):
        last = float(step())
    assert last < 0.5 * first
    decoded = np.asarray(network(rows)[0])
    distances = np.square(decoded[:, None] - rows[None]).sum((2, 3, 4))
    assert list(distances.argmin(axis=1)) == list(range(6))


# ---- As plain Keras models


def arrays_of(outputs):
    return [np.asarray(output) for output in keras.tree.flatten(outputs)]


WITHOUT_OWN_LAYERS = sorted(set(SMALL) - {"fcdensenet", "cvae"})


@pytest.mark.parametrize(
    ("kind", "recompute"),
    [
        *[("fcdensenet", False), ("fcdensenet", True), ("cvae", False)],
        *[pytest.param(kind, False, marks=pytest.mark.slow) for kind in WITHOUT_OWN_LAYERS],
    ],
)
def test_keras_saves_loads_and_copies_a_network(kind, recompute, tmp_path):
    network = KINDS[kind].model_validate(SMALL[kind] | {"kind": kind})
    model = build(network, 5, recompute)
    x = np.random.default_rng(1).random((2, *model.input_shape[1:]), np.float32)
    expected = arrays_of(model(x))
    model.save(tmp_path / "network.keras")
    loaded = keras.models.load_model(tmp_path / "network.keras")
    copy = keras.models.clone_model(model)
    assert [weight.shape for weight in copy.weights] == [weight.shape for weight in model.weights]
    copy.set_weights(model.get_weights())
    for other in (loaded, copy):
        assert [layer.name for layer in other.layers] == [layer.name for layer in model.layers]
        for found, wanted in zip(arrays_of(other(x)), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SMALL)
def test_a_network_is_exported_for_programs_without_keras(kind, tmp_path):
    network = KINDS[kind].model_validate(SMALL[kind] | {"kind": kind})
    model = build(network, 5)
    model.export(tmp_path / "saved", verbose=False)
    x = np.random.default_rng(1).random((2, *model.input_shape[1:]), np.float32)
    saved = tf.saved_model.load(str(tmp_path / "saved"))
    exported = arrays_of(saved.serve(x))
    for found, wanted in zip(exported, arrays_of(model(x)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_a_copy_begins_with_the_same_weights_and_draws_the_same_dropout():
    section = SMALL["fcdensenet"] | {"dropout": 0.3}
    model = build(KINDS["fcdensenet"].model_validate(section), 5)
    copy = keras.models.clone_model(model)
    for found, wanted in zip(copy.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(found, wanted)
    x = np.ones((1, *model.input_shape[1:]), np.float32)
    np.testing.assert_array_equal(copy(x, training=True), model(x, training=True))


@pytest.mark.parametrize("kind", ["adam", "momentum"])
def test_the_optimizers_learn_by_keras_own_loop_and_are_saved_with_a_network(kind, tmp_path):
    network = KINDS["lenet"].model_validate(SMALL["lenet"])
    model = build(network, 5)
    optimizer = make_optimizer(Optimizer(kind=kind, learning_rate=3e-3))
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x = np.random.default_rng(1).random((10, *model.input_shape[1:]), np.float32)
    labels = np.arange(10) % 5
    output = model(x)
    y = labels.reshape(10, *(1,) * (len(output.shape) - 2))
    losses = model.fit(x, y, batch_size=5, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    model.save(tmp_path / "network.keras")
    again = keras.models.load_model(tmp_path / "network.keras")
    assert again.optimizer.config == optimizer.config
    for found, wanted in zip(again.optimizer.variables, optimizer.variables, strict=True):
        np.testing.assert_array_equal(found, wanted)
    again.fit(x, y, batch_size=5, epochs=1, verbose=0)
