"""ResNet-50 against that of keras.applications."""

import keras
import numpy as np
import pytest

from train.networks import build
from train.networks.resnet50 import ResNet50Config


@pytest.fixture(scope="module")
def models():
    theirs = keras.applications.ResNet50(
        weights=None, input_shape=(40, 35, 3), classes=5, classifier_activation=None, include_top=True
    )
    return build(ResNet50Config(input_shape=(3, 40, 35), classes=5), seed=0), theirs


def test_the_layers_with_weights_are_those_of_keras_applications(models):
    ours, theirs = ({layer.name: [tuple(w.shape) for w in layer.weights] for layer in m.layers} for m in models)
    assert {name: shapes for name, shapes in ours.items() if shapes} == {
        name: shapes for name, shapes in theirs.items() if shapes
    }


def test_with_the_same_weights_it_computes_what_keras_applications_does(models):
    ours, theirs = models
    rng = np.random.default_rng(2)
    for layer in theirs.layers:
        if layer.weights:
            # A spread of moving statistics, too, so that nothing agrees because it is 0 or 1.
            layer.set_weights(
                [w + rng.uniform(0, 0.2, w.shape).astype(np.float32) * (w.ndim == 1) for w in layer.get_weights()]
            )
            ours.get_layer(layer.name).set_weights(layer.get_weights())
    x = rng.random((2, 40, 35, 3), np.float32)
    expected = np.asarray(theirs(x))
    np.testing.assert_allclose(ours(x), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_images_below_the_smallest_of_keras_applications():
    model = build(ResNet50Config(input_shape=(3, 6, 9), units=(1, 1), width=4, classes=2), seed=0)
    assert model(np.zeros((1, 6, 9, 3), np.float32)).shape == (1, 2)


def test_moving_statistics_follow_within_a_hundred_steps(models):
    norms = [layer for layer in models[0].layers if isinstance(layer, keras.layers.BatchNormalization)]
    assert len(norms) == 53
    assert {layer.momentum for layer in norms} == {0.9}
