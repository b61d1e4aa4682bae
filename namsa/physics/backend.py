"""Array modules and FFTs: NumPy with SciPy's FFT, or CuPy with cuFFT.

There is no global switch: each function takes the module from its arrays.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from types import ModuleType
from typing import Literal

import numpy as np
import scipy.fft

from namsa.base.errors import InputError
from namsa.base.launcher import usable_cores
from namsa.physics.grid import Array

Backend = Literal["auto", "cpu", "cupy"]


def array_module(array: object) -> ModuleType:
    """Returns numpy or cupy, depending on the type of `array`."""
    if isinstance(array, np.ndarray):
        return np
    import cupy

    return cupy


def fft_module(array: object) -> ModuleType:
    """Returns scipy.fft or cupyx.scipy.fft, which take the same arguments."""
    if isinstance(array, np.ndarray):
        return scipy.fft
    import cupyx.scipy.fft

    return cupyx.scipy.fft


def to_host(array: Array) -> np.ndarray:
    """Returns a NumPy array of the same values; a NumPy array is returned as it is."""
    return array if isinstance(array, np.ndarray) else array.get()


def resolve_backend(backend: Backend) -> ModuleType:
    """Returns the array module of a backend: "cpu", "cupy", or "auto" for a GPU if CuPy finds one.

    Raises:
        InputError: If the backend is unknown, or "cupy" is requested without CuPy or without a CUDA
            device.
    """
    if backend == "cpu":
        return np
    if backend not in ("auto", "cupy"):
        raise InputError(f"backend is {backend!r}; it must be 'auto', 'cpu' or 'cupy'")
    try:
        import cupy

        devices = cupy.cuda.runtime.getDeviceCount()
        reason = "CuPy finds no CUDA device"
    except ImportError:
        devices = 0
        reason = "CuPy is not installed"
    except (
        Exception
    ) as error:  # CuPy raises its own CUDARuntimeError, importable only with a driver
        devices = 0
        reason = f"CuPy cannot use CUDA ({error})"
    if devices:
        return cupy
    if backend == "cupy":
        raise InputError(
            f"backend 'cupy' is not available: {reason}: use backend 'cpu', or install the gpu "
            "extra"
        )
    return np


def free_device_memory() -> None:
    """Gives back the memory of the GPU that CuPy keeps for later arrays, so that other libraries
    can have it.
    """
    cupy = sys.modules.get("cupy")
    if cupy and resolve_backend("auto") is cupy:  # without a device, its pools cannot be asked
        cupy.fft.config.get_plan_cache().clear()
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()


def available_cores() -> int:
    """Returns the number of cores that this process may run on."""
    return len(usable_cores())


def run_in_batches(
    work: Callable[[slice], None],
    total: int,
    size: int,
    on_host: bool,
    on_done: Callable[[int, int], None],
) -> None:
    """Calls `work` for all items, one batch per call, and `on_done(done, total)` after each batch.

    On the host there is one thread per core: NumPy, SciPy and the compiled loops release the
    interpreter's lock. One thread feeds a GPU. After an error or an interrupt no further batch is
    started.
    """
    threads = available_cores() if on_host else 1
    with ThreadPoolExecutor(threads) as pool:
        pending = {}
        for start in range(0, total, size):
            stop = min(start + size, total)
            pending[pool.submit(work, slice(start, stop))] = stop - start
        done = 0
        try:
            for future in as_completed(pending):
                future.result()
                done += pending[future]
                on_done(done, total)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
