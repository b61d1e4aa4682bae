"""Which of TensorFlow and JAX a process takes."""

import pytest

from namsa import installation
from namsa.errors import InputError
from train.execution import backend


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
