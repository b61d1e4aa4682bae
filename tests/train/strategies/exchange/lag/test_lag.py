"""Gradients that are used a step later: among ranks, and with a loss scale that changes meanwhile."""

import exchange_ranks
import numpy as np
import pytest
import tensorflow as tf
from exchange_ranks import Alone, assert_close

from train.optimization import precision
from train.optimization.loop import make_step
from train.optimization.optimizers import LarsAdam
from train.ranks import reduction

LAG = {"kind": "lag"}


@pytest.mark.slow
def test_with_lag_a_step_takes_the_gradient_of_the_one_before(together):
    out, found = together
    alone = Alone()
    previous = [tf.zeros(weight.shape) for weight in alone.weights]
    for x, y in exchange_ranks.batches():
        now = alone.gradients(x, y)
        alone.optimizer.apply(previous, alone.weights)
        previous = now
    assert_close(out, "lag", alone.weights)
    before, after = zip(*(rank["waiting"] for rank in found), strict=True)
    assert len(set(before)) == exchange_ranks.RANKS  # what waits is each rank's own
    assert len(set(after)) == 1  # and, once averaged, the state of the job


@pytest.mark.slow
@pytest.mark.skipif(not exchange_ranks.HYBRID, reason="there is no kind hybrid")
def test_lag_of_a_hybrid_reduction_is_that_of_the_default(together):
    with np.load(together[0] / "lag.npz") as file:
        assert_close(together[0], "lag of hybrid", file.values())


# ---- One process ----------------------------------------------------------------------------------------------------


def stepped(choice, batches, **sections):
    """(weights, what the steps return) after a step with each batch."""
    config, model = exchange_ranks.configured(choice), exchange_ranks.small_model(seed=0)
    config = config.model_validate(config.model_dump() | sections)
    optimizer = precision.with_loss_scale(LarsAdam(config.optimizer), config)
    step = make_step(model, optimizer, config)
    rows = [step(x, y, tf.constant(exchange_ranks.RATE), tf.constant(10.0)).numpy() for x, y in batches]
    return [weight.numpy() for weight in model.trainable_variables], rows


def test_late_gradients_follow_a_changing_loss_scale():
    """A scale that doubles between a gradient and its use changes nothing."""
    reduction.start()
    plain, rows = stepped(LAG, exchange_ranks.batches())
    scaled = {"compute": "mixed_float16", "initial_loss_scale": 8.0, "growth_steps": 2}
    found, scaled_rows = stepped(LAG, exchange_ranks.batches(), precision=scaled)  # the model stays float32
    assert [row[2] for row in scaled_rows] == [8, 8, 16, 16, 32]
    for ours, theirs in zip(found, plain, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-7)
    np.testing.assert_allclose([row[3] for row in scaled_rows], [row[3] for row in rows], rtol=1e-5)
    assert rows[0][3] == 0
