import keras
import numpy as np
import pytest
import tensorflow as tf

from train.experiment.sections import Optimizer
from train.optimization.optimizers import LarsAdam, make_optimizer


def ratio(weights, direction, config, rate):
    whole = config.lars_trust * np.linalg.norm(weights) / np.linalg.norm(direction)
    return min(whole / rate, 1) if config.layer_rates == "larc" else whole


def reference(weights, gradients, config, rate):
    """The docstring's algorithm in NumPy, float64."""
    weights = [w.astype(np.float64) for w in weights]
    m, v = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    for t, step in enumerate(gradients, start=1):
        for i, gradient in enumerate(step):
            g, layered = gradient, weights[i].ndim > 1
            if layered and config.lars == "before":
                g = ratio(weights[i], g, config, rate) * g
            m[i] = config.beta_1 * m[i] + (1 - config.beta_1) * g
            v[i] = config.beta_2 * v[i] + (1 - config.beta_2) * g**2
            u = m[i] / (1 - config.beta_1**t) / (np.sqrt(v[i] / (1 - config.beta_2**t)) + config.epsilon)
            if layered and config.lars == "after":
                u = ratio(weights[i], u, config, rate) * u
            weights[i] = weights[i] - rate * u
    return weights


def run(optimizer, weights, gradients):
    variables = [keras.Variable(w) for w in weights]
    optimizer.build(variables)
    for step in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(g) for g in step], variables)
    return [variable.numpy() for variable in variables]


@pytest.mark.parametrize("layer_rates", ["lars", "larc"])
@pytest.mark.parametrize(
    ("lars", "trust"), [("before", 0.3), ("before", 0.02), ("after", 0.3), ("after", 0.02), ("none", 1)]
)
def test_follows_the_algorithm(lars, trust, layer_rates):
    rng, shapes = np.random.default_rng(7), [(3, 3, 2, 4), (4,), (5, 2)]
    weights = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    gradients = [[10.0**k * rng.normal(size=shape).astype(np.float32) for shape in shapes] for k in (-2, 0, 3, 1)]
    config = Optimizer(learning_rate=0.05, lars=lars, lars_trust=trust, layer_rates=layer_rates)
    result = run(LarsAdam(config), weights, gradients)
    for a, b in zip(result, reference(weights, gradients, config, 0.05), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=3e-6)  # 1 − β₂ᵗ in float32


@pytest.mark.parametrize("lars", ["before", "after"])
def test_zero_weights_and_zero_gradients_stay_finite(lars):
    weights = [np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)]
    gradients = [[np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)]]
    grown, kept = run(LarsAdam(Optimizer(learning_rate=0.1, lars=lars)), weights, gradients)
    assert np.all(grown < 0)
    np.testing.assert_array_equal(kept, 1)


@pytest.mark.parametrize("lars", ["none", "before"])
def test_momentum_is_the_sum_of_past_gradients(lars):
    config = Optimizer(kind="momentum", momentum=0.8, learning_rate=0.1, lars=lars, lars_trust=0.5)
    matrix, vector = keras.Variable(np.eye(3, 4, dtype=np.float32)), keras.Variable(np.ones(3, np.float32))
    optimizer = make_optimizer(config)
    optimizer.build([matrix, vector])
    rng = np.random.default_rng(0)
    expected, sums = [np.eye(3, 4), np.ones(3)], [0.0, 0.0]
    for rate in (0.1, 0.05):
        optimizer.learning_rate.assign(rate)
        gradients = [rng.normal(size=(3, 4)).astype(np.float32), rng.normal(size=3).astype(np.float32)]
        optimizer.apply([tf.constant(gradient) for gradient in gradients], [matrix, vector])
        if lars == "before":
            gradients[0] = gradients[0] * 0.5 * np.linalg.norm(expected[0]) / np.linalg.norm(gradients[0])
        sums = [0.8 * total + gradient for total, gradient in zip(sums, gradients, strict=True)]
        expected = [value - rate * total for value, total in zip(expected, sums, strict=True)]
    np.testing.assert_allclose(np.asarray(matrix), expected[0], rtol=2e-6, atol=1e-7)
    np.testing.assert_allclose(np.asarray(vector), expected[1], rtol=2e-6, atol=1e-7)
