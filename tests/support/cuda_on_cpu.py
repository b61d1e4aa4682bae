"""The kernels of engines/fused_gpu.cu on a CPU: g++ compiles a GPU's source, cuda_on_cpu.cpp runs it."""

import ctypes
import shutil
import subprocess
import types
from pathlib import Path

import numpy as np

from namsa.engines import fused_gpu, kernel_plan

SHIM = Path(__file__).with_suffix(".cpp")
COMPILER = shutil.which("g++")


def build(plan, folder):
    """Returns a `Launch` for `plan`; `launch.backwards` runs a block's threads from last to first between barriers."""
    source, library = folder / "kernels.cu", folder / "kernels.so"
    source.write_text(fused_gpu.source(plan), encoding="utf-8")
    options = ("-std=c++17", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", f'-DSOURCE="{source}"')
    subprocess.run([COMPILER, *options, str(SHIM), "-o", str(library)], check=True)
    kernels = ctypes.CDLL(str(library))

    def launch(name, probes, *arrays):
        grid, block, shared_bytes = kernel_plan.geometry(plan, name, probes)
        assert all(array.flags.c_contiguous and array.dtype in (np.complex64, np.float32) for array in arrays)
        pointers = (ctypes.c_void_p(array.ctypes.data) for array in arrays)
        fault = getattr(kernels, f"launch_{name}")(*grid, *block, shared_bytes, launch.backwards, *pointers, probes)
        assert not fault, f"{name}: " + ("threads part at a barrier", "shared memory overrun")[fault - 1]

    launch.backwards = False
    return launch


class _Array(np.ndarray):
    def get(self, stream=None, out=None, blocking=True):
        assert out is not None
        assert not blocking
        out[...] = self
        return out


class _Stream:
    def __init__(self, non_blocking=False):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def record(self):
        return self

    def wait_event(self, event):
        pass

    def synchronize(self):
        pass


def fake_cupy(free_bytes):
    """Returns (cupy, cupyx) stand-ins with NumPy's arrays, as far as `fused_gpu` uses them."""
    pool = types.SimpleNamespace(free_bytes=lambda: 0)
    runtime = types.SimpleNamespace(memGetInfo=lambda: (free_bytes, 2 * free_bytes))
    cuda = types.SimpleNamespace(runtime=runtime, Stream=_Stream, get_current_stream=_Stream)
    cupy = types.SimpleNamespace(
        cuda=cuda,
        get_default_memory_pool=lambda: pool,
        empty=lambda shape, dtype: np.full(shape, np.nan, dtype).view(_Array),
        zeros=lambda shape, dtype: np.zeros(shape, dtype).view(_Array),
        asarray=np.asarray,
        ascontiguousarray=np.ascontiguousarray,
        exp=np.exp,
    )
    return cupy, types.SimpleNamespace(empty_pinned=lambda shape, dtype: np.full(shape, np.nan, dtype))
