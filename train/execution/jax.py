"""Execution by JAX: processes with one or more devices each, over which a batch is divided."""

import os
from collections.abc import Callable, Sequence

from namsa.base.arrays import Array, Tensor

# JAX reads it when it starts a GPU. A simulator may use the same card.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import keras
import numpy as np

from namsa.base.launcher import usable_cores
from namsa.base.text import plural


def claim(local_rank: int, local_size: int) -> str:
    """Returns the devices of this process in words. Alone it keeps all cores of the machine;
    `train.ranks.jax_processes` has bound it to its share before JAX started.
    """
    devices = jax.local_devices()
    if devices[0].platform == "cpu":
        cores = plural(len(usable_cores()), "CPU core")
        if len(devices) == 1:
            return cores
        return f"{len(devices)} JAX devices of {cores}"
    name = devices[0].device_kind
    return name if len(devices) == 1 else f"{len(devices)} × {name}"


def has_gpu() -> bool:
    """Returns whether a GPU computes."""
    return jax.default_backend() == "gpu"


def convolves(data_format: str, policy: str) -> bool:
    """Returns True: XLA computes all orders of axes, on processors and GPUs."""
    return True


def compile_layers(network: keras.Model, data_format: str) -> None:
    """Does nothing: XLA compiles whole functions."""


def host_tensor(array: Array) -> Array:
    """Returns the array itself, which JAX reads where it is or copies to its device."""
    return array


def compiled(
    function: Callable[..., Tensor],
    variables: Sequence[keras.Variable] = (),
    shape: tuple[int | None, ...] | None = None,
) -> Callable[..., Tensor]:
    """Returns `function` compiled by XLA, once per shape of its arguments.

    Args:
        variables: That it reads, as those of a network. It may set them.
        shape: Of its one argument, of any length along the first axis, which is that of its
            results, too. The argument is padded to a power of two, so that few lengths are
            compiled.
    """
    changed: list[int] = []

    @jax.jit
    def pure(values: Sequence[Tensor], *arguments: Tensor) -> tuple[Tensor, list[Tensor]]:
        with keras.StatelessScope(list(zip(variables, values, strict=True))) as scope:
            results = function(*arguments)
        changed.clear()
        new_values = []
        for index, variable in enumerate(variables):
            value = scope.get_current_value(variable)
            if value is not values[index]:
                changed.append(index)
                new_values.append(value)
        return results, new_values

    def call(*arguments: Tensor) -> Tensor:
        results, news = pure([variable.value for variable in variables], *arguments)
        for index, new in zip(changed, news, strict=True):
            variables[index].assign(new)
        return results

    def padded(array: Tensor) -> Tensor:
        count = len(array)
        size = 1 << (count - 1).bit_length()
        results = call(np.concatenate([array, np.repeat(array[-1:], size - count, axis=0)]))
        return jax.tree.map(lambda result: result[:count], results)

    return call if shape is None else padded


def versions() -> dict[str, str]:
    """Returns the versions of what computes, by its names."""
    return {"jax": jax.__version__, "keras": keras.__version__}


def peak_memory_mib() -> float | None:
    """Returns the largest memory that this process's first device has used so far, MiB; `None` on
    processors.
    """
    statistics = jax.local_devices()[0].memory_stats()
    return statistics["peak_bytes_in_use"] / 2**20 if statistics else None
