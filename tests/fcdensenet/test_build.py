"""The built network: shapes, dtypes, determinism, dropout, transitions, and that it learns."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from fcdensenet.build import build
from fcdensenet.config import NetworkConfig
from fcdensenet.keras_layers import BatchNormalization

SHAPE = (6, 16, 24)


def config(**options: object) -> NetworkConfig:
    small = {
        "input_shape": SHAPE,
        "layers": (1, 2, 1),
        "growth": 4,
        "first_filters": 5,
        "kernel": 3,
    }
    return NetworkConfig(**(small | options))


def patterns(n: int = 2) -> np.ndarray:
    channels, *extent = SHAPE
    return np.random.default_rng(0).random((n, *extent, channels), dtype=np.float32)


def test_dropout_acts_in_training_only() -> None:
    model = build(config(dropout=0.5), seed=0)
    x = patterns()
    np.testing.assert_array_equal(model(x, training=False), model(x, training=False))
    assert np.abs(model(x, training=True) - model(x, training=True)).max() > 0


@pytest.mark.parametrize(("kernel", "empty"), [(1, 0.75), (2, 0.0)])
def test_transition_up_of_kernel_1_leaves_three_quarters_zero(kernel: int, empty: float) -> None:
    model = build(config(transition_up_kernel=kernel, dropout=0.0), seed=0)
    maps = keras.Model(model.input, model.get_layer("tu1_conv").output)(patterns()).numpy()
    assert np.mean(maps == 0) == pytest.approx(empty, abs=0.01)


def test_initial_activations_neither_fade_nor_grow() -> None:
    """Needed for float16: through 14 convolutions every layer's maps stay within a factor of ten of
    the first's.
    """
    model = build(config(layers=(1, 2, 4, 2, 1), growth=8, dropout=0.5), seed=0)
    convolutions = []
    for layer in model.layers:
        if "conv" in layer.name or layer.name in ("first", "last"):
            convolutions.append(layer)
    maps = keras.Model(model.input, [layer.output for layer in convolutions])(
        patterns(), training=True
    )
    spread = np.array([np.sqrt(np.mean(np.square(m))) for m in maps])
    assert np.all((spread > 0.1 * spread[0]) & (spread < 10 * spread[0])), spread


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_recomputing_changes_neither_variables_nor_gradients(data_format: str) -> None:
    results = []
    for recompute in (False, True):
        model = build(config(layers=(2, 3, 2), dropout=0.0, data_format=data_format), 0, recompute)
        x = patterns() if data_format == "channels_last" else np.moveaxis(patterns(), -1, 1)

        @tf.function(autograph=False)
        def gradients(x: tf.Tensor, model: keras.Model = model) -> list[tf.Tensor]:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x, training=True)))
            return tape.gradient(loss, [variable.value for variable in model.trainable_variables])

        names = {variable.path: variable.shape for variable in model.variables}
        results.append(
            (
                names,
                {v.path: g for v, g in zip(model.trainable_variables, gradients(x), strict=True)},
            )
        )
    (names, plain), (same_names, recomputed) = results
    assert names == same_names
    for path, gradient in plain.items():
        np.testing.assert_allclose(recomputed[path], gradient, rtol=1e-4, atol=1e-6, err_msg=path)


def test_recomputing_normalised_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="block_norm"):
        build(config(block_norm=True), 0, recompute=True)


@pytest.mark.slow
def test_overfits_one_sample() -> None:
    model = build(config(input_shape=(6, 8, 12), growth=16, dropout=0.0), seed=0)
    x = patterns(1)[:, :8, :12]
    truth = x[..., :1] * x[..., 1:2]
    model.compile(optimizer=keras.optimizers.Adam(5e-3), loss="mse")
    model.fit(x, truth, epochs=40, verbose=0)
    assert np.var(model(x, training=True) - truth) < 0.05 * np.var(truth)


@pytest.mark.parametrize("grid", [(3, 5), (3, 1, 5)])
def test_fused_normalisation_is_keras_normalisation(grid: tuple[int, ...]) -> None:
    """Maps, gradients and moving moments; the latter have the variance of the batch, not of the
    population.
    """
    x = tf.constant(np.random.default_rng(3).normal(2, 3, (2, *grid, 4)), tf.float32)
    gamma = np.array([0.5, -1.0, 2.0, 1.5], np.float32)
    results = []
    for kind in (keras.layers.BatchNormalization, BatchNormalization):
        layer = kind(-1, momentum=0.8)
        layer.build(x.shape)
        layer.gamma.assign(gamma)
        with tf.GradientTape() as tape:
            tape.watch(x)
            maps = layer(x, training=True)
            total = tf.reduce_sum(maps**3)
        gradients = tape.gradient(total, [x, layer.gamma.value, layer.beta.value])
        results.append(
            [maps, *gradients, layer.moving_mean.value, layer.moving_variance.value, layer(x)]
        )
    for ours, plain in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-4, atol=1e-4)


def test_without_a_seed_weights_are_zero_and_have_the_same_names() -> None:
    blank, seeded = (build(config(), seed) for seed in (None, 0))
    assert [variable.path for variable in blank.trainable_variables] == [
        variable.path for variable in seeded.trainable_variables
    ]
    kernels = []
    for variable in blank.trainable_variables:
        if len(variable.shape) > 1:
            kernels.append(variable.numpy())
    assert len(kernels) > 3
    for kernel in kernels:
        assert not kernel.any()
