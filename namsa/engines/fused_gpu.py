"""Multislice on a GPU by custom kernels: the plain engine's arithmetic in two passes over memory per slice.

The plain engine (`multislice.exit_waves` on CuPy arrays, with cuFFT) computes the same; the two must agree to the
rounding of float32. There, a slice moves each wave about six times. Here, [row F⁻¹ · t · row F] and
[column F · P · column F⁻¹] each read and write it once, without the columns that the band limit sets to zero: see
`bytes_per_slice`. The kernels are in fused_gpu.cu. This module plans and builds them, provides their data and copies
their results to the host.

`launch(name, probes, *arrays)` enqueues a kernel: here on a device, in the tests on a CPU that runs the same source.

No GPU has run the kernels yet, so `simulate` uses them only with engine "fused". NVRTC compiles them for sm_70, sm_80
and sm_90, and the tests run them on a CPU. Times in the comments are estimates.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from namsa.errors import InputError, WorkError
from namsa.physics import detector
from namsa.physics.backend import available_cores, to_host
from namsa.physics.grid import Array, Grid
from namsa.physics.potential import Slices

Launch = Callable[..., None]

OPTIONS = ("-std=c++17", "--device-as-default-execution-space")  # the kernels' lambdas are the device's
RADICES = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16)
MAX_PIXELS = (
    1024  # per axis: a block of longer columns would fill a multiprocessor, which could not load while it computes
)
_BLOCK_THREADS = 256  # of the rows pass: several blocks per multiprocessor, so that one computes while others load
_TILE = 8  # columns per block: 64 contiguous bytes, two sectors of memory; if two blocks fit into a multiprocessor
_COMPLEX = 8  # bytes
# Size of a batch's waves. A launch takes about 80 µs on an H100, so that the 5 µs to enqueue it do not matter and no
# graph is captured. Larger batches would gain less from the second-level cache between passes.
_WAVES_BYTES = 2**27
_IN_FLIGHT = 2  # batches: one is computed while the other is copied to the host and added
_COPY_THREADS = 4  # one core adds patterns more slowly than a device computes them


@dataclass(frozen=True)
class AxisPlan:
    """The transforms along one axis.

    Attributes:
        n: Number of pixels.
        radices: Radices of the stages.
        low: First frequency that is zero; n if there is none.
        high: First frequency after those that are zero; n if there is none.
    """

    n: int
    radices: tuple[int, ...]
    low: int
    high: int

    @property
    def threads(self) -> int:
        """Threads per line. At each stage a thread computes one transform of that stage's radix, or none."""
        return self.n // min(self.radices)

    @property
    def kept(self) -> int:
        """Number of stored frequencies."""
        return self.n - (self.high - self.low)


