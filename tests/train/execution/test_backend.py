"""Which of TensorFlow and JAX a process takes."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from paths import ROOT

from fcdensenet.config import NetworkConfig
from namsa.base import installation
from namsa.base.errors import InputError
from train.execution import backend
from train.execution.tensorflow import convolves
from train.networks import build
from train.optimization.precision import policy


@pytest.fixture(params=[["tensorflow", "jax"], ["jax"], []], ids=["both", "jax", "none"])
def there(request, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "")  # whatever is set is undone
    monkeypatch.delenv("KERAS_BACKEND")
    monkeypatch.setattr(backend, "_fallen_back", set())
    monkeypatch.setattr(installation, "CHECKOUT", False)
    monkeypatch.setattr(backend, "installed", lambda: request.param)
    monkeypatch.setattr(
        backend, "name", lambda: "tensorflow" if "tensorflow" in request.param else "jax"
    )
    return request.param


def test_tensorflow_is_taken_where_it_is_and_jax_elsewhere(there, monkeypatch):
    if not there:
        with pytest.raises(
            InputError,
            match=r"tensorflow, which is not installed: pip install 'namsa\[reconstruct\]'$",
        ):
            backend.choose()
        return
    backend.choose()
    chosen = {"jax"} if there == ["jax"] else {None}  # Keras takes TensorFlow by itself
    assert {backend.os.environ.get("KERAS_BACKEND")} == chosen


def test_what_is_not_installed_says_what_to_install_or_to_take(there, monkeypatch):
    if there == ["jax"]:
        backend.fall_back()
        with pytest.raises(
            InputError, match="training.backend is tensorflow, which is not installed: .* to jax"
        ):
            backend.choose("tensorflow")
        monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
        with pytest.raises(
            InputError, match="which is not installed: .*, or set KERAS_BACKEND to jax"
        ):
            backend.choose("jax")
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    with pytest.raises(InputError, match="KERAS_BACKEND is torch: set it to tensorflow or jax"):
        backend.choose()


NOTES = [
    "E0000 1] Unable to register cuFFT factory",
    # TensorFlow 2.21
    "I0000 00:00:1795752423.523865    6890 port.cc:153] oneDNN custom operations are on.",
]


@pytest.mark.parametrize(("level", "lines"), [(None, ["a fault"]), ("0", [*NOTES, "a fault"])])
def test_tensorflow_is_imported_without_notes_that_mean_nothing(tmp_path, level, lines):
    written = "\n".join([*NOTES, "a fault", ""]).encode()
    (tmp_path / "tensorflow.py").write_text(f"import os\nos.write(2, {written})\n")
    given = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"} | (
        {} if level is None else {"TF_CPP_MIN_LOG_LEVEL": level}
    )
    environment = {
        name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"
    } | given
    line = [sys.executable, "-c", "import train, tensorflow; print(tensorflow.__name__)"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr.splitlines()) == ("tensorflow\n", lines)


@pytest.mark.slow
def test_channels_first_in_float16_is_channels_last_in_another_order() -> None:
    patterns = np.random.default_rng(3).random((2, 6, 16, 24), np.float32)
    outputs = []
    sizes = {"growth": 8, "first_filters": 8, "kernel": 3, "dropout": 0.0}
    for data_format, axes in (("channels_first", (0, 1, 2, 3)), ("channels_last", (0, 2, 3, 1))):
        keras.utils.clear_session()
        with policy("mixed_float16"):
            config = {
                "input_shape": (6, 16, 24),
                "layers": (1, 2, 1),
                "data_format": data_format,
            } | sizes
            network = build(NetworkConfig.model_validate(config), 1, recompute=True)

        @tf.function
        def differentiated(
            x: tf.Tensor, network: keras.Model = network
        ) -> tuple[tf.Tensor, list[tf.Tensor]]:
            with tf.GradientTape() as tape:
                y = network(x, training=True)
                loss = tf.reduce_sum(tf.square(y))
            return y, tape.gradient(loss, [weight.value for weight in network.trainable_variables])

        y, gradients = differentiated(tf.constant(patterns.transpose(axes)))
        outputs.append([np.squeeze(y), *gradients])
    for first, last in zip(*outputs, strict=True):
        np.testing.assert_allclose(first, last, atol=0.02 * np.abs(last).max())


@pytest.mark.slow
@pytest.mark.skipif(
    bool(tf.config.list_physical_devices("GPU")), reason="a GPU computes every order"
)
def test_what_tensorflow_convolves_depends_on_the_processor() -> None:
    assert convolves("channels_first", "float32")  # tests have TF_ENABLE_ONEDNN_OPTS=1
    code = (
        "from train.execution.tensorflow import convolves\n"
        "print([convolves(f'channels_{first}', 'float32') for first in ('last', 'first')])"
    )
    without = os.environ | {"TF_ENABLE_ONEDNN_OPTS": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=without, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[True, False]\n"
