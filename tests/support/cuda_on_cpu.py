"""The kernels of engines/fused_gpu.cu on a CPU: g++ compiles a GPU's source, cuda_on_cpu.cpp runs it."""

import ctypes
import shutil
import subprocess
import threading
import time
import types
from functools import partial
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


class Array(np.ndarray):
    def get(self, stream=None, out=None, blocking=True):
        assert out is not None
        assert not blocking
        stream.enqueue(lambda: np.copyto(out, self))
        return out


class _Event:
    """What a stream has to do up to a point. It is done when somebody waits for it, and not before."""

    def __init__(self, work):
        self.work, self.lock = work, threading.Lock()

    def synchronize(self, delay_s=0.005):  # a device is late: what is overwritten too early shows
        with self.lock:
            time.sleep(delay_s)
            while self.work:
                self.work.pop(0)()


class Stream:
    current = None

    def __init__(self, graphs, non_blocking=False):
        self.work, self.graph, self.graphs = [], None, graphs

    def __enter__(self):
        self.outer, Stream.current = Stream.current, self
        return self

    def __exit__(self, *exception):
        Stream.current = self.outer

    def enqueue(self, work):
        (self.work if self.graph is None else self.graph.work).append(work)

    def record(self):
        assert self.graph is None
        event, self.work = _Event(self.work), []
        return event

    def wait_event(self, event):
        event.synchronize(0)

    def synchronize(self):
        self.record().synchronize(0)

    def begin_capture(self, mode=None):
        self.graph = _Graph()

    def end_capture(self):
        graph, self.graph = self.graph, None
        self.graphs.append(graph)
        return graph


class _Graph:
    def __init__(self):
        self.work, self.launches = [], 0

    def launch(self, stream=None):
        self.launches += 1
        for work in self.work:
            stream.enqueue(work)


class Error(RuntimeError):
    pass


def fake_cupy(free_bytes, kernels):
    """Returns (cupy, cupyx, launch): stand-ins with NumPy's arrays and streams that are late, as the engines use them.

    `launch` enqueues `kernels`, a `Launch`, on the current stream. Arrays cannot be made while a stream captures.
    `cupy.graphs` are those that were captured.
    """

    def made(array):
        assert Stream.current is None or Stream.current.graph is None
        return array.view(Array)

    def launch(name, probes, *arrays):
        (Stream.current or default).enqueue(lambda: kernels(name, probes, *arrays))

    graphs = []
    default = Stream(graphs)
    pool = types.SimpleNamespace(free_bytes=lambda: 0)
    runtime = types.SimpleNamespace(
        memGetInfo=lambda: (free_bytes, 2 * free_bytes),
        getDevice=lambda: 0,
        cudaDevAttrL2CacheSize=38,
        deviceGetAttribute=lambda attribute, device: {38: 50 * 2**20}[attribute],
        CUDARuntimeError=Error,
    )
    driver = types.SimpleNamespace(CUDADriverError=Error)
    cuda = types.SimpleNamespace(runtime=runtime, driver=driver, Stream=partial(Stream, graphs))
    cuda.get_current_stream = lambda: Stream.current or default
    cupy = types.SimpleNamespace(
        cuda=cuda,
        graphs=graphs,
        get_default_memory_pool=lambda: pool,
        empty=lambda shape, dtype: made(np.full(shape, np.nan, dtype)),
        zeros=lambda shape, dtype: made(np.zeros(shape, dtype)),
        asarray=np.asarray,
        ascontiguousarray=np.ascontiguousarray,
        exp=np.exp,
    )
    return cupy, types.SimpleNamespace(empty_pinned=lambda shape, dtype: np.full(shape, np.nan, dtype)), launch
