import numpy as np
import pytest
import tensorflow as tf

from train.experiment.sections import Loss
from train.optimization.losses import huber, huber_delta, kernels, l2


def test_huber_is_quadratic_inside_delta_and_linear_outside():
    error = np.array([-3.0, -1.0, 0.0, 0.5, 2.0, 7.0], np.float32)
    target = np.linspace(-1, 1, 6, dtype=np.float32)
    expected = np.mean([2 * (3 - 1), 0.5, 0, 0.125, 2.0, 2 * (7 - 1)])
    assert float(huber(target + error, target, tf.constant(2.0))) == pytest.approx(expected, rel=1e-6)


def test_huber_gradient_is_the_error_clipped_at_delta():
    error = tf.Variable([-3.0, -1.0, 0.5, 7.0])
    with tf.GradientTape() as tape:
        value = huber(error, tf.zeros(4), tf.constant(2.0))
    np.testing.assert_allclose(tape.gradient(value, error), np.clip(error.numpy(), -2, 2) / 4, rtol=1e-6)


def test_huber_of_half_precision_predictions_does_not_overflow():
    prediction = tf.constant([60000.0], tf.float16)
    assert float(huber(prediction, tf.constant([-60000.0]), tf.constant(1e6))) == pytest.approx(
        0.5 * 119968.0**2, rel=1e-3
    )


def test_relative_errors_count_alike_whatever_the_contrast():
    rng = np.random.default_rng(1)
    target = rng.normal(5.0, 2.0, (1, 5, 7, 1)).astype(np.float32)
    error = rng.normal(size=target.shape).astype(np.float32)
    light, heavy = (
        float(huber(scale * (target + error), scale * target, tf.constant(1.0), relative=True)) for scale in (1, 200)
    )
    assert heavy == pytest.approx(light, rel=1e-5)
    assert light == pytest.approx(float(huber(error / target.std(), 0 * target, tf.constant(1.0))), rel=1e-5)
    both = huber(np.concatenate([target + error, 200 * target]), np.concatenate([target, 200 * target]), 1.0, True)
    assert float(both) == pytest.approx(light / 2, rel=1e-5)  # each by its own contrast
    flat = np.full_like(target, 3.0)
    assert np.isfinite(huber(flat + error, flat, tf.constant(1.0), relative=True))


def test_delta_decays_by_epoch():
    loss = Loss(huber_delta=8.0, huber_delta_decay=0.5)
    assert [huber_delta(loss, epoch) for epoch in range(4)] == [8.0, 4.0, 2.0, 1.0]


def test_l2_takes_convolution_kernels_only():
    import keras

    model = keras.Sequential(
        [
            keras.Input((4, 6, 2)),
            keras.layers.Conv2D(3, 3, bias_initializer="ones"),
            keras.layers.BatchNormalization(),
            keras.layers.Conv2DTranspose(2, 2),
        ]
    )
    chosen = kernels(model.trainable_variables)
    assert [variable.shape for variable in chosen] == [(3, 3, 2, 3), (2, 2, 2, 3)]
    squares = sum(float(np.sum(np.square(variable.numpy(), dtype=np.float64))) for variable in chosen)
    assert float(l2(chosen, 0.25)) == pytest.approx(0.25 * squares / 2, rel=1e-6)
