"""Gradients that are used a step later: among ranks, and with a loss scale that changes
meanwhile.
"""

import exchange_ranks
import exchange_training
import keras
import numpy as np
import pytest
import tensorflow as tf
from exchange_training import ReferenceTraining, assert_close

from train.optimization import precision
from train.optimization.optimizers import LarsAdam, LarsMomentum
from train.ranks import connection
from train.ranks.exchange import make_exchange

LAG = {"kind": "lag"}


@pytest.mark.slow
def test_with_lag_a_step_takes_the_gradient_of_the_one_before(together):
    out, results = together
    alone = ReferenceTraining()
    previous = None
    for x, y in exchange_training.batches():
        now = alone.gradients(x, y)
        if previous:  # the first step has none
            alone.optimizer.apply(previous, alone.weights)
        previous = now
    assert_close(out, "lag", alone.weights)
    waiting, averaged = zip(*(rank["waiting"] for rank in results), strict=True)
    assert len(set(waiting)) == exchange_training.RANKS  # what waits is each rank's own
    assert len(set(averaged)) == 1  # and, once averaged, the state of the job


@pytest.mark.slow
@pytest.mark.skipif(not exchange_ranks.HYBRID, reason="there is no kind hybrid")
def test_lag_of_a_hybrid_reduction_is_that_of_the_default(together):
    with np.load(together[0] / "lag.npz") as file:
        assert_close(together[0], "lag of hybrid", file.values())


# ---- One process


def test_late_gradients_follow_a_changing_loss_scale():
    """A scale that doubles between a gradient and its use changes nothing."""
    connection.start()
    plain, rows, *_ = exchange_training.train(
        LAG, exchange_training.small_model(seed=0), exchange_training.batches()
    )
    scaled = {"compute": "mixed_float16", "initial_loss_scale": 8.0, "growth_steps": 2}
    model = exchange_training.small_model(seed=0)  # stays float32
    weights, scaled_rows, *_ = exchange_training.train(
        LAG, model, exchange_training.batches(), precision=scaled
    )
    assert [row["loss_scale"] for row in scaled_rows] == [8, 8, 16, 16, 32]
    for ours, theirs in zip(weights, plain, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-7)
    norms = [row["grad_norm"] for row in rows]
    scaled_norms = [row["grad_norm"] for row in scaled_rows]
    np.testing.assert_allclose(scaled_norms, norms, rtol=1e-5)
    assert norms[0] == 0


# ---- A quadratic, whose lagged descent is known
#
# With curvature c, rate h and momentum μ, w(t+1) = (1 + μ) w(t) − (μ + h c) w(t−1): a recurrence of
# second order, with w(0) = w(1), as the first step changes nothing. Its roots are within the unit
# circle for h c < 1 − μ. Without lag the limit is 2 (1 + μ).


def update_of(exchange, optimizer):
    """The part of a step behind the gradients."""

    @tf.function(autograph=False)
    def update(gradient, scale):
        means, _ = exchange.mean([gradient], scale)
        optimizer.apply(means, exchange.updated)
        exchange.after_update(tf.constant(True))

    return update


def descend(exchange, momentum, rates, steps):
    """Weights (steps + 1, rates) of the descent of w²/2 from 1, at several products of rate and
    curvature.
    """
    connection.start()
    sections = {"optimizer": {"kind": "momentum", "momentum": momentum, "lars": "none"}}
    training = exchange_training.configured(exchange, **sections)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(len(rates), use_bias=False)])
    optimizer = LarsMomentum(training.optimizer)
    optimizer.learning_rate = 1.0
    lagged = make_exchange(training.exchange, 0, 1)
    lagged.begin(model, optimizer)
    (weight,) = model.trainable_variables
    weight.assign(np.ones((1, len(rates))))
    update = update_of(lagged, optimizer)
    history = [weight.numpy()[0]]
    for _ in range(steps):
        update(weight.value * np.float32(rates), tf.constant(1.0))
        history.append(weight.numpy()[0])
    return np.array(history)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_the_lagged_descent_of_a_quadratic_is_the_known_one(momentum):
    rates = np.array([0.02, 0.3, 0.9]) * (1 - momentum)
    steps = np.arange(41)[:, None]
    half = (1 + momentum) / 2
    root = half + np.sqrt((half**2 - momentum - rates).astype(complex))
    other = 1 + momentum - root
    wanted = ((1 - other) * root**steps - (1 - root) * other**steps) / (root - other)
    descent = descend(LAG, momentum, rates, 40)
    np.testing.assert_allclose(descent, wanted.real, atol=2e-5)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_with_lag_the_largest_stable_rate_is_smaller_as_the_documentation_says(momentum):
    for exchange, limit in ((LAG, 1 - momentum), ({}, 2 * (1 + momentum))):
        below, above = descend(exchange, momentum, np.array([0.8, 1.2]) * limit, 200).T
        assert abs(below[-40:]).max() < 0.3
        assert not (abs(above[-40:]) < 3).all()  # it may be infinite


def test_small_rates_descend_alike_with_lag_and_without():
    rates = np.array([0.002, 0.01]) * (1 - 0.9)
    difference = descend(LAG, 0.9, rates, 400) - descend({}, 0.9, rates, 400)
    assert abs(difference).max() < 0.012


@pytest.mark.parametrize("loss_scale", [False, True])
def test_the_first_step_does_not_count_in_adams_bias_correction(loss_scale):
    """n + 1 lagged steps are n steps of Adam with the same gradients, to the bit."""
    connection.start()
    sections = {"precision": {"compute": "mixed_float16"}} if loss_scale else {}
    rng = np.random.default_rng(0)
    gradients = [tf.constant(rng.normal(size=(3, 2)), tf.float32) for _ in range(4)]
    final_weights = []
    for choice in (LAG, {}):
        training = exchange_training.configured(choice, **sections)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, use_bias=False)])
        optimizer = precision.with_loss_scale(LarsAdam(training.optimizer), training)
        exchange = make_exchange(training.exchange, 0, 1)
        exchange.begin(model, optimizer)
        (weight,) = model.trainable_variables
        weight.assign(np.ones((3, 2)))
        scale = tf.convert_to_tensor(precision.loss_scale(optimizer))
        update = update_of(exchange, optimizer)
        for gradient in gradients if choice is LAG else gradients[:-1]:
            update(gradient * scale, scale)
        final_weights.append(weight.numpy())
    np.testing.assert_array_equal(*final_weights)
