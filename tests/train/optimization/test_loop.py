import keras
import numpy as np
import pytest
import tensorflow as tf

from namsa.base.errors import WorkError
from train.experiment.sections import Schedule, Training
from train.optimization import precision
from train.optimization.loop import EpochPlan, learning_rate, make_step, rate_factor, train_epoch
from train.optimization.losses import kernels
from train.optimization.optimizers import LarsAdam
from train.ranks import connection

KEYS = (
    "step epoch loss huber l2 delta lr loss_scale grad_norm step_s data_s comm_s compute_s misc_s "
    "samples_per_s"
)


@pytest.fixture(scope="module", autouse=True)
def alone():
    connection.start()


def training(**sections):
    return Training.model_validate(
        {"epochs": 3, "optimizer": {"learning_rate": 1e-2, "lars": "none"}} | sections
    )


def job(config):
    keras.utils.set_random_seed(1)
    with precision.policy(config.precision.compute):
        layers = keras.layers
        model = keras.Sequential(
            [
                keras.Input((6, 8, 2)),
                layers.Conv2D(4, 3, padding="same", activation="relu"),
                layers.BatchNormalization(momentum=0.8),
                layers.Conv2D(1, 1),
            ]
        )
        optimizer = precision.with_loss_scale(LarsAdam(config.optimizer), config)
        optimizer.build(model.trainable_variables)
    return model, optimizer, make_step(model, optimizer, config)


def batches(count, size=2, poison=None):
    rng = np.random.default_rng(2)
    for index in range(count):
        x = rng.normal(size=(size, 6, 8, 2)).astype(np.float32)
        y = (x[..., :1] - 0.5 * x[..., 1:]) ** 2
        if index == poison:
            x[0, 0, 0, 0] = np.inf
        yield tf.constant(x), tf.constant(y)


def run(config, steps, epoch=0, first=1, poison=None):
    model, optimizer, step = job(config)
    plan = EpochPlan(epoch, first, steps, ranks=1)
    return list(train_epoch(step, batches(steps, poison=poison), config, plan)), model, optimizer


def test_a_row_has_what_the_file_promises_and_adds_up():
    config = training(
        batch_size=2, loss={"l2": 0.01}, schedule={"warmup_epochs": 0, "decay_every_epochs": 1}
    )
    rows, *_ = run(config, 3, epoch=2, first=11)
    for row in rows:
        assert list(row) == KEYS.split()
    assert [row["step"] for row in rows] == [11, 12, 13]
    for row in rows:
        assert row["loss"] == pytest.approx(row["huber"] + row["l2"])
        assert row["delta"] == pytest.approx(10 * 0.99**2)
        assert row["lr"] == pytest.approx(1e-2 * 0.5**2)
        assert 0 <= row["comm_s"] < row["step_s"]
        assert 0 <= row["data_s"] < row["step_s"]
        assert row["samples_per_s"] == pytest.approx(2 / row["step_s"])


def test_a_step_reads_the_clock_before_it_uses_its_inputs():
    _, _, step = job(training())
    x, y = next(batches(1))
    graph = step.get_concrete_function(x, y, tf.constant(1e-2), tf.constant(1.0)).graph
    operations = graph.get_operations()
    inputs = graph.inputs[0].name
    clock = next(operation for operation in operations if operation.type == "Timestamp")
    (used,) = [
        operation
        for operation in operations
        if inputs in [tensor.name for tensor in operation.inputs]
    ]
    assert [operation.name for operation in used.control_inputs] == [clock.name]


def test_the_numbers_are_those_of_the_formulas():
    config = training(loss={"l2": 0.3, "huber_delta": 0.7})
    model, _, step = job(config)
    x, y = next(batches(1))
    error = model(x, training=True).numpy() - y.numpy()
    size = np.abs(error)
    huber = np.mean(np.where(size <= 0.7, size**2 / 2, 0.7 * (size - 0.35)))
    with tf.GradientTape() as tape:
        size = tf.abs(model(x, training=True) - y)
        inner = tf.minimum(size, 0.7)
        loss = tf.reduce_mean(inner * (size - inner / 2))
        l2 = 0.15 * sum(tf.reduce_sum(w.value**2) for w in kernels(model.trainable_variables))
        total = loss + l2
    norm = tf.linalg.global_norm(tape.gradient(total, [w.value for w in model.trainable_variables]))
    result = step(x, y, tf.constant(1e-2), tf.constant(0.7)).numpy()
    np.testing.assert_allclose(result[:4], [huber, l2, 1.0, norm], rtol=1e-5)


def test_the_rate_of_the_schedule_is_the_rate_that_is_used():
    config = training(optimizer={"learning_rate": 1e-2, "lars": "none"}, loss={"l2": 0.0})
    model, _, step = job(config)
    initial = [w.numpy() for w in model.trainable_variables]
    x, y = next(batches(1))
    step(x, y, tf.constant(3e-4), tf.constant(10.0))
    moved = np.concatenate(
        [
            np.abs(w.numpy() - b).ravel()
            for w, b in zip(model.trainable_variables, initial, strict=True)
        ]
    )
    assert moved.max() == pytest.approx(3e-4, rel=1e-3)  # Adam's first step


