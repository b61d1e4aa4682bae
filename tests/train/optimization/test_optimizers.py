import keras
import numpy as np
import pytest
import tensorflow as tf

from train.experiment.sections import Optimizer
from train.optimization.optimizers import LarsAdam, clipped, make_optimizer


def ratio(weights, direction, config, rate):
    rate_ratio = config.lars_trust * np.linalg.norm(weights) / np.linalg.norm(direction)
    return min(rate_ratio / rate, 1) if config.layer_rates == "larc" else rate_ratio


def reference(weights, gradients, config, rate):
    """The docstring's algorithm in NumPy, float64."""
    weights = [w.astype(np.float64) for w in weights]
    m = [np.zeros_like(w) for w in weights]
    v = [np.zeros_like(w) for w in weights]
    for t, step in enumerate(gradients, start=1):
        for i, gradient in enumerate(step):
            g = gradient
            layered = weights[i].ndim > 1
            if layered and config.lars == "before":
                g = ratio(weights[i], g, config, rate) * g
            m[i] = config.beta_1 * m[i] + (1 - config.beta_1) * g
            v[i] = config.beta_2 * v[i] + (1 - config.beta_2) * g**2
            u = (
                m[i]
                / (1 - config.beta_1**t)
                / (np.sqrt(v[i] / (1 - config.beta_2**t)) + config.epsilon)
            )
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
    ("lars", "trust"),
    [("before", 0.3), ("before", 0.02), ("after", 0.3), ("after", 0.02), ("none", 1)],
)
def test_follows_the_algorithm(lars, trust, layer_rates):
    rng = np.random.default_rng(7)
    shapes = [(3, 3, 2, 4), (4,), (5, 2)]
    weights = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    gradients = []
    for k in (-2, 0, 3, 1):
        gradients.append([10.0**k * rng.normal(size=shape).astype(np.float32) for shape in shapes])
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
    matrix = keras.Variable(np.eye(3, 4, dtype=np.float32))
    vector = keras.Variable(np.ones(3, np.float32))
    optimizer = make_optimizer(config)
    optimizer.build([matrix, vector])
    rng = np.random.default_rng(0)
    expected = [np.eye(3, 4), np.ones(3)]
    sums = [0.0, 0.0]
    for rate in (0.1, 0.05):
        optimizer.learning_rate.assign(rate)
        gradients = [
            rng.normal(size=(3, 4)).astype(np.float32),
            rng.normal(size=3).astype(np.float32),
        ]
        optimizer.apply([tf.constant(gradient) for gradient in gradients], [matrix, vector])
        if lars == "before":
            gradients[0] = (
                gradients[0] * 0.5 * np.linalg.norm(expected[0]) / np.linalg.norm(gradients[0])
            )
        sums = [0.8 * total + gradient for total, gradient in zip(sums, gradients, strict=True)]
        expected = [value - rate * total for value, total in zip(expected, sums, strict=True)]
    np.testing.assert_allclose(np.asarray(matrix), expected[0], rtol=2e-6, atol=1e-7)
    np.testing.assert_allclose(np.asarray(vector), expected[1], rtol=2e-6, atol=1e-7)


KINDS = [Optimizer(learning_rate=0.1, lars="none"), Optimizer(kind="momentum", lars="none")]


@pytest.mark.parametrize("config", KINDS, ids=lambda config: config.kind)
def test_decoupled_decay_takes_a_fraction_of_kernels_and_no_part_of_the_gradient(config):
    rng = np.random.default_rng(3)
    weights = [rng.normal(size=shape).astype(np.float32) for shape in ((3, 4), (4,))]
    gradients = [[rng.normal(size=w.shape).astype(np.float32) for w in weights]]
    decayed = config.model_copy(update={"weight_decay": 0.3})
    kernel, bias = run(make_optimizer(config), weights, gradients)
    with_decay, with_decay_bias = run(make_optimizer(decayed), weights, gradients)
    expected = kernel - config.learning_rate * 0.3 * weights[0]
    np.testing.assert_allclose(with_decay, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(with_decay_bias, bias)


def test_decoupled_decay_with_adam_is_that_of_keras_adamw():
    rng = np.random.default_rng(4)
    weights = [rng.normal(size=(3, 4)).astype(np.float32)]
    gradients = [[rng.normal(size=(3, 4)).astype(np.float32)] for _ in range(5)]
    ours = Optimizer(learning_rate=0.01, lars="none", weight_decay=0.1)
    theirs = keras.optimizers.AdamW(0.01, weight_decay=0.1, epsilon=1e-8)
    np.testing.assert_allclose(
        run(make_optimizer(ours), weights, gradients)[0],
        run(theirs, weights, gradients)[0],
        rtol=1e-4,
    )


def test_gradients_are_clipped_to_a_common_norm_and_shorter_ones_stay():
    gradients = [np.full((2, 2), 3.0, np.float32), np.full(7, 2.0, np.float32)]
    norm = float(np.sqrt(4 * 9 + 7 * 4))  # 8
    for largest, factor in ((2.0, 2.0 / norm), (norm, 1.0), (100.0, 1.0)):
        clipped_gradients = clipped([keras.ops.convert_to_tensor(g) for g in gradients], largest)
        for clip, gradient in zip(clipped_gradients, gradients, strict=True):
            np.testing.assert_allclose(np.asarray(clip), factor * gradient, rtol=1e-6)
    zeros = clipped([keras.ops.zeros(3)], 1.0)
    np.testing.assert_array_equal(np.asarray(zeros[0]), 0)


def test_a_clipped_step_is_that_of_the_shortened_gradient():
    config = Optimizer(kind="momentum", learning_rate=0.1, lars="none", clip_norm=1.0)
    weights = [np.zeros((2, 3), np.float32), np.zeros(4, np.float32)]
    gradients = [[np.full((2, 3), 100.0, np.float32), np.full(4, 100.0, np.float32)]]
    kernel, bias = run(make_optimizer(config), weights, gradients)
    assert np.sqrt((kernel**2).sum() + (bias**2).sum()) == pytest.approx(0.1, rel=1e-5)
