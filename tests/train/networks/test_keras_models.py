"""Networks as plain Keras models: saved, loaded, copied, exported and fitted by Keras itself."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_networks import SMALL

from train.experiment.sections import Optimizer
from train.networks import build
from train.networks.registry import KINDS
from train.optimization.optimizers import make_optimizer


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
        for actual, wanted in zip(arrays_of(other(x)), expected, strict=True):
            np.testing.assert_array_equal(actual, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SMALL)
def test_a_network_is_exported_for_programs_without_keras(kind, tmp_path):
    network = KINDS[kind].model_validate(SMALL[kind] | {"kind": kind})
    model = build(network, 5)
    model.export(tmp_path / "saved", verbose=False)
    x = np.random.default_rng(1).random((2, *model.input_shape[1:]), np.float32)
    saved = tf.saved_model.load(str(tmp_path / "saved"))
    exported = arrays_of(saved.serve(x))
    for actual, wanted in zip(exported, arrays_of(model(x)), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)


def test_a_copy_begins_with_the_same_weights_and_draws_the_same_dropout():
    section = SMALL["fcdensenet"] | {"dropout": 0.3}
    model = build(KINDS["fcdensenet"].model_validate(section), 5)
    copy = keras.models.clone_model(model)
    for actual, wanted in zip(copy.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(actual, wanted)
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
    for actual, wanted in zip(again.optimizer.variables, optimizer.variables, strict=True):
        np.testing.assert_array_equal(actual, wanted)
    again.fit(x, y, batch_size=5, epochs=1, verbose=0)