def test_without_a_loss_scale_an_infinity_ends_the_job():
    with pytest.raises(WorkError, match="diverged at step 5"):
        run(training(), 6, first=3, poison=2)


def test_with_a_loss_scale_an_infinity_is_skipped_and_the_scale_halved():
    config = training(
        precision={"compute": "mixed_float16", "initial_loss_scale": 1024.0, "growth_steps": 4}
    )
    rows, _, optimizer = run(config, 9, poison=2)
    assert [row["loss_scale"] for row in rows] == [1024, 1024, 1024, 512, 512, 512, 512, 1024, 1024]
    assert not np.isfinite(rows[2]["grad_norm"])
    assert int(optimizer.iterations) == 8
    assert np.isfinite(rows[-1]["loss"])


def test_a_skipped_step_leaves_weights_and_moments():
    config = training(precision={"compute": "mixed_float16"})
    model, optimizer, step = job(config)
    x, y = next(batches(1))
    step(x, y, tf.constant(1e-2), tf.constant(10.0))
    state = [*model.variables, *optimizer.inner_optimizer.variables]
    values = [variable.numpy() for variable in state]
    step(x * np.inf, y, tf.constant(1e-2), tf.constant(10.0))
    for variable, value in zip(state, values, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_half_precision_reports_and_takes_the_unscaled_gradient():
    exact, _, _ = run(training(loss={"l2": 0.0}), 1)
    half, _, _ = run(training(loss={"l2": 0.0}, precision={"compute": "mixed_float16"}), 1)
    assert half[0]["loss_scale"] == 2**15
    assert half[0]["grad_norm"] == pytest.approx(exact[0]["grad_norm"], rel=1e-2)


def test_a_scale_that_cannot_fall_further_ends_the_job():
    config = training(precision={"compute": "mixed_float16", "initial_loss_scale": 1.0})
    with pytest.raises(WorkError, match="diverged at step 1"):
        run(config, 1, poison=0)


def test_warms_up_linearly_from_one_rank_to_all_then_steps_down():
    schedule = Schedule(warmup_epochs=4, decay=0.1, decay_every_epochs=10)
    rates = {}
    for epochs in (0, 1, 2, 4, 9.99, 10, 25):
        rates[epochs] = learning_rate(schedule, 1e-3, 8, epochs)
    expected = {0: 1e-3, 1: 2.75e-3, 2: 4.5e-3, 4: 8e-3, 9.99: 8e-3, 10: 8e-4, 25: 8e-5}
    assert rates == pytest.approx(expected, rel=1e-12)
    assert learning_rate(Schedule(warmup_epochs=0), 1e-3, 6, 0) == pytest.approx(6e-3)
    assert learning_rate(Schedule(), 1e-3, 1, 0) == learning_rate(Schedule(), 1e-3, 1, 20) == 1e-3
    assert learning_rate(Schedule(scale_with_ranks=False), 1e-3, 64, 20) == 1e-3


def test_many_ranks_have_the_root_of_their_number():
    factors = []
    for ranks in (1, 2, 7, 8, 9, 48, 64, 256, 2048, 27_600):
        factors.append(rate_factor(Schedule(), ranks))
    assert factors == [
        1,
        2,
        7,
        8,
        8,
        8,
        8,
        16,
        pytest.approx(45.25, rel=1e-3),
        pytest.approx(166.1, rel=1e-3),
    ]
    assert rate_factor(Schedule(linear_up_to=10**5), 27_600) == 27_600  # the paper's
    assert rate_factor(Schedule(scale_with_ranks=False), 27_600) == 1
    assert learning_rate(Schedule(warmup_epochs=0), 5e-4, 2048, 0) == pytest.approx(
        0.02263, rel=1e-3
    )


def test_a_linear_decay_ends_at_a_hundredth_after_100_of_130_epochs():
    """Oyama et al. 2020, section 4: to 0.01 of the initial rate in 100 epochs; they train for
    130.
    """
    schedule = Schedule(rule="linear", decay=0.01, decay_every_epochs=100, warmup_epochs=0)
    rates = [learning_rate(schedule, 2e-3, 1, epochs) for epochs in (0, 25, 50, 99.5, 100, 130)]
    assert rates == pytest.approx([2e-3, 1.505e-3, 1.01e-3, 2.99e-5, 2e-5, 2e-5], rel=1e-12)
    warmed = schedule.model_copy(update={"warmup_epochs": 10})
    assert learning_rate(warmed, 2e-3, 4, 5) == pytest.approx(5e-3 * (1 - 0.99 * 0.05), rel=1e-12)


def test_a_cosine_decay_falls_slowly_then_fast_then_slowly_and_stays():
    schedule = Schedule(rule="cosine", warmup_epochs=0, decay=0.1, decay_every_epochs=40)
    rates = {epoch: learning_rate(schedule, 2.0, 1, epoch) for epoch in (0, 10, 20, 30, 40, 90)}
    assert rates[0] == 2.0
    assert rates[20] == pytest.approx(2.0 * 0.55)
    assert rates[10] + rates[30] == pytest.approx(2 * rates[20])
    assert rates[10] == pytest.approx(2.0 * (1 - 0.9 * (1 - np.cos(np.pi / 4)) / 2))
    assert rates[40] == pytest.approx(0.2)
    assert rates[90] == pytest.approx(0.2)
