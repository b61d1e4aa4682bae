"""Choice of TensorFlow or JAX for this process. Keras takes it from KERAS_BACKEND when it
is imported.
"""

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from namsa.base.errors import InputError
from namsa.base.installation import command

BACKENDS = ("tensorflow", "jax")
_fallen_back = set[str]()  # what `fall_back` has set, which a configuration overrides


def installed() -> list[str]:
    """Returns those that are installed, without importing them."""
    return [name for name in BACKENDS if find_spec(name)]


def fall_back() -> None:
    """Takes JAX where TensorFlow, which is Keras' default, is not installed and nothing is
    chosen.
    """
    if "KERAS_BACKEND" not in os.environ and installed() == ["jax"]:
        os.environ["KERAS_BACKEND"] = "jax"
        _fallen_back.add("jax")


def choose(configured: str | None = None) -> None:
    """Chooses for this process: KERAS_BACKEND, else the configuration, else TensorFlow, else JAX.

    Args:
        configured: training.backend; `None` if the configuration leaves it open.

    Raises:
        InputError: If what is chosen is unknown or not installed, or if this process computes with
            the other already.
    """
    fall_back()
    environment = os.environ.get("KERAS_BACKEND")
    if configured and environment in _fallen_back:
        environment = None
    key = "training.backend"
    chosen = configured or "tensorflow"
    if environment:
        key = "KERAS_BACKEND"
        chosen = environment
    if chosen not in BACKENDS:
        raise InputError(f"{key} is {chosen}: set it to {' or '.join(BACKENDS)}")
    others = installed()
    if chosen not in others:
        other = f", or set {key} to {others[0]}" if others else ""
        raise InputError(f"{key} is {chosen}, which is not installed: {command(chosen)}{other}")
    if "keras" in sys.modules and name() != chosen:
        raise InputError(
            f"{key} is {chosen}, and this process computes with {name()} already: set "
            f"KERAS_BACKEND={chosen} before Python starts"
        )
    if configured and not environment:
        os.environ["KERAS_BACKEND"] = chosen


def name() -> str:
    """Returns "tensorflow" or "jax". Imports Keras."""
    import keras

    return str(keras.backend.backend())


def execution() -> ModuleType:
    """Returns the module of what computes here, `train.execution.tensorflow` or
    `train.execution.jax`.
    """
    return import_module(f".{name()}", __package__)
