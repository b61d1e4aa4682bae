"""Gradients of several batches before one update, against as many ranks and against one larger
batch.
"""

import exchange_training
import keras
import numpy as np
import pytest
import tensorflow as tf
from needs_kind import needs

from train.optimization.gradients import Accumulation
from train.optimization.loop import make_step
from train.optimization.optimizers import LarsAdam
from train.ranks import connection

PARTS = exchange_training.RANKS


@pytest.fixture(scope="module", autouse=True)
def alone():
    connection.start()


def single_samples():
    """The samples of `exchange_training.batches`, one by one."""
    for x, y in exchange_training.batches():
        yield from zip(tf.split(x, PARTS), tf.split(y, PARTS), strict=True)


def assert_same_weights(one, other, tolerance=2e-6):
    for ours, theirs in zip(one.trainable_variables, other.trainable_variables, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=tolerance)


@pytest.mark.parametrize("exchange", [{}, pytest.param({"kind": "lag"}, marks=needs("lag"))])
def test_four_batches_of_one_are_a_batch_of_four(exchange):
    """And so four ranks of one batch each, which `test_reduction` compares with a batch of four."""
    in_parts = exchange_training.small_model(seed=0)
    at_once = exchange_training.small_model(seed=0)
    _, rows, *_ = exchange_training.train(exchange, in_parts, single_samples(), accumulate=PARTS)
    _, wanted, *_ = exchange_training.train(exchange, at_once, exchange_training.batches())
    assert_same_weights(in_parts, at_once)
    for key in ("huber", "l2", "grad_norm"):
        np.testing.assert_allclose(
            [row[key] for row in rows], [row[key] for row in wanted], rtol=1e-5
        )


def test_a_row_counts_all_batches_of_the_step_and_the_rate_is_that_of_as_many_ranks():
    sections = {"accumulate": PARTS, "batch_size": 1, "schedule": {"warmup_epochs": 0}}
    _, rows, *_ = exchange_training.train(
        {}, exchange_training.small_model(), single_samples(), **sections
    )
    for step, row in enumerate(rows, start=1):
        assert row["step"] == step
        assert row["lr"] == pytest.approx(PARTS * exchange_training.RATE)
        assert row["samples_per_s"] == pytest.approx(PARTS / row["step_s"])
        assert row["data_s"] + row["compute_s"] < row["step_s"]


def test_moving_averages_are_those_of_as_many_ranks():
    """Ranks start from the same average, and average what each makes of it."""
    layers = [keras.layers.BatchNormalization(momentum=0.8), keras.layers.Conv2D(1, 1)]
    model = keras.Sequential([keras.Input((6, 8, 2)), *layers])
    config = exchange_training.configured({}, accumulate=2)
    optimizer = LarsAdam(config.optimizer)
    optimizer.build(model.trainable_variables)
    accumulation = Accumulation(model, optimizer, config)
    step = make_step(model, optimizer, config, accumulation=accumulation)
    rng = np.random.default_rng(0)
    x = rng.normal(1, 2, (2, 1, 6, 8, 2)).astype(np.float32)
    y = tf.zeros((1, 6, 8, 2))
    accumulation.add(tf.constant(x[0]), y, tf.constant(1.0))
    np.testing.assert_array_equal(model.layers[0].moving_mean.numpy(), [0, 0])  # until the update
    step(tf.constant(x[1]), y, tf.constant(1e-3), tf.constant(1.0))
    wanted = 0.2 * x.mean(axis=(1, 2, 3)).mean(axis=0)
    np.testing.assert_allclose(model.layers[0].moving_mean.numpy(), wanted, rtol=1e-5)


def test_a_batch_that_is_not_finite_skips_the_whole_update_and_no_other():
    def poisoned():
        for index, (x, y) in enumerate(single_samples()):
            yield (x * np.inf if index == PARTS + 1 else x), y

    def without_the_second():
        for index, pair in enumerate(single_samples()):
            if index // PARTS != 1:
                yield pair

    # The model stays float32: a loss scale of a power of two changes no bit.
    scaled = {
        "accumulate": PARTS,
        "precision": {"compute": "mixed_float16", "initial_loss_scale": 1024.0},
    }
    model = exchange_training.small_model(seed=0)
    wanted = exchange_training.small_model(seed=0)
    _, rows, optimizer, _ = exchange_training.train({}, model, poisoned(), **scaled)
    exchange_training.train(
        {}, wanted, without_the_second(), steps=exchange_training.STEPS - 1, **scaled
    )
    assert [row["loss_scale"] for row in rows] == [1024, 1024, 512, 512, 512]
    assert int(optimizer.iterations) == exchange_training.STEPS - 1
    assert_same_weights(model, wanted, tolerance=1e-7)
