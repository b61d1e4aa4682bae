"""Multislice on a GPU by custom kernels: the plain engine's arithmetic in two passes over memory
per slice.

The plain engine (`multislice.exit_waves` on CuPy arrays, with cuFFT) computes the same; the two
must agree to the rounding of float32. There, a slice moves each wave about six times. Here, [row
F⁻¹ · t · row F] and [column F · P · column F⁻¹] each read and write it once, without the columns
that the band limit sets to zero: see `KernelPlan.bytes_per_slice`. The kernels are in fused_gpu.cu,
their plan in `namsa.engines.kernel_plan`. This module builds them and provides their data.

`launch(name, probes, *arrays)` enqueues a kernel: here on a device, in the tests on a CPU that runs
the same source.

The tests run the kernels on a CPU and, where there is one, on a GPU. Times in the comments are an
H200's.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.base.errors import InputError, SimulationWarning
from namsa.engines.device_copies import add_behind
from namsa.engines.kernel_plan import (
    IN_FLIGHT,
    LANES,
    AxisPlan,
    KernelPlan,
    batch_size,
    geometry,
    make_plan,
)
from namsa.physics.grid import Array, Grid
from namsa.physics.potential import Slices

if TYPE_CHECKING:
    import cupy

Launch = Callable[..., None]

# The kernels' lambdas are the device's.
OPTIONS = ("-std=c++17", "--device-as-default-execution-space")
_GRAPH_LAUNCHES = 10_000  # at most: a node of a graph takes memory of the device


def source(plan: KernelPlan) -> str:
    """Returns the CUDA source for a plan: its numbers as macros above fused_gpu.cu."""
    macros: dict[str, object] = {
        "PITCH": plan.pitch,
        "TILE": plan.tile,
        "ROW_PROBES": plan.row_probes,
    }
    macros["ROW_PAD"], macros["ROW_PAD_BACK"] = plan.x.pads
    macros["COLUMN_PAD"], macros["COLUMN_PAD_BACK"] = plan.y.pads
    macros["ROW_BLOCKS"], macros["COLUMN_BLOCKS"] = plan.blocks
    macros["ROW_SLOTS"] = plan.x.slots
    macros["ROW_SYNC"] = 32 if 32 % plan.x.threads == 0 else 0
    for name, axis in (("Y", plan.y), ("X", plan.x)):
        macros |= {
            f"N{name}": axis.n,
            f"THREADS_{name}": axis.threads,
            f"VALUES_{name}": axis.values,
            f"LOW_{name}": axis.low,
            f"HIGH_{name}": axis.high,
            f"RADICES_{name}": ", ".join(map(str, axis.radices)),
            f"RADICES_{name}_BACK": ", ".join(map(str, reversed(axis.radices))),
        }
    text = "".join(f"#define {name} {value}\n" for name, value in macros.items())
    return text + Path(__file__).with_suffix(".cu").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Operands:
    """Data shared by all probes, in the kernels' layout on the device."""

    lens: Array  # the probe at the origin, (ny, pitch)
    # the propagators, (m, ny, pitch), with the normalisation of the inverse transforms
    propagators: Array
    roots_y: Array  # roots of unity along y, (2, ny); see `roots`
    roots_x: Array  # roots of unity along x, (2, nx); see `roots`


def operands(plan: KernelPlan, lens: Array, fresnel: Array, xp: ModuleType) -> Operands:
    """Returns lens and propagators in the kernels' layout; propagators include the inverse
    transforms' 1/(ny nx).
    """
    scaled = fresnel.reshape(-1, *lens.shape) * fresnel.dtype.type(1 / (plan.y.n * plan.x.n))
    return Operands(
        _stored(plan, lens, xp),
        _stored(plan, scaled, xp),
        xp.asarray(roots(plan.y)),
        xp.asarray(roots(plan.x)),
    )


def roots(axis: AxisPlan) -> npt.NDArray[np.complex64]:
    """Returns the roots of unity for `stages` in fused_gpu.cu, (2, n): for the radices and the
    reversed radices.
    """
    tables = np.ones((2, axis.n), np.complex64)
    for table, stages in zip(tables, (axis.radices, axis.radices[::-1]), strict=True):
        done = stages[0]
        for radix in stages[1:]:
            turns = np.outer(np.arange(1, radix), np.arange(done)) / (done * radix)
            table[done : done * radix] = np.exp(-2j * np.pi * turns).ravel()
            done *= radix
    return tables


def _stored(plan: KernelPlan, columns: Array, xp: ModuleType) -> Array:
    """Returns full rows (…, nx) in the kernels' layout (…, pitch): zeros between low and high
    frequencies.
    """
    stored = xp.zeros((*columns.shape[:-1], plan.pitch), np.complex64)
    stored[..., : plan.x.low] = columns[..., : plan.x.low]
    stored[..., plan.pitch - (plan.x.n - plan.x.high) :] = columns[..., plan.x.high :]
    return stored


