"""The autoencoder's parts, its draws, and its loss against integrals."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.integrate import quad
from scipy.stats import norm

from train.networks import build
from train.networks.cvae import CVAEConfig, decoder, losses

CONFIG = CVAEConfig(input_shape=(1, 6, 9), filters=(4, 5), hidden=8, latent=3)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((4, 6, 9, 1), dtype=np.float32)


@pytest.fixture(scope="module")
def model():
    return build(CONFIG, seed=1)


def test_the_decoder_apart_decodes_as_the_whole_with_its_weights(model, images):
    decoded, mean, _ = model(images)
    np.testing.assert_allclose(decoder(model)(mean), decoded, rtol=1e-5, atol=1e-6)
    assert decoder(model)(np.zeros((2, 3), np.float32)).shape == (2, 6, 9, 1)
    decoding = {id(variable) for variable in decoder(model).trainable_variables}
    assert decoding < {id(variable) for variable in model.trainable_variables}


def test_draws_follow_from_the_seed(images):
    def draws(seed):
        model = build(CONFIG, seed)
        return [np.asarray(model(images, training=True)[0]) for _ in range(2)]

    one = draws(1)
    same = draws(1)
    other = draws(2)
    np.testing.assert_array_equal(one, same)
    assert np.abs(one[0] - one[1]).max() > 0
    assert np.abs(one[0] - other[0]).max() > 0


def test_draws_have_the_distribution_of_the_encoder(model):
    sample = model.get_layer("sample")
    mean = np.full((20_000, 2), 0.5, np.float32)
    log_variance = np.full((20_000, 2), np.log(4.0), np.float32)
    drawn = np.asarray(sample([mean, log_variance], training=True))
    assert drawn.mean() == pytest.approx(0.5, abs=0.05)
    assert drawn.std() == pytest.approx(2.0, rel=0.02)
    np.testing.assert_array_equal(sample([mean, log_variance], training=False), mean)


def test_divergence_is_the_integral_that_defines_it():
    mean = 0.7
    variance = 0.3
    integral, _ = quad(
        lambda z: (
            norm.pdf(z, mean, variance**0.5)
            * (norm.logpdf(z, mean, variance**0.5) - norm.logpdf(z))
        ),
        -8,
        8,
    )
    zeros = np.zeros((2, 6, 9, 1), np.float32)
    moments = np.full((2, 3), mean, np.float32), np.full((2, 3), np.log(variance), np.float32)
    assert float(losses(zeros, zeros, *moments)[1]) == pytest.approx(3 * integral, rel=1e-5)


def test_root_is_of_each_image(images):
    moments = np.zeros((4, 3), np.float32), np.zeros((4, 3), np.float32)
    decoded = images + np.array([0.1, 0.2, 0.3, 0.4], np.float32)[:, None, None, None]
    root, divergence = losses(images, decoded, *moments)
    assert float(root) == pytest.approx(0.25, rel=1e-5)
    assert float(divergence) == 0


def test_training_lowers_the_loss_and_orders_the_latent_space(model):
    """Images of one bright row each: after training, the decoded image of each is nearest to
    itself.
    """
    rows = np.repeat(np.eye(6, dtype=np.float32)[:, :, None, None], 9, axis=2)
    network = build(CONFIG.model_copy(update={"hidden": 32}), seed=0)
    optimizer = keras.optimizers.Adam(3e-3)
    optimizer.build(network.trainable_variables)

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            root, divergence = losses(rows, *network(rows, training=True))
            loss = root + 1e-3 * divergence
        gradients = tape.gradient(
            loss, [variable.value for variable in network.trainable_variables]
        )
        optimizer.apply(gradients, network.trainable_variables)
        return root

    first_loss = float(step())
    for _ in range(150):
        last_loss = float(step())
    assert last_loss < 0.5 * first_loss
    decoded = np.asarray(network(rows)[0])
    distances = np.square(decoded[:, None] - rows[None]).sum((2, 3, 4))
    assert list(distances.argmin(axis=1)) == list(range(6))
