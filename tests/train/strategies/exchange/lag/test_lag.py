"""Gradients that are used a step later: among ranks, and with a loss scale that changes meanwhile."""

import exchange_ranks
import numpy as np
import pytest
import tensorflow as tf
from exchange_ranks import Alone, assert_close

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


def test_late_gradients_follow_a_changing_loss_scale():
    """A scale that doubles between a gradient and its use changes nothing."""
    reduction.start()
    plain, rows, *_ = exchange_ranks.train(LAG, exchange_ranks.small_model(seed=0), exchange_ranks.batches())
    scaled = {"compute": "mixed_float16", "initial_loss_scale": 8.0, "growth_steps": 2}
    model = exchange_ranks.small_model(seed=0)  # stays float32
    found, scaled_rows, *_ = exchange_ranks.train(LAG, model, exchange_ranks.batches(), precision=scaled)
    assert [row["loss_scale"] for row in scaled_rows] == [8, 8, 16, 16, 32]
    for ours, theirs in zip(found, plain, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-7)
    norms, scaled_norms = ([row["grad_norm"] for row in each] for each in (rows, scaled_rows))
    np.testing.assert_allclose(scaled_norms, norms, rtol=1e-5)
    assert norms[0] == 0
