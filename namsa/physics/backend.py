"""Which arrays and transforms do the work: NumPy with SciPy's FFT, or CuPy with cuFFT.

Nothing is switched globally: a function finds its module from the arrays that it is given.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, Literal

import numpy as np
import scipy.fft

from namsa.errors import InputError

Backend = Literal["auto", "cpu", "cupy"]


def array_module(array: Any) -> Any:
    """numpy or cupy, whichever made `array`."""
    if isinstance(array, np.ndarray):
        return np
    import cupy

    return cupy


def fft_module(array: Any) -> Any:
    """scipy.fft or its CuPy twin, which take the same arguments."""
    if isinstance(array, np.ndarray):
        return scipy.fft
    import cupyx.scipy.fft

    return cupyx.scipy.fft


def to_host(array: Any) -> np.ndarray:
    """A NumPy array of the same values."""
    return array if isinstance(array, np.ndarray) else array.get()


def resolve_backend(backend: Backend) -> Any:
    """The array module for `backend`; 'auto' takes a GPU where CuPy finds one.

    Raises InputError for 'cupy' on a machine without CuPy or without a CUDA device.
    """
    if backend == "cpu":
        return np
    if backend not in ("auto", "cupy"):
        raise InputError(f"backend is {backend!r}; it must be 'auto', 'cpu' or 'cupy'")
    try:
        import cupy

        devices, reason = cupy.cuda.runtime.getDeviceCount(), "CuPy finds no CUDA device"
    except ImportError:
        devices, reason = 0, "CuPy is not installed"
    except Exception as error:  # CuPy raises its own CUDARuntimeError, importable only with a driver
        devices, reason = 0, f"CuPy cannot use CUDA ({error})"
    if devices:
        return cupy
    if backend == "cupy":
        raise InputError(f"backend 'cupy' was asked for, but {reason}: use backend 'cpu', or install the gpu extra")
    return np


def available_cores() -> int:
    """Cores this process may run on, which a batch system's binding can make fewer than the machine has."""
    return len(os.sched_getaffinity(0))


def run_in_batches(
    work: Callable[[slice], None], total: int, size: int, on_host: bool, on_done: Callable[[int, int], None]
) -> None:
    """Calls `work` with slices of at most `size` of `total` things, and `on_done(done, total)` after each.

    On the host in threads, one a core, as NumPy's, SciPy's and the compiled loops release the interpreter's lock; a GPU
    is fed by one. An error or an interrupt ends what has not begun.
    """
    with ThreadPoolExecutor(available_cores() if on_host else 1) as pool:
        parts = (slice(start, min(start + size, total)) for start in range(0, total, size))
        pending = {pool.submit(work, part): part.stop - part.start for part in parts}
        done = 0
        try:
            for future in as_completed(pending):
                future.result()
                done += pending[future]
                on_done(done, total)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
