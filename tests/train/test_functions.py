"""A network, a loss, an optimizer and a schedule of other people's code, named by a
configuration.
"""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiny import numbers, write_config

from namsa import InputError
from namsa.base import registry
from train.__main__ import main as command
from train.experiment.experiment import load
from train.experiment.functions import allow_functions
from train.main import train
from train.networks import build, count
from train.optimization import checkpoint
from train.optimization.loop import learning_rate
from train.optimization.losses import DensityObjective
from train.optimization.optimizers import make_optimizer

CODE = """
import keras
from keras import ops


def network(layers, section):
    x = layers.input("patterns")
    filters = section.arguments["filters"]
    y = layers.relu(layers.conv(x, filters, 3, "first"), "first_relu")
    return x, layers.output(layers.conv(y, section.output_channels, 1, "last"), "density")


def loss(prediction, target):
    return ops.mean(ops.abs(prediction - target) ** 1.5)


def optimizer(section):
    return keras.optimizers.Nadam(section.learning_rate)


def schedule(epochs, base_rate, ranks):
    return base_rate / (1 + epochs)


def wrong(*arguments):
    return "nothing"
"""


@pytest.fixture(autouse=True)
def nothing_is_allowed(monkeypatch):
    monkeypatch.setattr(registry, "_allowed", set())


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    path = tmp_path_factory.mktemp("code") / "mine.py"
    path.write_text(CODE)
    return path


@pytest.fixture(scope="module")
def config(code, tmp_path_factory):
    """The tiny job, with all that a configuration may name."""
    folder = tmp_path_factory.mktemp("job")
    plain = load(write_config(folder))
    training = plain.training.model_dump(mode="json")
    training |= {
        "epochs": 2,
        "loss": {"kind": "function", "function": f"{code}:loss"},
        "optimizer": {
            "kind": "function",
            "function": f"{code}:optimizer",
            "learning_rate": 0.01,
        },
        "schedule": {"rule": "function", "function": f"{code}:schedule"},
    }
    network = {
        "kind": "function",
        "function": f"{code}:network",
        "arguments": {"filters": 5},
        "input_shape": list(plain.network.input_shape),
    }
    return write_config(folder, network=network, training=training)


@pytest.mark.slow
def test_the_network_is_built_and_counted_by_one_function(config):
    experiment = load(config)
    allow_functions(experiment)
    model = build(experiment.network, seed=1)
    assert count(experiment.network).parameters == model.count_params()
    channels = experiment.network.input_shape[0]
    assert model.count_params() == channels * 9 * 5 + 5 + 5 + 1


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_a_job_trains_with_them_and_its_run_names_them(config, code, tmp_path, capsys, monkeypatch):
    run = tmp_path / "run"
    train(config, run_dir=run)
    rows = numbers(run)
    for row in rows:
        assert np.isfinite(row["function"])
    steps = len(rows) // 2
    rates = [0.01 / (1 + step / steps) for step in range(len(rows))]
    assert [row["lr"] for row in rows] == pytest.approx(rates, rel=1e-5)
    newest = max((run / "checkpoints").glob("step-*.npz"))
    variables = checkpoint.read_header(newest)["variables"]
    assert any(name.startswith("nadam/") for name in variables)

    registry._allowed.clear()  # as in another process: the run's configuration is data
    with pytest.raises(InputError, match=r"network.function is .*mine.py:network, code that a sto"):
        train(run / "config.yaml", (), run, True)
    names = ",".join(f"{code}:{name}" for name in ("network", "loss", "optimizer", "schedule"))
    monkeypatch.setenv("NAMSA_FUNCTIONS", names)
    train(run / "config.yaml", (), run, True)
    assert json.loads((run / "evaluation.json").read_text())["mean"]["huber"] > 0


@pytest.mark.slow
def test_functions_that_give_something_else_are_refused(config, code):
    for change, use, message in (
        (
            f"training.optimizer.function={code}:wrong",
            lambda training: make_optimizer(training.optimizer),
            "gives a str: an optimizer of Keras is needed",
        ),
        (
            f"training.schedule.function={code}:wrong",
            lambda training: learning_rate(training.schedule, 0.1, 1, 0.5),
            "gives the rate 'nothing' after 0.5 epochs",
        ),
        (
            f"training.loss.function={code}:absent",
            lambda training: DensityObjective(training.loss)(0, 0, 0),
            "which cannot be imported: .* has no absent",
        ),
        (
            "training.loss.function=no.such.module:loss",
            lambda training: DensityObjective(training.loss)(0, 0, 0),
            "which cannot be imported: No module named 'no'",
        ),
    ):
        experiment = load(config, [change])
        allow_functions(experiment)
        with pytest.raises(InputError, match=message):
            use(experiment.training)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("training.loss.kind=huber", "has no effect with kind huber: leave it out"),
        ("training.optimizer.function=null", "kind function needs function"),
        ("training.schedule.decay=0.3", "decay 0.3 has no effect with rule function"),
        ("training.loss.function=loss", "function: must have the form"),
        ("network.function=null", "network.function: a value is needed"),
        ("training.exchange={kind: sharded}", "does not go with exchange.kind sharded"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_work(config, change, message):
    with pytest.raises(InputError) as caught:
        load(config, [change])
    assert message in str(caught.value)


@pytest.mark.slow
def test_a_dry_run_allows_what_the_command_names(config, capsys):
    assert command([str(config), "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] > 0


@pytest.mark.slow
def test_a_loss_is_given_float32_and_gives_a_scalar(config):
    experiment = load(config)
    allow_functions(experiment)
    objective = DensityObjective(experiment.training.loss)
    assert objective.terms == ("function",)
    prediction = tf.constant(np.full((1, 3, 4, 1), 4.0), tf.float16)
    (value,) = objective(prediction, tf.zeros((1, 3, 4, 1)), tf.constant(0.0))
    assert value.dtype == "float32"
    assert float(value) == pytest.approx(8.0)


@pytest.mark.slow
def test_an_optimizer_of_keras_is_taken_as_it_is(config):
    experiment = load(config)
    allow_functions(experiment)
    assert type(make_optimizer(experiment.training.optimizer)) is keras.optimizers.Nadam
