import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from train.experiment.sections import Loss, Training
from train.optimization.gradients import differentiate
from train.optimization.losses import (
    DensityObjective,
    huber,
    kernels,
    l2,
    negative_log_likelihood,
    split_output,
)

LIMITS = (0.0, 0.01)


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
        float(huber(scale * (target + error), scale * target, tf.constant(1.0), LIMITS))
        for scale in (1, 200)
    )
    assert heavy == pytest.approx(light, rel=1e-5)
    assert light == pytest.approx(
        float(huber(error / target.std(), 0 * target, tf.constant(1.0))), rel=1e-5
    )
    both = huber(
        np.concatenate([target + error, 200 * target]),
        np.concatenate([target, 200 * target]),
        1.0,
        LIMITS,
    )
    assert float(both) == pytest.approx(light / 2, rel=1e-5)  # each by its own contrast
    flat = np.full_like(target, 3.0)
    assert np.isfinite(huber(flat + error, flat, tf.constant(1.0), LIMITS))


def test_a_window_with_hardly_any_contrast_counts_by_the_least_that_is_set():
    rng = np.random.default_rng(2)
    error = rng.normal(size=(1, 6, 5, 1)).astype(np.float32)
    target = 8 + 0.01 * rng.normal(size=error.shape).astype(np.float32)
    for limits, unit in (((0.25, 0.5), target.mean() / 4), ((0.25, 5.0), 5), ((0.0, 0.1), 0.1)):
        assert float(huber(target + error, target, tf.constant(1.0), limits)) == pytest.approx(
            float(huber(error / unit, 0 * error, tf.constant(1.0))), rel=1e-3
        )


def test_l2_takes_convolution_kernels_only():
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
    squares = sum(
        float(np.sum(np.square(variable.numpy(), dtype=np.float64))) for variable in chosen
    )
    assert float(l2(chosen, 0.25)) == pytest.approx(0.25 * squares / 2, rel=1e-6)


# ---- Likelihood of the error
# ----------------------------------------------------------------------------------------


def likelihood(kind, density, u, target, relative=False):
    loss = Loss(likelihood=kind, relative=relative)
    return negative_log_likelihood(
        *(tf.constant(array, tf.float32) for array in (density, u, target)), loss
    )


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_the_likelihood_is_that_of_the_distribution(kind):
    rng = np.random.default_rng(4)
    target = rng.normal(3, 2, (2, 5, 7, 1))
    error = rng.normal(size=target.shape)
    u = rng.uniform(-1, 2, target.shape)
    scale = np.exp(7 * np.tanh(u / 7))
    distribution = {"laplace": stats.laplace, "gaussian": stats.norm}[kind]
    constant = {"laplace": np.log(2), "gaussian": np.log(2 * np.pi) / 2}[kind]
    expected = -distribution.logpdf(error, scale=scale).mean() - constant
    assert float(likelihood(kind, target + error, u, target)) == pytest.approx(expected, rel=1e-5)
    relative = expected - np.log(target.std(axis=(1, 2, 3))).mean()  # the density of e/σ, not of e
    assert float(likelihood(kind, target + error, u, target, relative=True)) == pytest.approx(
        relative, rel=1e-5
    )


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_the_best_scale_is_the_size_of_the_errors_in_units_of_the_density_also_if_they_are_relative(
    kind,
):
    errors = np.array([-6.0, 3.0, -2.0, 1.0, 2.0, -4.0]).reshape(1, 2, 3, 1)
    target = 40 * np.arange(6.0).reshape(errors.shape)
    best = np.abs(errors).mean() if kind == "laplace" else np.sqrt((errors**2).mean())
    scales = best * np.array([0.9, 1.0, 1.1])
    for relative in (False, True):
        values = []
        for s in scales:
            values.append(
                float(
                    likelihood(
                        kind,
                        target + errors,
                        7 * np.arctanh(np.log(s) / 7) + 0 * errors,
                        target,
                        relative,
                    )
                )
            )
        assert values[1] < min(values[0], values[2])