def ramps(plan: KernelPlan, grid: Grid, positions: Array, xp: ModuleType) -> tuple[Array, Array]:
    """Returns exp(−2πi k·r) of `positions` (n, 2) in Å along y, (n, ny), and x, (n, pitch).

    The phases are computed in double precision, then cast.
    """
    ky, kx = (xp.asarray(k.ravel()) for k in grid.frequencies())
    along_y = xp.exp(-2j * np.pi * positions[:, 0, None] * ky)
    along_x = xp.exp(-2j * np.pi * positions[:, 1, None] * kx)
    return along_y.astype(np.complex64), _stored(plan, along_x.astype(np.complex64), xp)


def propagate(
    launch: Launch,
    shared: Operands,
    slices: Slices,
    ramp: tuple[Array, Array],
    waves: Array,
    patterns: Array,
) -> None:
    """Enqueues the kernels of a batch, from probes to patterns: two launches per slice, and one
    more.

    Args:
        slices: The specimen's transmission functions, contiguous complex64.
        waves: Scratch memory (n, ny, pitch) complex64.
        patterns: Result (n, ny, nx) float32, zero frequency in the centre. Pixels outside the kept
            frequencies are not written; they must be zero before.
    """
    enter(launch, shared, ramp, waves)
    traverse(launch, shared, slices, waves)
    leave(launch, shared, slices, waves, patterns)


def enter(launch: Launch, shared: Operands, ramp: tuple[Array, Array], waves: Array) -> None:
    """Enqueues the kernel that writes the probes into the first of `waves`; see `propagate`."""
    launch("enter", len(ramp[0]), waves, shared.lens, *ramp, shared.roots_y)


def traverse(launch: Launch, shared: Operands, slices: Slices, waves: Array) -> None:
    """Enqueues the kernels between `enter` and `leave`, over all `waves`; see `propagate`."""
    probes = len(waves)
    for index, distance in zip(slices.order[:-1], slices.propagators[:-1], strict=True):
        launch("rows", probes, waves, slices.transmissions[index], shared.roots_x)
        launch("columns", probes, waves, shared.propagators[distance], shared.roots_y)
    launch("rows", probes, waves, slices.transmissions[slices.order[-1]], shared.roots_x)


def leave(launch: Launch, shared: Operands, slices: Slices, waves: Array, patterns: Array) -> None:
    """Enqueues the kernel that writes the patterns of the first of `waves`; see `propagate`."""
    launch(
        "leave",
        len(patterns),
        waves,
        shared.propagators[slices.propagators[-1]],
        shared.roots_y,
        patterns,
    )


def device_plan(lens: Array, fresnel: Array) -> KernelPlan | None:
    """Returns `make_plan` for the current CUDA device."""
    from cupy.cuda import runtime

    limit = runtime.deviceGetAttribute(
        runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin, runtime.getDevice()
    )
    return make_plan(lens, fresnel, limit)


def device_launch(plan: KernelPlan) -> Launch:
    """Returns the kernels on the current CUDA device and stream.

    CuPy compiles them by NVRTC and caches them on disk.
    """
    import cupy

    module = cupy.RawModule(code=source(plan), options=OPTIONS)
    kernels = {name: module.get_function(name) for name in ("enter", "rows", "columns", "leave")}
    for name, kernel in kernels.items():
        kernel.max_dynamic_shared_size_bytes = geometry(plan, name, 1)[2]

    def launch(name: str, probes: int, *arrays: Array) -> None:
        grid, block, shared = geometry(plan, name, probes)
        kernels[name](grid, block, (*arrays, np.int32(probes)), shared_mem=shared)

    return launch


class FusedGpuEngine:
    """Multislice by the kernels of fused_gpu.cu, on the current CUDA device.

    Args:
        slices: The specimen's transmission functions, on the device.
        fresnel: The propagator over one slice, (ny, nx) complex64 on the device, zero frequency
            first, or those of slices of several thicknesses, (m, ny, nx).
        batch: Probes per batch; by default as many as `batch_size` chooses.
    """

    def __init__(
        self, grid: Grid, slices: Slices, fresnel: Array, *, batch: int | None = None
    ) -> None:
        import cupy

        self.grid = grid
        self.fresnel = fresnel.reshape(-1, *grid.shape)
        self.batch = batch
        # The kernels take layout and type for granted. Nothing is copied where these are right.
        contiguous = [cupy.ascontiguousarray(t, np.complex64) for t in slices.transmissions]
        self.slices = replace(slices, transmissions=contiguous)

    def prepare(self, lens: Array) -> "FusedGpuProbes":
        """Returns the probes of `lens` (ny, nx); see `namsa.engines.interface.Engine.prepare`.

        Raises:
            InputError: If the device's shared memory is too small for the grid.
        """
        return FusedGpuProbes(self, lens)


