"""The kernels of engines/fused_gpu.cu on a CPU: g++ compiles a GPU's source, cuda_on_cpu.cpp runs
it.
"""

import ctypes
import shutil
import subprocess
import threading
import time
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from namsa.engines import fused_gpu, kernel_plan
from namsa.engines.fused_gpu import Launch

SHIM = Path(__file__).with_suffix(".cpp")
COMPILER = shutil.which("g++")
Work = Callable[[], object]


def build(plan: kernel_plan.KernelPlan, folder: Path) -> "Kernels":
    """Returns the compiled kernels of `plan`."""
    source = folder / "kernels.cu"
    library = folder / "kernels.so"
    source.write_text(fused_gpu.source(plan), encoding="utf-8")
    options = ("-std=c++17", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", f'-DSOURCE="{source}"')
    assert COMPILER is not None
    subprocess.run([COMPILER, *options, str(SHIM), "-o", str(library)], check=True)
    return Kernels(plan, library)


class Kernels:
    """The kernels of a compiled plan, as a `Launch`.

    Attributes:
        backwards: Whether a block's threads run from last to first between barriers.
    """

    def __init__(self, plan: kernel_plan.KernelPlan, library: Path) -> None:
        self._plan = plan
        self._library = ctypes.CDLL(str(library))
        self.backwards = False

    def __call__(self, name: str, probes: int, *arrays: npt.NDArray[Any]) -> None:
        grid, block, shared_bytes = kernel_plan.geometry(self._plan, name, probes)
        for array in arrays:
            assert array.flags.c_contiguous
            assert array.dtype in (np.complex64, np.float32)
        pointers = (ctypes.c_void_p(array.ctypes.data) for array in arrays)
        fault = getattr(self._library, f"launch_{name}")(
            *grid, *block, shared_bytes, self.backwards, *pointers, probes
        )
        assert not fault, (
            f"{name}: " + ("threads part at a barrier", "shared memory overrun")[fault - 1]
        )


class Array(np.ndarray):
    def get(
        self,
        stream: "Stream | None" = None,
        out: npt.NDArray[Any] | None = None,
        blocking: bool = True,
    ) -> npt.NDArray[Any]:
        assert out is not None
        assert not blocking
        assert stream is not None
        stream.enqueue(lambda: np.copyto(out, self))
        return out


class _Event:
    """The work of a stream up to a point. It is done when somebody waits for it, and not
    before.
    """

    def __init__(self, work: list[Work]) -> None:
        self.work = work
        self.lock = threading.Lock()

    def synchronize(
        self, delay_s: float = 0.005
    ) -> None:  # a device is late: what is overwritten too early shows
        with self.lock:
            time.sleep(delay_s)
            while self.work:
                self.work.pop(0)()


class Stream:
    current: "Stream | None" = None

    def __init__(self, graphs: list["_Graph"], non_blocking: bool = False) -> None:
        self.work: list[Work] = []
        self.graph: _Graph | None = None
        self.graphs = graphs

    def __enter__(self) -> "Stream":
        self.outer = Stream.current
        Stream.current = self
        return self

    def __exit__(self, *exception: object) -> None:
        Stream.current = self.outer

    def enqueue(self, work: Work) -> None:
        (self.work if self.graph is None else self.graph.work).append(work)

    def record(self) -> _Event:
        assert self.graph is None
        event = _Event(self.work)
        self.work = []
        return event

    def wait_event(self, event: _Event) -> None:
        event.synchronize(0)

    def synchronize(self) -> None:
        self.record().synchronize(0)

    def begin_capture(self, mode: object = None) -> None:
        self.graph = _Graph()

    def end_capture(self) -> "_Graph":
        graph = self.graph
        assert graph is not None
        self.graph = None
        self.graphs.append(graph)
        return graph


class _Graph:
    def __init__(self) -> None:
        self.work: list[Work] = []
        self.launches = 0

    def launch(self, stream: "Stream") -> None:
        self.launches += 1
        for work in self.work:
            stream.enqueue(work)


class Error(RuntimeError):
    pass


def fake_cupy(free_bytes: int, kernels: Launch) -> tuple[Any, Any, Launch]:
    """Returns (cupy, cupyx, launch): stand-ins with NumPy's arrays and streams that are late, as
    the engines use them.

    `launch` enqueues `kernels`, a `Launch`, on the current stream. Arrays cannot be made while a
    stream captures. `cupy.graphs` are those that were captured.
    """

    def made(array: npt.NDArray[Any]) -> Array:
        assert Stream.current is None or Stream.current.graph is None
        return array.view(Array)

    def launch(name: str, probes: int, *arrays: npt.NDArray[Any]) -> None:
        (Stream.current or default).enqueue(lambda: kernels(name, probes, *arrays))

    graphs: list[_Graph] = []
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
    return (
        cupy,
        types.SimpleNamespace(empty_pinned=lambda shape, dtype: np.full(shape, np.nan, dtype)),
        launch,
    )
