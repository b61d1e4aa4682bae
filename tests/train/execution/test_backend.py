"""Which of TensorFlow and JAX a process takes."""

import os
import subprocess
import sys

import pytest
import tensorflow as tf
from paths import ROOT

from namsa import installation
from namsa.errors import InputError
from train.execution import backend
from train.execution.tensorflow import check_data_format


@pytest.fixture(params=[["tensorflow", "jax"], ["jax"], []], ids=["both", "jax", "none"])
def there(request, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "")  # whatever is set is undone
    monkeypatch.delenv("KERAS_BACKEND")
    monkeypatch.setattr(backend, "_fallen_back", set())
    monkeypatch.setattr(installation, "CHECKOUT", False)
    monkeypatch.setattr(backend, "installed", lambda: request.param)
    monkeypatch.setattr(backend, "name", lambda: "tensorflow" if "tensorflow" in request.param else "jax")
    return request.param


def test_tensorflow_is_taken_where_it_is_and_jax_elsewhere(there, monkeypatch):
    if not there:
        with pytest.raises(
            InputError, match=r"tensorflow, which is not installed: pip install 'namsa\[reconstruct\]'$"
        ):
            backend.choose()
        return
    backend.choose()
    chosen = {"jax"} if there == ["jax"] else {None}  # Keras takes TensorFlow by itself
    assert {backend.os.environ.get("KERAS_BACKEND")} == chosen


def test_what_is_not_installed_says_what_to_install_or_to_take(there, monkeypatch):
    if there == ["jax"]:
        backend.fall_back()
        with pytest.raises(InputError, match="training.backend is tensorflow, which is not installed: .* to jax"):
            backend.choose("tensorflow")
        monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
        with pytest.raises(InputError, match="which is not installed: .*, or set KERAS_BACKEND to jax"):
            backend.choose("jax")
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    with pytest.raises(InputError, match="KERAS_BACKEND is torch: set it to tensorflow or jax"):
        backend.choose()


@pytest.mark.parametrize(
    ("level", "said"), [(None, ["a fault"]), ("0", ["E0000 1] Unable to register cuFFT factory", "a fault"])]
)
def test_tensorflow_is_imported_without_notes_that_mean_nothing(tmp_path, level, said):
    notes = "E0000 1] Unable to register cuFFT factory"
    (tmp_path / "tensorflow.py").write_text(f"import os\nos.write(2, b'{notes}\\na fault\\n')\n")
    given = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"} | ({} if level is None else {"TF_CPP_MIN_LOG_LEVEL": level})
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"} | given
    line = [sys.executable, "-c", "import train, tensorflow; print(tensorflow.__name__)"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr.splitlines()) == ("tensorflow\n", said)


def test_orders_of_axes_that_the_device_computes_pass() -> None:
    check_data_format("channels_last")
    check_data_format("channels_first")


@pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="a GPU computes every order")
def test_channels_first_is_refused_where_tensorflow_does_not_compute_it() -> None:
    code = (
        "from namsa.errors import InputError\nfrom train.execution.tensorflow import check_data_format\n"
        "check_data_format('channels_last')\n"
        "try:\n    check_data_format('channels_first')\nexcept InputError as error:\n    print(error)"
    )
    without = os.environ | {"TF_ENABLE_ONEDNN_OPTS": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=without, capture_output=True, text=True, check=True)
    assert "set network.data_format to channels_last" in done.stdout