class FusedGpuProbes:
    """The probes of one lens, propagated by a `FusedGpuEngine`."""

    def __init__(self, engine: FusedGpuEngine, lens: Array) -> None:
        import cupy

        plan = device_plan(lens, engine.fresnel[0])
        if plan is None:
            raise InputError(
                f"this GPU has too little shared memory for a grid of {engine.grid.shape}: use "
                "engine 'plain'"
            )
        self._engine = engine
        self._plan = plan
        self._operands = operands(plan, lens, engine.fresnel, cupy)
        self._launch = device_launch(plan)

    def patterns(self, positions: npt.NDArray[np.float64]) -> Array:
        """Returns the patterns (n, ny, nx) float32, on the device, of probes at `positions` (n, 2),
        in one batch.
        """
        import cupy

        waves = cupy.empty((len(positions), self._plan.y.n, self._plan.pitch), np.complex64)
        patterns = cupy.zeros((len(positions), *self._engine.grid.shape), np.float32)
        ramp = ramps(self._plan, self._engine.grid, cupy.asarray(positions), cupy)
        propagate(self._launch, self._operands, self._engine.slices, ramp, waves, patterns)
        return patterns

    def add_patterns(
        self,
        cbed: npt.NDArray[np.floating],
        positions: npt.NDArray[np.float64],
        binning: tuple[Array, Array] | None,
        on_probes: Callable[[int, int], None],
    ) -> None:
        """Adds the patterns that the detector records to `cbed`; see
        `namsa.engines.interface.Probes.add_patterns`.

        Batches take turns on `LANES` streams.

        Raises:
            WorkError: If the device's free memory does not hold one probe.
        """
        import cupy

        runtime = cupy.cuda.runtime
        free_bytes = runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes()
        cache_bytes = runtime.deviceGetAttribute(
            runtime.cudaDevAttrL2CacheSize, runtime.getDevice()
        )
        size = batch_size(self._plan, len(positions), free_bytes, cache_bytes, self._engine.batch)
        stacks = [
            cupy.zeros((size, *self._engine.grid.shape), np.float32) for _ in range(IN_FLIGHT)
        ]
        # lens, slices and fresnel were made on this stream
        cupy.cuda.get_current_stream().synchronize()
        lanes = [self._lane(size, captured=len(positions) > LANES * size) for _ in range(LANES)]

        def compute(batch: int, rows: slice) -> tuple[Array, "cupy.cuda.Event"]:
            stack = stacks[batch % IN_FLIGHT][: rows.stop - rows.start]
            return stack, self._compute(lanes[batch % LANES], positions[rows], stack)

        add_behind(compute, cbed, size, IN_FLIGHT, binning, on_probes)

    def _lane(self, size: int, captured: bool) -> "_Lane":
        """Returns a stream for batches of `size` probes, whose slices are `captured` in a graph if
        that is possible.

        A kernel of a batch takes about 9 µs, as long as to enqueue it from Python; a graph enqueues
        all at once.
        """
        import cupy

        stream = cupy.cuda.Stream(non_blocking=True)
        waves = cupy.empty((size, self._plan.y.n, self._plan.pitch), np.complex64)
        shared = self._operands
        slices = self._engine.slices
        enqueue = partial(traverse, self._launch, shared, slices, waves)
        if captured and 2 * len(slices.order) <= _GRAPH_LAUNCHES:
            with stream:
                # Kernels are loaded when they are first launched, which a capture may forbid.
                self._launch("rows", 1, waves, slices.transmissions[0], shared.roots_x)
                self._launch("columns", 1, waves, shared.propagators[0], shared.roots_y)
                try:
                    stream.begin_capture()
                    try:
                        enqueue()
                    finally:
                        graph = stream.end_capture()
                    enqueue = partial(graph.launch, stream)
                except (
                    cupy.cuda.runtime.CUDARuntimeError,
                    cupy.cuda.driver.CUDADriverError,
                ) as error:
                    warnings.warn(
                        "this driver captures no CUDA graph, so kernels are launched one by one, "
                        f"slower: {error}",
                        SimulationWarning,
                        stacklevel=4,
                    )
        return _Lane(stream, waves, enqueue)

    def _compute(
        self, lane: "_Lane", positions: npt.NDArray[np.float64], patterns: Array
    ) -> "cupy.cuda.Event":
        """Enqueues a batch; returns the event of its end. A short batch leaves the last waves of
        the one before.
        """
        import cupy

        with lane.stream:
            ramp = ramps(self._plan, self._engine.grid, cupy.asarray(positions), cupy)
            enter(self._launch, self._operands, ramp, lane.waves)
            lane.traverse()
            leave(self._launch, self._operands, self._engine.slices, lane.waves, patterns)
            return lane.stream.record()


class _Lane(NamedTuple):
    """A stream with its own waves."""

    stream: "cupy.cuda.Stream"
    waves: Array
    traverse: Callable[[], None]  # enqueues the kernels of all slices over the waves