@dataclass(frozen=True)
class KernelPlan:
    """What the kernels are compiled for.

    Attributes:
        y: The transforms along y.
        x: The transforms along x.
        tile: Columns per block of the columns pass.
        row_probes: Probes per block of the rows pass.
    """

    y: AxisPlan
    x: AxisPlan
    tile: int
    row_probes: int

    @property
    def pitch(self) -> int:
        """Stored columns, including those that complete the last tile."""
        return -(-self.x.kept // self.tile) * self.tile

    @property
    def pads(self) -> tuple[int, int]:
        """Values (rows, columns) after which one slot of shared memory stays empty.

        The first exchange writes at a stride of its radix. An even radix would use few of the memory's 16 double banks:
        a row of 512 would take three times the minimum of cycles; with the padding it takes 1.25 times.
        """
        row, column = self.x.radices[0], self.y.radices[0]
        power_of_two = row & (row - 1) == 0
        return self.x.n if row % 2 else 16 if power_of_two else row, self.y.n if column % 2 else column

    @property
    def shared_bytes(self) -> tuple[int, int]:
        """Shared memory (rows, columns) per block, bytes."""
        row, column = (axis.n + (axis.n - 1) // pad for axis, pad in zip((self.x, self.y), self.pads, strict=True))
        return self.row_probes * row * _COMPLEX, self.tile * column * _COMPLEX

    @property
    def bytes_per_slice(self) -> int:
        """Device memory traffic of a probe per slice, bytes: two passes, each with a read and a write.

        t and P are shared by all probes and stay in the second-level cache. For 512² with a third of the columns zero
        it is 5.6 MB; with all columns it would be 8.4 MB, and 25.2 MB for plain transforms and products.
        """
        return 4 * self.y.n * self.pitch * _COMPLEX


def radices(n: int) -> tuple[int, ...]:
    """Returns the radices that transform `n` values: as few as possible, then the smallest and the most equal ones.

    The result is empty if n has a prime factor above 7 or exceeds `MAX_PIXELS`. The smallest radices come first and
    last: these stages access memory, where all threads of a line should take part.
    """

    def factorisations(rest: int, most: int) -> Iterator[tuple[int, ...]]:
        if rest == 1:
            yield ()
        for radix in RADICES:
            if radix <= most and rest % radix == 0:
                for others in factorisations(rest // radix, radix):
                    yield (radix, *others)

    if not 2 <= n <= MAX_PIXELS:
        return ()
    best = min(factorisations(n, max(RADICES)), key=lambda r: (len(r), max(r), -min(r)), default=())
    return best if len(best) < 2 else (best[-1], *best[:-2], best[-2])


def supports(shape: tuple[int, int], dtype: Any) -> bool:
    """Returns whether the kernels support a grid (ny, nx) and a type; the plain engine supports all."""
    return np.dtype(dtype) == np.complex64 and all(radices(n) for n in shape)


def make_plan(lens: Array, fresnel: Array, shared_limit: int) -> KernelPlan | None:
    """Plans kernels for the frequencies where the lens or the propagator is not zero.

    Args:
        lens: The probe at the origin, (ny, nx) complex64, zero frequency first.
        fresnel: The propagator over one slice, (ny, nx) complex64, zero frequency first.
        shared_limit: The device's largest shared memory per block, bytes.

    Returns:
        The plan. `None` if the kernels do not support the grid on this device.
    """
    if not supports(fresnel.shape, fresnel.dtype):
        return None
    used = (lens != 0) | (fresnel != 0)
    y, x = (_axis(to_host(used.any(axis=other))) for other in (1, 0))
    row_probes = min(16, max(1, _BLOCK_THREADS // x.threads))
    for tile, threads, blocks in ((_TILE, 512, 2), (_TILE // 2, 1024, 1)):  # half a tile still fills a sector
        plan = KernelPlan(y, x, tile, row_probes)
        if tile * y.threads <= threads and blocks * max(plan.shared_bytes) <= shared_limit:
            return plan
    return None


def _axis(used: npt.NDArray[np.bool_]) -> AxisPlan:
    """Returns the plan of an axis for the frequencies (n,) that are used."""
    n = len(used)
    frequencies = np.abs(np.fft.fftfreq(n, 1 / n)).round().astype(int)
    reach = int(frequencies[used].max(initial=0))
    low, high = (reach + 1, n - reach) if 2 * reach + 1 < n else (n, n)
    return AxisPlan(n, radices(n), low, high)


def source(plan: KernelPlan) -> str:
    """Returns the CUDA source for a plan: its numbers as macros above fused_gpu.cu."""
    macros: dict[str, Any] = {"PITCH": plan.pitch, "TILE": plan.tile, "ROW_PROBES": plan.row_probes}
    macros["ROW_PAD"], macros["COLUMN_PAD"] = plan.pads
    for name, axis in (("Y", plan.y), ("X", plan.x)):
        macros |= {f"N{name}": axis.n, f"THREADS_{name}": axis.threads, f"LOW_{name}": axis.low}
        macros |= {f"HIGH_{name}": axis.high, f"RADICES_{name}": ", ".join(map(str, axis.radices))}
        macros |= {f"RADICES_{name}_BACK": ", ".join(map(str, reversed(axis.radices)))}
    text = "".join(f"#define {name} {value}\n" for name, value in macros.items())
    return text + Path(__file__).with_suffix(".cu").read_text(encoding="utf-8")


def geometry(plan: KernelPlan, kernel: str, probes: int) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Returns (grid, block, shared bytes) of the launch of a kernel over `probes` waves."""
    rows, columns = plan.shared_bytes
    if kernel == "rows":
        return (plan.y.n, -(-probes // plan.row_probes)), (plan.x.threads, plan.row_probes), rows
    return (plan.pitch // plan.tile, probes), (plan.tile, plan.y.threads), columns


def batch_size(plan: KernelPlan, probes: int, free_bytes: int, requested: int | None = None) -> int:
    """Returns the probes per batch. All batches are about equal and take at most half of the free memory.

    Args:
        plan: The kernels' plan.
        probes: Number of probes.
        free_bytes: Free memory of the device, bytes.
        requested: Largest batch; by default waves of `_WAVES_BYTES`.

    Raises:
        WorkError: If one probe does not fit into the memory.
    """
    waves = plan.y.n * plan.pitch * _COMPLEX
    each = waves + (plan.y.n + plan.pitch) * _COMPLEX + 2 * _IN_FLIGHT * plan.y.n * plan.x.n * 4
    fit = free_bytes // 2 // each
    if not fit:
        raise WorkError(
            f"a probe of {plan.y.n}×{plan.x.n} needs {each / 1e6:.1f} MB twice over on the GPU, which has "
            f"{free_bytes / 1e6:.1f} MB free: close what else uses it, or use backend 'cpu'"
        )
    most = min(probes, fit, requested or max(1, _WAVES_BYTES // waves), 65535)  # CUDA's limit on a grid's second axis
    return -(-probes // -(-probes // most))


@dataclass(frozen=True)
class Operands:
    """What all probes share, in the kernels' layout on the device.

    Attributes:
        lens: The probe at the origin, (ny, pitch).
        propagator: The propagator, (ny, pitch), with the normalisation of the inverse transforms.
        roots_y: Roots of unity along y, (2, ny); see `roots`.
        roots_x: Roots of unity along x, (2, nx); see `roots`.
    """

    lens: Array
    propagator: Array
    roots_y: Array
    roots_x: Array


def operands(plan: KernelPlan, lens: Array, fresnel: Array, xp: Any) -> Operands:
    """Returns lens and propagator in the kernels' layout; the propagator includes the inverse transforms' 1/(ny nx)."""
    scaled = fresnel * fresnel.dtype.type(1 / (plan.y.n * plan.x.n))
    tables = (xp.asarray(roots(axis)) for axis in (plan.y, plan.x))
    return Operands(_stored(plan, lens, xp), _stored(plan, scaled, xp), *tables)


def roots(axis: AxisPlan) -> npt.NDArray[np.complex64]:
    """Returns the roots of unity for `stages` in fused_gpu.cu, (2, n): for the radices and the reversed radices."""
    tables = np.ones((2, axis.n), np.complex64)
    for table, stages in zip(tables, (axis.radices, axis.radices[::-1]), strict=True):
        done = stages[0]
        for radix in stages[1:]:
            turns = np.outer(np.arange(1, radix), np.arange(done)) / (done * radix)
            table[done : done * radix] = np.exp(-2j * np.pi * turns).ravel()
            done *= radix
    return tables


def _stored(plan: KernelPlan, columns: Array, xp: Any) -> Array:
    """Returns full rows (…, nx) in the kernels' layout (…, pitch): kept columns, then zeros."""
    stored = xp.zeros((*columns.shape[:-1], plan.pitch), np.complex64)
    stored[..., : plan.x.low] = columns[..., : plan.x.low]
    stored[..., plan.x.low : plan.x.kept] = columns[..., plan.x.high :]
    return stored


def ramps(plan: KernelPlan, grid: Grid, positions: Array, xp: Any) -> tuple[Array, Array]:
    """Returns exp(−2πi k·r) of `positions` (n, 2) in Å along y, (n, ny), and x, (n, pitch).

    The phases are computed in double precision, then cast.
    """
    ky, kx = (xp.asarray(k.ravel()) for k in grid.frequencies())
    along_y, along_x = (xp.exp(-2j * np.pi * positions[:, i, None] * k) for i, k in enumerate((ky, kx)))
    return along_y.astype(np.complex64), _stored(plan, along_x.astype(np.complex64), xp)


def propagate(
    launch: Launch, shared: Operands, slices: Slices, ramp: tuple[Array, Array], waves: Array, patterns: Array
) -> None:
    """Enqueues the kernels of a batch, from probes to patterns: two launches per slice, and one more.

    Args:
        launch: Enqueues a kernel.
        shared: Lens, propagator and roots of unity.
        slices: The specimen's transmission functions, contiguous complex64.
        ramp: The `ramps` of the positions.
        waves: Scratch memory (n, ny, pitch) complex64.
        patterns: Result (n, ny, nx) float32, zero frequency in the centre. Pixels outside the kept frequencies are not
            written; they must be zero before.
    """
    probes = len(ramp[0])
    launch("enter", probes, waves, shared.lens, *ramp, shared.roots_y)
    for index in slices.order[:-1]:
        launch("rows", probes, waves, slices.transmissions[index], shared.roots_x)
        launch("columns", probes, waves, shared.propagator, shared.roots_y)
    launch("rows", probes, waves, slices.transmissions[slices.order[-1]], shared.roots_x)
    launch("leave", probes, waves, shared.propagator, shared.roots_y, patterns)


def device_plan(lens: Array, fresnel: Array) -> KernelPlan | None:
    """Returns `make_plan` for the current CUDA device."""
    from cupy.cuda import runtime

    limit = runtime.deviceGetAttribute(runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin, runtime.getDevice())
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
        grid: The sampling of the waves.
        slices: The specimen's transmission functions, on the device.
        fresnel: The propagator over one slice, (ny, nx) complex64 on the device, zero frequency first.
        batch: Probes per batch; by default as many as `batch_size` chooses.
    """

    def __init__(self, grid: Grid, slices: Slices, fresnel: Array, *, batch: int | None = None) -> None:
        import cupy

        self.grid = grid
        self.fresnel = fresnel
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

        plan = device_plan(lens, engine.fresnel)
        if plan is None:
            raise InputError(
                f"this GPU has too little shared memory for a grid of {engine.grid.shape}: use engine 'plain'"
            )
        self._engine = engine
        self._plan = plan
        self._operands = operands(plan, lens, engine.fresnel, cupy)
        self._launch = device_launch(plan)

    def patterns(self, positions: npt.NDArray[np.float64]) -> Array:
        """Returns the patterns (n, ny, nx) float32, on the device, of probes at `positions` (n, 2), in one batch."""
        import cupy

        waves = cupy.empty((len(positions), self._plan.y.n, self._plan.pitch), np.complex64)
        patterns = cupy.zeros((len(positions), *self._engine.grid.shape), np.float32)
        self._propagate(positions, waves, patterns)
        return patterns

    def add_patterns(
        self,
        cbed: npt.NDArray[Any],
        positions: npt.NDArray[np.float64],
        binning: tuple[Array, Array] | None,
        on_probes: Callable[[int, int], None],
    ) -> None:
        """Adds the patterns that the detector records to `cbed`; see `namsa.engines.interface.Probes.add_patterns`.

        One stream computes. Another copies to page-locked memory, from where a few threads add to `cbed`.

        Raises:
            WorkError: If the device's free memory does not hold one probe.
        """
        import cupy
        import cupyx

        free_bytes = cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes()
        size = batch_size(self._plan, len(positions), free_bytes, self._engine.batch)
        waves = cupy.empty((size, self._plan.y.n, self._plan.pitch), np.complex64)
        stacks = [cupy.zeros((size, *self._engine.grid.shape), np.float32) for _ in range(_IN_FLIGHT)]
        landings = [cupyx.empty_pinned((size, *cbed.shape[1:]), np.float32) for _ in range(_IN_FLIGHT)]
        threads = min(_COPY_THREADS, available_cores())
        cupy.cuda.get_current_stream().synchronize()  # lens, slices and fresnel were made on this stream
        computing, copying = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
        in_flight: deque[_Batch] = deque()
        done = 0
        with ThreadPoolExecutor(threads) as pool:
            for turn, start in enumerate(range(0, len(positions), size)):
                if len(in_flight) == _IN_FLIGHT:
                    done += in_flight.popleft().finish()
                    on_probes(done, len(positions))
                rows = cbed[start : start + size]
                stack, landing = (buffers[turn % _IN_FLIGHT][: len(rows)] for buffers in (stacks, landings))
                with computing:
                    self._propagate(positions[start : start + size], waves[: len(rows)], stack)
                    collected = detector.bin_patterns(stack, binning)
                    computed = computing.record()
                copying.wait_event(computed)
                collected.get(stream=copying, out=landing, blocking=False)
                copied = copying.record()
                parts = np.array_split(np.arange(len(rows)), threads)
                additions = [
                    pool.submit(_add, copied, rows[part[0] : part[-1] + 1], landing[part[0] : part[-1] + 1])
                    for part in parts
                    if len(part)
                ]
                in_flight.append(_Batch(len(rows), additions, collected))
            while in_flight:
                done += in_flight.popleft().finish()
                on_probes(done, len(positions))

    def _propagate(self, positions: npt.NDArray[np.float64], waves: Array, patterns: Array) -> None:
        """Enqueues one batch on the current stream; `waves` is scratch, `patterns` is written (see `propagate`)."""
        import cupy

        ramp = ramps(self._plan, self._engine.grid, cupy.asarray(positions), cupy)
        propagate(self._launch, self._operands, self._engine.slices, ramp, waves, patterns)


class _Batch(NamedTuple):
    """A batch that is being copied and added: its probes, the additions, and the array to keep until it is copied."""

    probes: int
    additions: list[Future[None]]
    collected: Array

    def finish(self) -> int:
        """Waits until the batch has been added; returns the number of its probes."""
        for addition in self.additions:
            addition.result()
        return self.probes


def _add(copied: Any, rows: npt.NDArray[Any], landed: npt.NDArray[Any]) -> None:
    """Adds a part of a batch on the host as soon as the copy from the device has finished."""
    copied.synchronize()
    rows += landed