def test_the_density_is_learnt_by_huber_alone_however_large_the_predicted_error():
    """A likelihood would divide the gradient by the scale, and so give up pixels that are hard to
    predict.
    """
    config = Training(epochs=1, loss=Loss(likelihood="laplace", huber_delta=2.0, l2=0))
    y = tf.constant(np.random.default_rng(5).normal(size=(2, 4, 6, 1)), tf.float32)
    gradients = []
    for u in (-5.0, 0.0, 5.0):
        model = keras.Sequential([keras.Input((4, 6, 1)), keras.layers.Conv2D(2, 1)])
        model.layers[0].set_weights([np.array([[[[0.5, 0.0]]]]), np.array([0.1, u])])
        parts = differentiate(model, config, y + 3.0, y, tf.constant(2.0), tf.constant(1.0))
        gradients.append([np.asarray(gradient)[..., 0] for gradient in parts.gradients])
        assert float(parts.loss) == pytest.approx(float(sum(parts.terms)), rel=1e-6)
    for kernel, bias in gradients[1:]:
        np.testing.assert_array_equal(kernel, gradients[0][0])
        np.testing.assert_array_equal(bias, gradients[0][1])
    assert np.abs(gradients[0][0]).max() > 0.1


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_the_gradient_of_the_scale_is_bounded_and_never_vanishes(kind):
    """No error is large enough for an infinity in float16, and no scale is stuck at its bound."""
    for u, error in ((-30.0, 1e5), (30.0, 1e-3), (0.0, 1e5)):
        raw = tf.Variable(tf.fill((1, 1, 1, 1), u))
        with tf.GradientTape() as tape:
            value = negative_log_likelihood(
                tf.fill(raw.shape, error), raw, tf.zeros(raw.shape), Loss(likelihood=kind)
            )
        gradient = tape.gradient(value, raw).numpy().item()
        assert np.isfinite(float(value))
        assert 1e-4 < abs(gradient) <= 200
        assert (gradient < 0) == (error > 1)  # towards the size of the error


def test_the_second_channel_is_found_in_both_data_formats():
    output = np.arange(48.0).reshape(2, 2, 3, 4)
    density, u = split_output(tf.constant(output), tf.zeros((2, 1, 3, 4)))
    np.testing.assert_array_equal(density, output[:, :1])
    np.testing.assert_array_equal(u, output[:, 1:])
    density, u = split_output(tf.constant(output.transpose(0, 2, 3, 1)), tf.zeros((2, 3, 4, 1)))
    np.testing.assert_array_equal(density, output.transpose(0, 2, 3, 1)[..., :1])
    np.testing.assert_array_equal(u, output.transpose(0, 2, 3, 1)[..., 1:])


def test_mean_square_and_mean_absolute_error_stand_in_for_huber():
    rng = np.random.default_rng(5)
    target = rng.normal(5.0, 2.0, (2, 5, 7, 1)).astype(np.float32)
    error = rng.normal(size=target.shape).astype(np.float32)
    expected = {"mse": np.mean(error**2), "mae": np.mean(np.abs(error))}
    for kind, value in expected.items():
        objective = DensityObjective(Loss(kind=kind))
        assert objective.terms == (kind,)
        assert objective.setting(3) == {}
        (term,) = objective(target + error, target, tf.constant(0.0))
        assert float(term) == pytest.approx(value, rel=1e-5)
    relative = DensityObjective(Loss(kind="mae", relative=True))
    (light,) = relative(target + error, target, tf.constant(0.0))
    (heavy,) = relative(50 * (target + error), 50 * target, tf.constant(0.0))
    assert float(heavy) == pytest.approx(float(light), rel=1e-5)


def test_a_mean_square_with_a_likelihood_has_both_terms():
    objective = DensityObjective(Loss(kind="mse", likelihood="gaussian"))
    assert objective.terms == ("mse", "likelihood")
    output = np.zeros((1, 3, 4, 2), np.float32)
    target = np.full((1, 3, 4, 1), 2.0, np.float32)
    mse, likelihood = objective(tf.constant(output), tf.constant(target), tf.constant(0.0))
    assert float(mse) == pytest.approx(4.0)
    assert float(likelihood) == pytest.approx(0.1 * 2.0)
