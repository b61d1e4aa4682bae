"""Measures the rate of Fourier transforms alone for simulate_vs_abtem.py: the limit of a full
multislice.

Reads one JSON job per line ("library": mkl or scipy, "shape", "threads") and answers each with one
JSON line: complex64 transforms per second, forward and inverse in turn, in place, one wave per
thread. MKL is called directly, with rows padded by a cache line, which was the fastest way that was
tried.
"""

import ctypes
import json
import sys
import threading
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np
import scipy.fft

SECONDS = 1.0
PAD = 8
# from mkl_dfti.h
SINGLE = 35
COMPLEX = 32
INPUT_STRIDES = 12
OUTPUT_STRIDES = 13


def mkl_pair(shape: tuple[int, int]) -> Callable[[], None]:
    """A function that transforms a wave there and back."""
    file = next(
        path for path in metadata.files("mkl") or () if path.name.startswith("libmkl_rt.so")
    )
    library = ctypes.CDLL(str(file.locate()))
    handle = ctypes.c_void_p()
    strides = (ctypes.c_long * 3)(0, shape[1] + PAD, 1)
    failed = [
        library.DftiCreateDescriptor(
            ctypes.byref(handle), SINGLE, COMPLEX, ctypes.c_long(2), (ctypes.c_long * 2)(*shape)
        ),
        library.DftiSetValue(handle, INPUT_STRIDES, strides),
        library.DftiSetValue(handle, OUTPUT_STRIDES, strides),
        library.DftiCommitDescriptor(handle),
    ]
    if any(failed):
        raise RuntimeError(f"MKL refuses the transform: {failed}")
    wave = np.zeros((shape[0], shape[1] + PAD), np.complex64)

    def pair() -> None:
        library.DftiComputeForward(handle, ctypes.c_void_p(wave.ctypes.data))
        library.DftiComputeBackward(handle, ctypes.c_void_p(wave.ctypes.data))

    return pair


def scipy_pair(shape: tuple[int, int]) -> Callable[[], None]:
    wave = np.zeros(shape, np.complex64)

    def pair() -> None:
        scipy.fft.ifft2(scipy.fft.fft2(wave, overwrite_x=True), overwrite_x=True)

    return pair


def rate(job: dict[str, Any]) -> float:
    make = {"mkl": mkl_pair, "scipy": scipy_pair}[job["library"]]
    pairs = []
    for _ in range(job["threads"]):
        pairs.append(make(tuple(job["shape"])))
    done = [0] * len(pairs)
    for pair in pairs:
        pair()
    start = time.perf_counter()

    def work(i: int) -> None:
        while time.perf_counter() < start + SECONDS:
            pairs[i]()
            done[i] += 2

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(pairs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - start)


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps({"transforms_per_s": rate(json.loads(line))}), flush=True)
