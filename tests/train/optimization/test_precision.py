"""Loss scales and arithmetic with fewer bits, on optimizers alone; in a step they are in
`test_loop`.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from train.experiment.sections import Training
from train.optimization import precision
from train.optimization.optimizers import LarsAdam


def logmax(initial=2.0**15):
    """A LogMax optimizer over one variable of two numbers, and a step with given scaled
    gradients.
    """
    training = Training.model_validate(
        {
            "epochs": 1,
            "optimizer": {"learning_rate": 1e-3, "lars": "none"},
            "precision": {
                "compute": "mixed_float16",
                "loss_scaling": "logmax",
                "initial_loss_scale": initial,
            },
        }
    )
    optimizer = precision.with_loss_scale(LarsAdam(training.optimizer), training)
    variable = keras.Variable(np.array([1.0, 2.0], np.float32))
    optimizer.build([variable])

    @tf.function(autograph=False)
    def step(gradient):
        optimizer.apply([gradient], [variable])
        return tf.identity(optimizer.dynamic_scale.value)

    return optimizer, variable, lambda *gradient: float(step(tf.constant(gradient, tf.float32)))


def reference(largest):
    """OpenSeq2Seq's automatic_loss_scaler.LogMaxScaler in NumPy, float64: the scale after each
    largest gradient.
    """
    fast = slow = square = 0.0
    for count, value in enumerate(largest, start=1):
        x = np.log2(value)
        fast = 0.99 * fast + 0.01 * x
        slow = 0.999 * slow + 0.001 * x
        square = 0.999 * square + 0.001 * x * x
        mean = fast / (1 - 0.99**count)
        variance = square / (1 - 0.999**count) - (slow / (1 - 0.999**count)) ** 2
        yield float(np.clip(2 ** (16 - mean - 3.09 * np.sqrt(max(variance, 0))), 1, 2**24))


def test_logmax_is_openseq2seqs():
    rng = np.random.default_rng(3)
    largest = 2 ** rng.normal(-4, 2, 60)
    _, _, step = logmax()
    scale = 2.0**15
    scales = []
    for value in largest:
        scale = step(-value * scale, 0.1 * value * scale)
        scales.append(scale)
    np.testing.assert_allclose(
        scales, list(reference(largest)), rtol=0.05
    )  # a variance of float32 differences


@pytest.mark.parametrize("poison", [np.inf, -np.inf, np.nan])
def test_logmax_skips_what_is_not_finite_and_lowers_the_scale(poison):
    optimizer, variable, step = logmax()
    for _ in range(20):
        before = step(3.0, 1.0)
    weights = variable.numpy()
    moments = [v.numpy() for v in optimizer.inner_optimizer.variables]
    after = step(poison, 1.0)
    assert after <= before / 2
    np.testing.assert_array_equal(variable.numpy(), weights)
    for variable_, value in zip(optimizer.inner_optimizer.variables, moments, strict=True):
        np.testing.assert_array_equal(variable_.numpy(), value)
    assert int(optimizer.iterations) == 20


def test_logmax_learns_nothing_from_a_gradient_of_zeros():
    _, _, step = logmax()
    before = step(3.0, 1.0)
    assert step(0.0, 0.0) == before


def test_logmax_leaves_room_for_the_sum_of_many_ranks():
    training = Training.model_validate(
        {"epochs": 1, "precision": {"loss_scaling": "logmax"}, "exchange": {"compression": "fp16"}}
    )
    for ranks, log_max in ((1, 16), (2, 15), (4, 15), (27_600, 16 - np.log2(27_600 / 128))):
        optimizer = precision.with_loss_scale(LarsAdam(training.optimizer), training, ranks)
        assert optimizer.log_max == pytest.approx(log_max)
    statistics = precision.log_max_statistics(tf.zeros(4), tf.constant(-3.0))
    assert float(precision.log_max_scale(statistics, 12.0)) == pytest.approx(2.0**15, rel=1e-3)


@pytest.mark.parametrize("loss_scaling", ["backoff", "logmax"])
def test_loss_scales_are_at_hand_only_where_gradients_are_float16_also_on_the_wire(loss_scaling):
    given = {"epochs": 1, "precision": {"loss_scaling": loss_scaling}}
    training = Training.model_validate(given)
    plain = LarsAdam(training.optimizer)
    assert precision.with_loss_scale(plain, training) is plain
    wired = precision.with_loss_scale(
        plain, Training.model_validate(given | {"exchange": {"compression": "fp16"}})
    )
    assert isinstance(wired, keras.optimizers.LossScaleOptimizer)


def dense(policy):
    keras.utils.set_random_seed(5)
    with precision.policy(policy):
        model = keras.Sequential(
            [keras.Input((7,)), keras.layers.Dense(5, activation="relu"), keras.layers.Dense(1)]
        )
    return model


@pytest.mark.parametrize(("policy", "digits"), [("mixed_bfloat16", 8), ("mixed_float16", 11)])
def test_master_weights_are_float32_and_computation_is_not(policy, digits):
    """A step far below the spacing of the short numbers is not lost; the network's answers have
    only their digits.
    """
    global_policy = keras.config.dtype_policy()
    exact = dense("float32")
    short = dense(policy)
    assert keras.config.dtype_policy() == global_policy
    assert {variable.dtype for variable in short.variables} == {"float32"}
    assert short.layers[0].compute_dtype == policy.removeprefix("mixed_")
    x = np.random.default_rng(6).normal(size=(32, 7)).astype(np.float32)
    np.testing.assert_allclose(short(x), exact(x), atol=4 * 2.0**-digits)
    assert np.abs(np.asarray(short(x), np.float32) - exact(x)).max() > 0

    weight = short.layers[0].kernel
    training = Training.model_validate(
        {"epochs": 1, "optimizer": {"learning_rate": 1e-7, "lars": "none"}}
    )
    optimizer = LarsAdam(training.optimizer)
    optimizer.build([weight])
    initial = weight.numpy()
    optimizer.apply([tf.ones_like(weight.value)], [weight])
    moved = initial - weight.numpy()
    large = np.abs(initial) < 0.5
    np.testing.assert_allclose(moved[large], 1e-7, atol=3e-8)
